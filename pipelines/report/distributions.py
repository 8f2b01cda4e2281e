"""Section: how each measure is distributed on pairs that belong together and on all others."""

from __future__ import annotations

import altair as alt
import numpy as np

from pipelines.report.charts import made, rows
from pipelines.report.data import RELEVANCE, Data, columns
from pipelines.report.parts import Chart, Missing, Part, Section, Table, number, text

INTRO = (
    "Own pairs are an image and a caption written for it; other pairs are all the rest. The more the two overlap, the "
    "more other captions fit an image too, and the less a benchmark may call them wrong."
)


def distributions(data: Data) -> Section:
    """A chart a measure, and how well the measure alone tells own pairs from others."""
    if not data.graded:
        command = data.command("relevance", "--captions {captions} --out {relevance}")
        parts: list[Part] = [Missing("the dense relevance of an evaluation split", command)]
        return Section("distributions", "Distributions", INTRO, parts)
    names = data.relevance_manifest["params"]["measures"]
    tables = {name: columns(data.at(RELEVANCE, f"distribution-{name}.csv")) for name in names}
    lines = [[text(name), *map(number, _summary(table))] for name, table in tables.items()]
    heads = ("measure", "median, own", "median, other", "99th percentile, other", "own above other")
    title = "From the histograms; “own above other” is the chance that an own pair has the higher value (0.5: none)"
    parts = [Table(title, heads, lines), *(_chart(name, table) for name, table in tables.items())]
    return Section("distributions", "Distributions", INTRO, parts)


def _summary(table: dict[str, np.ndarray]) -> tuple[float, float, float, float]:
    own, other = table["own"], table["other"]
    below = np.cumsum(other) - other / 2  # within a bin, half are below
    return (
        _quantile(table, "own", 0.5),
        _quantile(table, "other", 0.5),
        _quantile(table, "other", 0.99),
        float(own @ below),
    )


def _quantile(table: dict[str, np.ndarray], of: str, share: float) -> float:
    """The middle of the bin that the quantile falls into."""
    k = min(int(np.searchsorted(np.cumsum(table[of]), share)), len(table[of]) - 1)
    return float(table["low"][k] + table["high"][k]) / 2


def _chart(name: str, table: dict[str, np.ndarray]) -> Chart:
    middle = (table["low"] + table["high"]) / 2
    values = [
        {"at": float(at), "pairs": pairs, "share": float(share)}
        for pairs in ("own", "other")
        for at, share in zip(middle, table[pairs], strict=True)
    ]
    chart = alt.Chart(rows(values)).mark_area(interpolate="step", fillOpacity=0.35, line=True).encode(
        alt.X("at:Q", title=name),
        alt.Y("share:Q", title="share of the pairs", stack=None, axis=alt.Axis(format="%")),
        alt.Color("pairs:N", title="pairs", sort=["own", "other"]),
        tooltip=[alt.Tooltip("at:Q", title=name), "pairs:N", alt.Tooltip("share:Q", format=".3%")],
    )  # fmt: skip
    own, other = _quantile(table, "own", 0.5), _quantile(table, "other", 0.5)
    told = f"Histogram of {name} on own and on other pairs: medians {own:.2f} and {other:.2f}."
    return made(f"distribution-{name}", f"{name} on own and on other pairs", told, chart)
