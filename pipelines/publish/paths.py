"""Parameters as they are published: a block of params.yaml, and files by their own names, not where they lie here."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

FILES = ("imported", "document_frequency")  # always files


def published(params: Any) -> Any:
    """The same without the folders of this machine. An id on the hub stays whole."""
    if isinstance(params, list | tuple):
        return [published(value) for value in params]
    if not isinstance(params, dict):
        return params
    made = {key: published(value) for key, value in params.items()}
    for key in FILES:
        if isinstance(made.get(key), str):
            made[key] = PurePath(made[key]).name
    if isinstance(made.get("imported"), dict):
        made["imported"] = {name: PurePath(file).name for name, file in made["imported"].items()}
    if "split_lists" in made:
        made["split_lists"] = {split: PurePath(file).name for split, file in made["split_lists"].items()}
    if isinstance(made.get("input"), str):
        made["input"] = _name(made["input"], hub=made.get("source") == "hub")
    if isinstance(made.get("model"), str):
        made["model"] = _name(made["model"], hub=True)
    return made


def _name(value: str, hub: bool) -> str:
    """`hub`: USER/NAME may be an id there, and is kept."""
    here = value.startswith(("/", ".", "~")) or value.count("/") > 1 or "\\" in value
    return PurePath(value.replace("\\", "/")).name if here or not hub else value


def measures_block(used: dict[str, Any], block: dict[str, Any] | None = None) -> dict[str, Any]:
    """The block of params.yaml from what was used, where imported measures and mixtures stand beside the others."""
    block = {} if block is None else block
    for name, params in used.items():
        if "imported" in params:
            block.setdefault("imported", {})[name] = params["imported"]
        elif "weights" in params:
            block.setdefault("mixtures", {})[name] = params["weights"]
            measures_block(params["measures"], block)
        elif name == "sbert_mean":  # not a block of its own: `sbert` with another `references`
            block.setdefault("sbert", {**params, "references": "max"})
        else:
            block[name] = params
    return block
