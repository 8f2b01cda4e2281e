"""Measures as params.yaml has them, from the parameters that a file was made with."""

from __future__ import annotations

from typing import Any

from capgrade.schemas.params import FORMS_OF_SBERT


def measures_block(used: dict[str, Any], block: dict[str, Any] | None = None) -> dict[str, Any]:
    """The block of params.yaml from what was used, where imported measures and mixtures stand beside the others."""
    block = {} if block is None else block
    for name, params in used.items():
        if "imported" in params:
            block.setdefault("imported", {})[name] = params["imported"]
        elif "weights" in params:
            block.setdefault("mixtures", {})[name] = params["weights"]
            measures_block(params["measures"], block)
        elif name in FORMS_OF_SBERT:  # no blocks of their own
            block.setdefault("sbert", {**params, "references": "max"})
        else:
            block[name] = params
    return block


def imported(used: dict[str, Any]) -> bool:
    """Whether a measure is somebody's matrix, or a mixture with one."""
    return any("imported" in part for part in (used, *used.get("measures", {}).values()))
