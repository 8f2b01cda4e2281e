"""Checkpoints of the bottom-up model by what is in them: ours, and the layouts that others have published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.detectors.bottom_up import BottomUp
from pipelines.detectors.checkpoint import read_checkpoint, save_bottom_up
from schemas.errors import InputError
from schemas.files import digest

__all__ = ["load_bottom_up", "save_bottom_up"]


def load_bottom_up(path: Path) -> tuple[BottomUp, dict[str, Any]]:
    """A model in eval mode, and what is known of it: layout, digest, n_classes, n_attributes, classes, attributes.

    InputError for a file of no known layout, and for tensors that are missing, misshapen or not finite.
    """
    if not path.is_file():
        raise InputError("no such file", file=path, remedy="give --weights a checkpoint of the bottom-up model")
    model, facts = read_checkpoint(path)
    config = model.config
    counts = {"n_classes": config.n_classes, "n_attributes": config.n_attributes}
    return model, {"classes": None, "attributes": None, **facts, **counts, "digest": digest(path)}
