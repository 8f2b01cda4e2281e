"""Section: recall, NCS and NDCG against K."""

from __future__ import annotations

from typing import Any

import altair as alt

from capgrade.pipelines.report.charts import by_run, made, rows
from capgrade.pipelines.report.data import EVALUATION, Data
from capgrade.pipelines.report.parts import Chart, Missing, Part, Section, percent
from capgrade.pipelines.report.runs import OPTIONS
from capgrade.schemas.files import read_json

FILE = "curves_k.json"
STROKES = {"i2t": [1, 0], "t2i": [4, 3]}  # solid and dashed, as INTRO says
NAMES = {"recall": "Recall of any own item", "ncs": "NCS: relevance found of what could be", "ndcg": "NDCG"}
INTRO = (
    "The same runs at other depths: a metric may rank runs differently at another K. Solid lines find captions for an "
    "image (i2t), dashed lines images for a caption (t2i)."
)


def curves(data: Data) -> Section:
    """One chart per metric; a line is solid from image to text and dashed from text to image."""
    found = {name: read_json(folder / FILE) for name, folder in data.folders(EVALUATION, FILE).items()}
    points = [{"run": name, **row} for name, rows_of in found.items() for row in rows_of]
    parts: list[Part] = [_chart(name, points, data.runs) for name in NAMES if any(name in row for row in points)]
    command = data.command("evaluate", OPTIONS)
    others = data.left_out(EVALUATION, FILE, "evaluated", command)
    if not parts and not others:
        parts = [Missing("curves of evaluated runs", command)]
    return Section("curves", "Curves against K", INTRO, [*parts, *others])


def _chart(name: str, points: list[dict[str, Any]], runs: list[str]) -> Chart:
    keys = ("run", "direction", "k", name)
    chart, colour = by_run(alt.Chart(rows({key: row[key] for key in keys} for row in points if name in row)), runs)
    chart = chart.mark_line(point=alt.OverlayMarkDef(size=22)).encode(
        alt.X("k:Q", title="K", scale=alt.Scale(type="log"), axis=alt.Axis(values=[1, 2, 3, 5, 10, 20, 50])),
        alt.Y(f"{name}:Q", title=name, scale=alt.Scale(zero=False), axis=alt.Axis(format="%")),
        colour,
        alt.StrokeDash("direction:N", legend=None, scale=alt.Scale(domain=list(STROKES), range=list(STROKES.values()))),
        tooltip=["run:N", "direction:N", "k:Q", alt.Tooltip(f"{name}:Q", format=".1%")],
    )
    return made(f"against-k-{name}", NAMES[name], _told(name, points), chart)


def _told(name: str, points: list[dict[str, Any]]) -> str:
    at = [row for row in points if row["k"] == 10 and name in row]
    said = ", ".join(f"{row['run']} {row['direction']} {percent(row[name])}" for row in at)
    return f"{name} against K, one line per run and direction{'; at 10: ' + said if said else ''}."
