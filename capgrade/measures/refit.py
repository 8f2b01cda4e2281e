"""The parameters that labels were made with: in words, as the block of params.yaml, and for
fitting the measures again with the encoder, files and device that the user names.

Labels say what they were made with, and may come from anybody. An encoder is a hub id or a folder,
so their word alone would have us ask the hub for whatever they name. Of a path they have the last
name and the digest: where things lie is the user's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capgrade.measures.catalogue import MEASURES
from capgrade.measures.params import OWNERS, MeasuresParams
from capgrade.schemas.block import validated
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import Manner, Place, keys_of

SET, EXACT = "--set measures.{block}.{key}={value}", "exact(..., {key}='{value}')"


def params_of(measures: dict[str, Any], folder: Path) -> MeasuresParams:
    """Parameters from what `MeasuresParams.used` wrote. Imported matrices are left out, and
    mixtures with them: their labels are in the pairs."""
    block = measures_block(measures)
    mixtures = {
        name: weights
        for name, weights in block.get("mixtures", {}).items()
        if not _is_imported(measures.get(name, {}))  # one that ranks for another is not among them
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


def _is_imported(used: dict[str, Any]) -> bool:
    """Whether a measure is an imported matrix, or a mixture with one."""
    return any("imported" in part for part in (used, *used.get("measures", {}).values()))


def params_to_refit(
    made: MeasuresParams, given: MeasuresParams, folder: Path, option: str = SET
) -> MeasuresParams:
    """The parameters that the labels in `folder` were made with, except what `given` has to say:
    how a measure is computed, and where its files lie.

    `option` is how a user names one. InputError for a model or file that is neither the default nor
    named by `given`. `require_same_files` tells whether it has the right content.
    """
    changes = {}
    for block, kind in OWNERS.items():
        users, makers = getattr(given, block), getattr(made, block)
        changed = {key: getattr(users, key) for key in keys_of(kind.parameters, Manner)}
        for key in keys_of(kind.parameters, Place):
            default, value = kind.parameters.model_fields[key].default, getattr(makers, key)
            if value == default:
                continue
            changed[key] = getattr(users, key)
            # Of a path the labels have its last name alone, so what has folders is a name.
            if changed[key] == default or ("/" in value and changed[key] != value):
                problem = f"its labels were made with {block}.{key} '{value}', which is not opened"
                named = option.format(block=block, key=key, value=value)
                remedy = f"if you trust it, name it: {named}"
                raise InputError(f"{problem} unasked", file=folder, remedy=remedy)
        changes[block] = makers.model_copy(update=changed)
    return made.model_copy(update=changes)


def meaning_of(name: str, used: Mapping[str, Any]) -> str:
    """What a value of a measure is, in a line, by what `MeasuresParams.used` says of it."""
    if "imported" in used:
        return "relevance that another program computed"
    if "weights" in used:
        of = used["measures"]
        parts = (
            f"{weight:.3g} `{part}` ({meaning_of(part, of[part])})"
            for part, weight in used["weights"].items()
        )
        return f"weighted sum: {' + '.join(parts)}"
    if name not in MEASURES:
        return "relevance by a measure of a package that is not installed here"
    own = {key: value for key, value in used.items() if key != "measures"}
    return MEASURES[name](MEASURES[name].parameters(**own)).meaning()
