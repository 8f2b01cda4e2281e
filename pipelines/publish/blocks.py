"""Measures as params.yaml has them, from the parameters that a file was made with."""

from __future__ import annotations

from typing import Any


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
