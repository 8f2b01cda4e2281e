"""The picture of a dataset card: how each measure is distributed on own and on other pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, read_manifest


def draw_distributions(relevance_dir: Path, captions_digest: str, out: Path) -> None:
    """Draw the distributions that `capgrade relevance` counted as PNG, a panel a measure; the same bytes each time.

    Raises InputError when the relevance was made from other captions, or has no distributions.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counted = _distributions(relevance_dir, captions_digest)
    figure = Figure(figsize=(4 * len(counted), 3), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (measure, (low, high, own, other)) in zip(
        figure.subplots(1, len(counted), squeeze=False)[0], counted.items(), strict=True
    ):
        edges = np.append(low, high[-1])
        axes.stairs(own, edges, label="own captions")
        axes.stairs(other, edges, label="other captions")
        axes.set(title=measure, ylabel="share of pairs", yscale="log")
    figure.axes[0].legend(frameon=False)
    with atomic(out) as temporary:
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})  # no version, the same bytes


def _distributions(folder: Path, captions_digest: str) -> dict[str, np.ndarray]:
    """float64 [4, bins] a measure: low, high, and the shares of own and of other pairs."""
    manifest = read_manifest(folder, "relevance")
    if manifest["inputs"].get("captions") != captions_digest:
        remedy = "make it for these captions: capgrade relevance"
        raise InputError("made from another captions table", file=folder, remedy=remedy)
    names = [name for name in manifest["files"] if name.startswith("distribution-")]
    if not names:
        raise InputError("has no distributions", file=folder, remedy="run `capgrade relevance` again")
    read = {name: np.loadtxt(folder / name, delimiter=",", skiprows=1).T for name in names}
    return {name.removeprefix("distribution-").removesuffix(".csv"): table for name, table in read.items()}
