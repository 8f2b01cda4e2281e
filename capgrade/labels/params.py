"""The parameters that labels were made with: as the block of params.yaml, without the folders of a
machine, and for fitting the measures again with the encoder, files and device that the user names.

Labels say what they were made with, and may come from anybody. An encoder is a hub id or a folder,
so their word alone would have us ask the hub for whatever they name. Published labels call paths by
their last names: where things lie on one machine is nobody else's business.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from capgrade.measures import MEASURES
from capgrade.measures.params import OWNERS, MeasuresParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import inside
from capgrade.schemas.params import validated

SET, EXACT = "--set measures.{block}.{key}={value}", "exact(..., {key}='{value}')"
# Parameters that hold a path, or several by name. A hub's id, USER/NAME, stays.
_PATHS = {"input", "imported", "document_frequency", "model", "cache", "split_lists", "images"}
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def params_of(measures: dict[str, Any], folder: Path) -> MeasuresParams:
    """Parameters from what `MeasuresParams.used` wrote. Imported matrices are left out, and
    mixtures with them: their labels are in the pairs."""
    block = measures_block(measures)
    mixtures = {
        name: weights
        for name, weights in block.get("mixtures", {}).items()
        if not is_imported(measures.get(name, {}))  # one that ranks for another is not among them
    }
    return validated(MeasuresParams, {**block, "imported": {}, "mixtures": mixtures}, file=folder)


def measures_block(used: dict[str, Any], block: dict[str, Any] | None = None) -> dict[str, Any]:
    """The block of params.yaml from what was used, where imported measures and mixtures stand
    beside the others."""
    block = {} if block is None else block
    for name, params in used.items():
        if "imported" in params:
            block.setdefault("imported", {})[name] = params["imported"]
        elif "weights" in params:
            block.setdefault("mixtures", {})[name] = params["weights"]
            measures_block(params["measures"], block)
        elif name in MEASURES:
            kind, own = MEASURES[name], dict(params)
            measures = own.pop("measures", {})
            for key in kind.fixed:
                own[key] = kind.parameters.model_fields[key].default
            block.setdefault(kind.block or name, own)
            measures_block(measures, block)
        else:
            problem = f"its labels are of '{name}', a measure that is not installed here"
            raise InputError(problem, remedy="install the package that brings it")
    return block


def is_imported(used: dict[str, Any]) -> bool:
    """Whether a measure is an imported matrix, or a mixture with one."""
    return any("imported" in part for part in (used, *used.get("measures", {}).values()))


def params_to_refit(
    made: MeasuresParams, given: MeasuresParams, folder: Path, option: str = SET
) -> MeasuresParams:
    """The parameters that the labels in `folder` were made with, except what `given` has to say:
    how a measure is computed (`Measure.how`), and the paths of files that published labels call by
    their last names.

    `option` is how a user names one. InputError for a model or file (`Measure.opened`) that is
    neither the default nor named by `given`; document frequencies below the current folder are
    opened.
    """
    changes = {}
    for block, kind in OWNERS.items():
        users, makers = getattr(given, block), getattr(made, block)
        changed = {key: getattr(users, key) for key in kind.how}
        for key in kind.opened:
            if getattr(makers, key) != kind.parameters.model_fields[key].default:
                changed[key] = _require_named(block, key, made, given, folder, option)
        changes[block] = makers.model_copy(update=changed)
    return made.model_copy(update=changes)


def _require_named(
    block: str, key: str, made: MeasuresParams, given: MeasuresParams, folder: Path, option: str
) -> str:
    value_made, named = str(getattr(getattr(made, block), key)), getattr(getattr(given, block), key)
    if named is not None and value_made in (named, base_names({key: named})[key]):
        return str(named)
    why, value, file = "is not opened unasked", value_made, value_made.partition("#")[0]
    if key == "document_frequency" and inside(file):
        if Path(file).exists():
            return value_made
        why, value = "is not here", "FILE"
    problem = f"its labels were made with {block}.{key} '{value_made}', which {why}"
    remedy = f"if you trust it, name it: {option.format(block=block, key=key, value=value)}"
    raise InputError(problem, file=folder, remedy=remedy)


def base_names(params: Any, source: str | None = None) -> Any:
    """The same parameters, every path by its last name, at any depth; `source` is that of
    captions."""
    if not isinstance(params, dict):
        return params
    source = params.get("source", source)
    return {
        key: _last_name(key, value, source) if key in _PATHS else base_names(value)
        for key, value in params.items()
    }


def _last_name(key: str, value: Any, source: str | None) -> Any:
    if isinstance(value, dict):
        return {name: _last_name(key, path, source) for name, path in value.items()}
    if not isinstance(value, str):
        return value
    may_be_hub = key == "model" or (key == "input" and source == "hub")
    if may_be_hub and HUB_ID.fullmatch(value) and not Path(value).exists():
        return value
    folder, hash_, split = value.partition("#") if key == "document_frequency" else (value, "", "")
    return f"{Path(folder).name}{hash_}{split}"
