"""A picture of how runs went: the loss of every step, and the validation of every epoch."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.output import SIGNATURE, refuse_picture
from capgrade.trainer.fit.names import EPOCHS, STEPS

SMOOTH = 0.02  # share of a run's steps over which its loss is averaged
TITLES = {"rsum": "Validation rsum, of 600", "ndcg": "Validation NDCG", "asp": "Validation ASP"}


def runs_in(folder: Path) -> dict[str, Path]:
    """The runs in a folder, by name in order. InputError when there is none."""
    found = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{EPOCHS}"))}
    if not found:
        raise InputError("no runs here", file=folder, remedy="train them with capgrade train --out")
    return found


def draw(runs: Mapping[str, Path], out: Path, metric: str = "rsum") -> int:
    """Draw runs over the share of their training that was done, so that long and short ones compare; returns how many.

    Losses of different kinds have different sizes: each is drawn as a share of its first value. The format follows the
    suffix of `out`. Raises InputError without runs, for one that did not measure `metric`, and for a file at
    `out` that is no such picture.
    """
    if not runs:
        raise InputError("no runs", remedy="give LABEL=DIR, or --folder")
    refuse_picture(out)
    figure = Figure(figsize=(10, 4), layout="constrained")
    losses, validation = figure.subplots(1, 2)
    for label, folder in runs.items():
        _losses(losses, label, _column(folder / STEPS, "loss"))
        values = _column(folder / EPOCHS, metric)
        validation.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3, label=label)
    losses.set(xlabel="share of the steps", ylabel="loss, of its first value", title="Training loss", ylim=(0, None))
    validation.set(xlabel="epoch", ylabel=metric, title=TITLES.get(metric, f"Validation {metric}"))
    validation.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (losses, validation):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    validation.legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic(out) as temporary:
        try:
            figure.savefig(temporary, format=out.suffix[1:], dpi=120, metadata=_signature(out.suffix))
        except ValueError as error:
            raise InputError(f"cannot draw '{out.suffix}'", file=out, remedy="use .png, .svg or .pdf") from error
    return len(runs)


def _signature(suffix: str) -> dict[str, str]:
    """By which a later run knows the picture as ours."""
    return {"Software" if suffix.lower() == ".png" else "Creator": SIGNATURE}


def _losses(axes: Axes, label: str, values: np.ndarray) -> None:
    width = max(1, round(SMOOTH * len(values)))
    means = np.convolve(values, np.ones(width) / width, "valid")
    axes.plot((np.arange(len(means)) + width) / len(values), means / means[0], label=label, linewidth=1.2)


def _column(path: Path, name: str) -> np.ndarray:
    """float64 [rows] of a CSV file. InputError when it is not there or lacks the column."""
    if not path.is_file():
        raise InputError("no such file", file=path, remedy="give folders of capgrade train")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or name not in rows[0]:
        known = ", ".join(rows[0]) if rows else "nothing"
        raise InputError(f"no column '{name}'", file=path, remedy=f"it has {known}")
    return np.array([float(row[name]) for row in rows])
