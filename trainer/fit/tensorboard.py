"""Epochs for TensorBoard, for those who look there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from capgrade.schemas.extras import MissingExtraError


def write_epoch(out: Path, epoch: Mapping[str, float]) -> None:
    """One epoch's loss, validation and speed as scalars in `out/tensorboard`.

    Raises MissingExtraError when it is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "tensorboard") from error
    with SummaryWriter(str(out / "tensorboard")) as writer:
        for name, value in epoch.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(epoch["epoch"]))
