"""Section: how each measure is distributed on pairs that belong together and on all others."""

from __future__ import annotations

import math

import altair as alt
import numpy as np

from capgrade.pipelines.measures.own_pairs import LEFT_OUT
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import RELEVANCE, Data, columns
from capgrade.pipelines.report.parts import Cell, Chart, Missing, Part, Section, Table, number, percent, text

INTRO = (
    "Own pairs are an image and a caption written for it; other pairs are all the rest. The more the two overlap, the "
    "more other captions fit an image too, and the less a benchmark may call them wrong. An own pair's caption is one "
    "of the image's references: in the papers' form it is also compared with itself, so its value is the largest or "
    "near it. Left out, it is compared only with the image's other captions: that tells own pairs from others."
)
ALONE = "own, itself left out"
TITLE = (
    "Own pairs one by one, other pairs from the histograms, even within a bin; “own above other” is the chance that an "
    "own pair, its caption left out of the references, has the higher value (50%: none)"
)
HEADS = (
    "measure", "median, own", "median, own left out", "median, other", "99th percentile, other", "own above other"
)  # fmt: skip


def distributions(data: Data) -> Section:
    """One chart per measure, and how well the measure alone tells own pairs from others."""
    if not data.graded:
        command = data.command("relevance", "--captions {captions} --out {relevance}")
        parts: list[Part] = [Missing("the dense relevance of an evaluation split", command)]
        return Section("distributions", "Distributions", INTRO, parts)
    names = data.relevance_manifest["params"]["measures"]
    tables = {name: columns(data.at(RELEVANCE, f"distribution-{name}.csv")) for name in names}
    lines = [_line(name, *_summary(name, table, data.own_pairs)) for name, table in tables.items()]
    parts = [Table(TITLE, HEADS, lines), *(_chart(name, table, data.own_pairs) for name, table in tables.items())]
    return Section("distributions", "Distributions", INTRO, parts)


def _line(name: str, *values: float) -> list[Cell]:
    return [text(name), *map(number, values[:-1]), Cell(percent(values[-1]), values[-1])]


def _summary(name: str, table: dict[str, np.ndarray], own: dict[str, np.ndarray]) -> tuple[float, ...]:
    """NaN, shown as a dash, where a measure has no value without the caption itself."""
    alone = own.get(name + LEFT_OUT, np.array([]))
    median = float(np.median(alone)) if len(alone) else math.nan
    others = _quantile(table, 0.5), _quantile(table, 0.99)
    return float(np.median(own[name])), median, *others, above(table, alone if len(alone) else own[name])


def above(table: dict[str, np.ndarray], own: np.ndarray) -> float:
    """The chance that an own pair has a higher value than another pair, whose values are even within a bin."""
    edges = np.append(table["low"], table["high"][-1])
    return float(np.interp(own, edges, np.append(0, np.cumsum(table["other"]))).mean())


def _quantile(table: dict[str, np.ndarray], share: float) -> float:
    """Of other pairs, values even within a bin."""
    below = np.append(0, np.cumsum(table["other"]))
    k = min(int(np.searchsorted(below[1:], share)), len(table["other"]) - 1)
    part = (share - below[k]) / table["other"][k] if table["other"][k] else 0.0
    return float(table["low"][k] + part * (table["high"][k] - table["low"][k]))


def _chart(name: str, table: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> Chart:
    middle = (table["low"] + table["high"]) / 2
    shares = {"own": table["own"], "other": table["other"]}
    if len(alone := found.get(name + LEFT_OUT, np.array([]))):
        shares[ALONE] = np.histogram(alone, np.append(table["low"], table["high"][-1]))[0] / len(alone)
    values = [
        {"at": float(at), "pairs": pairs, "share": float(share)}
        for pairs, of in shares.items()
        for at, share in zip(middle, of, strict=True)
    ]
    chart = alt.Chart(rows(values)).mark_area(interpolate="step", fillOpacity=0.35, line=True).encode(
        alt.X("at:Q", title=name),
        alt.Y("share:Q", title="share of the pairs", stack=None, axis=alt.Axis(format="%")),
        alt.Color("pairs:N", title="pairs", sort=["own", "other", ALONE]),
        tooltip=[alt.Tooltip("at:Q", title=name), "pairs:N", alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    own, other = float(np.median(found[name])), _quantile(table, 0.5)
    told = f"Histogram of {name} on own and on other pairs: medians {own:.2f} and {other:.2f}."
    return made(f"distribution-{name}", f"{name} on own and on other pairs", told, chart)
