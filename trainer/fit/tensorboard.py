"""Epochs for TensorBoard, for those who look there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from capgrade.schemas.errors import InputError


def write_epoch(out: Path, epoch: Mapping[str, float]) -> None:
    """One epoch's loss, validation and speed as scalars in `out/tensorboard`. InputError when it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remedy = "pip install tensorboard, or set train.tensorboard to false"
        raise InputError("TensorBoard is not installed", remedy=remedy) from error
    with SummaryWriter(str(out / "tensorboard")) as writer:
        for name, value in epoch.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(epoch["epoch"]))
