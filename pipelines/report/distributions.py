"""Section: how each measure is distributed on pairs that belong together and on all others."""

from __future__ import annotations

import math

import altair as alt
import numpy as np

from capgrade.pipelines.measures.own_pairs import LEFT_OUT
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import RELEVANCE, ReportData, columns
from capgrade.pipelines.report.own_above import OwnAndOther
from capgrade.pipelines.report.parts import (
    Cell,
    Chart,
    Missing,
    Note,
    PageSection,
    PageTable,
    Part,
    number,
    percent,
    text,
)

INTRO = (
    "Own pairs are an image and a caption written for it; other pairs are all the rest. The more the two overlap, the "
    "more other captions fit an image too, and the less a benchmark may call them wrong. An own pair's caption is one "
    "of the image's references: in the papers' form it is also compared with itself, so its value is the largest or "
    "near it. Left out, it is compared only with the image's other captions: that tells own pairs from others."
)
ALONE = "own, itself left out"
TITLE = "Own pairs and other pairs by each measure"
MEANING = (
    "The last three columns look at each caption, which is left out of its image's references (not for an imported "
    "matrix). “Own above other” is the share of other images that are less relevant to it than its own image: ties "
    "count half, 50% is chance. The next column counts the captions with another image that is as relevant as their "
    "own or more. The last one is the median number of such images, over these captions."
)
HEADS = (
    "measure", "median, own", "median, own left out", "median, other", "99th percentile, other", "own above other",
    "captions with another image as relevant", "such images",
)  # fmt: skip


def distributions(data: ReportData) -> PageSection:
    """One chart per measure, and how well the measure alone tells own pairs from others."""
    if not data.graded:
        command = data.command("relevance", "--captions {captions} --out {relevance}")
        parts: list[Part] = [Missing("the dense relevance of an evaluation split", command)]
        return PageSection("distributions", "Distributions", INTRO, parts)
    names = data.relevance_manifest["params"]["measures"]
    tables = {name: columns(data.at(RELEVANCE, f"distribution-{name}.csv")) for name in names}
    lines = [_line(name, found) for name, found in data.own_and_other.items()]
    charts = [_chart(name, table, data) for name, table in tables.items()]
    return PageSection(
        "distributions", "Distributions", INTRO, [PageTable(TITLE, HEADS, lines), Note(MEANING), *charts]
    )


def _line(name: str, found: OwnAndOther) -> list[Cell]:
    values = (found.own, found.left_out, found.median, found.percentile_99)
    return [text(name), *map(number, values), _share(found.above), _share(found.equalled), number(found.images, 0)]


def _share(share: float) -> Cell:
    return number(share) if math.isnan(share) else Cell(percent(share), share)


def _chart(name: str, table: dict[str, np.ndarray], data: ReportData) -> Chart:
    middle = (table["low"] + table["high"]) / 2
    shares = {"own": table["own"], "other": table["other"]}
    alone = data.own_pairs.get(name + LEFT_OUT, np.array([]))
    if len(alone := alone[np.isfinite(alone)]):
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
    found = data.own_and_other[name]
    told = f"Histogram of {name} on own and on other pairs: medians {found.own:.2f} and {found.median:.2f}."
    return made(f"distribution-{name}", f"{name} on own and on other pairs", told, chart)
