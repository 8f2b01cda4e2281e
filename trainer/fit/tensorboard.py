"""Epochs for TensorBoard, for those who look there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from capgrade.schemas.extras import MissingExtraError
from capgrade.schemas.files import atomic

FOLDER = "tensorboard"  # of a run's folder


def write_epoch(out: Path, epoch: Mapping[str, float]) -> None:
    """One epoch's loss, validation and speed as scalars: one file in `out/tensorboard`.

    Raises MissingExtraError when it is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "tensorboard") from error
    with TemporaryDirectory() as folder:  # it names its file itself, and `out` takes no file that nobody announced
        with SummaryWriter(folder) as writer:
            for name, value in epoch.items():
                if name != "epoch":
                    writer.add_scalar(name, value, int(epoch["epoch"]))
        for events in Path(folder).iterdir():
            with atomic(out / FOLDER / events.name) as temporary:
                shutil.copy(events, temporary)
