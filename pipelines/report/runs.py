"""Sections: runs side by side, with intervals, the best in bold; and recall, NCS and NDCG against K."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from capgrade.pipelines.report.charts import by_run, choice, made, rows
from capgrade.pipelines.report.data import EVALUATION, ReportData
from capgrade.pipelines.report.metric_names import axis, glossary, interval, said
from capgrade.pipelines.report.parts import Cell, Chart, Missing, PageSection, PageTable, Part, percent, text
from capgrade.schemas.files import read_json
from capgrade.trainer.evaluation.tables import SUMS, first_measure, scale, smaller_is_better

WAYS = {"i2t": "image to text", "t2i": "text to image"}
SUMMARY = ("recall@1", "ncs@10", "ndcg@25", "asp", "kendall_tau_b")
INTRO = (
    "Each run on the evaluation split, and below each value its 95% interval over images. i2t finds captions for an "
    "image, t2i images for a caption. rsum and nsum go from 0 to 600."
)
GRADED = " Graded metrics without a measure in brackets are by {}."
OPTIONS = "--captions {captions} --similarity FILE --relevance {relevance} --out {evaluation/RUN}"  # of `evaluate`
Runs = dict[str, dict[str, Any]]


def runs(data: ReportData) -> PageSection:
    """A short table, a chart of any metric with its intervals, and the table of all metrics."""
    found: Runs = {
        name: read_json(at / "metrics.json") for name, at in data.folders(EVALUATION, "metrics.json").items()
    }
    command = data.command("evaluate", OPTIONS)
    others = data.left_out(EVALUATION, "metrics.json", "evaluated", command)
    if not found:
        return PageSection("runs", "Runs side by side", INTRO, others or [Missing("evaluated runs", command)])
    named = [("", name) for name in SUMS] + [(way, name) for name in SUMMARY for way in WAYS]
    short = _by_run(found, [column for column in named if all(_has(run, *column) for run in found.values())])
    names = {name for run in found.values() for part in (run, *(run.get(way, {}) for way in WAYS)) for name in part}
    parts: list[Part] = [short, *others, glossary(names), _chart(found, data.runs), _by_metric(found)]
    measures = dict.fromkeys(measure for run in found.values() if (measure := first_measure(run)))
    graded = GRADED.format(" and ".join(measures)) if measures else ""
    return PageSection("runs", "Runs side by side", INTRO + graded, parts)


def _has(run: dict[str, Any], way: str, name: str) -> bool:
    return name in (run.get(way, {}) if way else run)


def _value(run: dict[str, Any], way: str, name: str) -> float:
    value = (run[way] if way else run).get(name)
    return math.nan if value is None else float(value)


def _interval(run: dict[str, Any], way: str, name: str) -> list[float] | None:
    return (run["intervals"].get(way, {}) if way else run["intervals"]).get(name)


def _cells(found: Runs, way: str, name: str) -> list[Cell]:
    """A metric of every run; what prints the same as the best is equally good."""
    values = [_value(run, way, name) for run in found.values()]
    known = [value for value in values if not math.isnan(value)]
    best = said(name, (min if smaller_is_better(name) else max)(known)) if known else None
    cells = []
    for run, value in zip(found.values(), values, strict=True):
        text, at = said(name, value), -math.inf if math.isnan(value) else value
        best_too = len(known) > 1 and text == best
        cells.append(Cell(text, at, best_too, note=interval(name, _interval(run, way, name))))
    return cells


def _by_run(found: Runs, columns: Sequence[tuple[str, str]]) -> PageTable:
    across = [_cells(found, *column) for column in columns]
    lines = [[text(label), *(cells[k] for cells in across)] for k, label in enumerate(found)]
    heads = ("run", *(f"{way} {name}".strip() for way, name in columns))
    return PageTable("Runs, the best in bold", heads, lines)


def _by_metric(found: Runs) -> PageTable:
    every = {("", name) for run in found.values() for name in SUMS if name in run}
    every |= {(way, name) for run in found.values() for way in WAYS for name in run.get(way, {})}
    lines = [[text(f"{way} {name}".strip()), *_cells(found, way, name)] for way, name in sorted(every)]
    return PageTable("All metrics of all runs", ("metric", *found), lines, folded=True)


def _chart(found: Runs, order: Sequence[str]) -> Chart:
    names = list(dict.fromkeys(name for run in found.values() for way in WAYS for name in run.get(way, {})))
    names = [*(name for name in SUMMARY if name in names), *sorted(set(names) - set(SUMMARY))]  # the first is chosen
    values = []
    for label, run in found.items():
        for way, direction in WAYS.items():
            for name in names:
                value, between = _value(run, way, name), _interval(run, way, name)
                if not math.isnan(value):
                    low, high = between or (value, value)
                    numbers = {"value": scale(name) * value, "low": scale(name) * low, "high": scale(name) * high}
                    texts = {"said": said(name, value), "interval": interval(name, between)}
                    values.append({"run": label, "direction": direction, "metric": name, **numbers, **texts})
    chart, colour = by_run(alt.Chart(rows(values)), order)
    colour["legend"] = None  # the axis names the runs
    metric = choice("metric", "metric", names)
    chart = chart.add_params(metric).transform_filter("datum.metric === metric")
    y = alt.Y("run:N", title=None, axis=alt.Axis(labelLimit=140))
    offset = alt.YOffset("direction:N")
    x = alt.X("value:Q", title=None, scale=alt.Scale(zero=False), axis=axis("metric", names))
    told = ["run:N", "direction:N", "metric:N", alt.Tooltip("said:N", title="value"), "interval:N"]
    bars = chart.mark_rule(strokeWidth=3, opacity=0.5).encode(
        alt.X("low:Q", title=None, axis=axis("metric", names)), alt.X2("high:Q"), y, offset, colour
    )
    dots = chart.mark_point(size=70, filled=True, opacity=1).encode(
        x, y, offset, colour, alt.Shape("direction:N", title=None), tooltip=told
    )
    alt_text = (
        f"Value and 95% interval of a metric for {', '.join(found)}, in both directions, in the units of the tables."
    )
    return made("runs", "Any metric with its interval", alt_text, alt.layer(bars, dots), wide=True)


CURVES = "curves_k.json"
STROKES = {"i2t": [1, 0], "t2i": [4, 3]}  # solid and dashed, as CURVES_INTRO says
CURVE_TITLES = {"recall": "Recall of any own item", "ncs": "NCS: relevance found of what could be", "ndcg": "NDCG"}
CURVES_INTRO = (
    "The same runs at other depths: a metric may rank runs differently at another K. Solid lines find captions for an "
    "image (i2t), dashed lines images for a caption (t2i)."
)


def curves(data: ReportData) -> PageSection:
    """One chart per metric; a line is solid from image to text and dashed from text to image."""
    found = {name: read_json(folder / CURVES) for name, folder in data.folders(EVALUATION, CURVES).items()}
    points = [{"run": name, **row} for name, rows_of in found.items() for row in rows_of]
    parts: list[Part] = [_curve(name, points, data.runs) for name in CURVE_TITLES if any(name in row for row in points)]
    command = data.command("evaluate", OPTIONS)
    others = data.left_out(EVALUATION, CURVES, "evaluated", command)
    if not parts and not others:
        parts = [Missing("curves of evaluated runs", command)]
    return PageSection("curves", "Curves against K", CURVES_INTRO, [*parts, *others])


def _curve(name: str, points: list[dict[str, Any]], runs: list[str]) -> Chart:
    keys = ("run", "direction", "k", name)
    chart, colour = by_run(alt.Chart(rows({key: row[key] for key in keys} for row in points if name in row)), runs)
    chart = chart.mark_line(point=alt.OverlayMarkDef(size=22)).encode(
        alt.X("k:Q", title="K", scale=alt.Scale(type="log"), axis=alt.Axis(values=[1, 2, 3, 5, 10, 20, 50])),
        alt.Y(f"{name}:Q", title=name, scale=alt.Scale(zero=False), axis=alt.Axis(format="%")),
        colour,
        alt.StrokeDash("direction:N", legend=None, scale=alt.Scale(domain=list(STROKES), range=list(STROKES.values()))),
        tooltip=["run:N", "direction:N", "k:Q", alt.Tooltip(f"{name}:Q", format=".1%")],
    )
    return made(f"against-k-{name}", CURVE_TITLES[name], _curve_in_words(name, points), chart)


def _curve_in_words(name: str, points: list[dict[str, Any]]) -> str:
    at = [row for row in points if row["k"] == 10 and name in row]
    said = ", ".join(f"{row['run']} {row['direction']} {percent(row[name])}" for row in at)
    return f"{name} against K, one line per run and direction{'; at 10: ' + said if said else ''}."
