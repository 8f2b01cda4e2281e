"""Sections about trained models: metrics with intervals, the best in bold; metrics against K and
after each epoch.

Metrics stand as every page prints them: fractions in percent with their sign, sums, ranks, tau and
cosine as they are.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from capgrade.agreement.correlation import judged_intervals, judged_values
from capgrade.apps.page.charts import channel, colour_of, make_chart, make_layer
from capgrade.apps.page.parts import (
    Cell,
    Chart,
    Note,
    PageSection,
    PageTable,
    Part,
    Value,
    format_metric,
    format_percent,
    mark_best,
)
from capgrade.apps.report.data import EVALUATION, METRICS, RUNS, ReportData, read_columns
from capgrade.metrics.formats import (
    DIRECTION_WORDS,
    JUDGED,
    SUM_NAMES,
    best_of,
    is_judged,
    scale,
    sort_key_of,
)
from capgrade.metrics.uncertainty import format_p
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json
from capgrade.trainer.evaluation.compare import compare
from capgrade.trainer.evaluation.stored import PER_QUERY_FILE
from capgrade.trainer.evaluation.tables import first_measure
from capgrade.trainer.fit import EPOCHS

SHORT_METRICS = ("recall@1", "ncs@10", "ndcg@25", "asp", "kendall_tau_b")
_INTRO = (
    "Each run on the evaluation split, and below each value its 95% interval over images. Image to"
    " text finds captions for an image, text to image finds images for a caption. The best run is"
    " bold where no other run's value lies within its interval."
)
GRADED = " Graded metrics without a measure in brackets are by {}."
Run = dict[str, Any]


def _axis(parameter: str, names: Iterable[str]) -> dict[str, Any]:
    """An axis of the metric that the reader has chosen, with % where `scale` makes percent."""
    fractions = json.dumps([name for name in names if scale(name) == 100])
    return {"labelExpr": f"indexof({fractions}, {parameter}) < 0 ? datum.label : datum.label + '%'"}


# docs/metrics.md has the formulas.
_MEANINGS = {
    "recall@k": (
        "Share of queries with one of their own items among the first k. Binary: nothing else"
        " counts."
    ),
    "rsum": "Sum of recall@1, @5 and @10 of both directions, in percent: 0 to 600.",
    "ncs@k": (
        "Normalised cumulative semantic score: relevance among the first k over the most that k can"
        " have."
    ),
    "nsum": (
        "Sum of ncs@1, @5 and @10 of both directions, in percent: 0 to 600. The graded counterpart"
        " of rsum."
    ),
    "ndcg@k": "Like ncs, but an item counts less the later it comes.",
    "asp": (
        "Average semantic precision: how near ranks by similarity are to ranks by relevance. Chance"
        " is not 0."
    ),
    "kendall_tau_b": (
        "Rank correlation of similarity and relevance: 1 for the same order, 0 for none."
    ),
    JUDGED: (
        "Kendall's tau-b of similarity and people's scores, over judged pairs of a caption and"
        " another image than its own. These are few of all pairs, and somebody chose them."
    ),
}


def _read_metrics(data: ReportData) -> dict[str, Run]:
    return {
        name: read_json(at / METRICS)
        for name, at in data.find_folders(EVALUATION, METRICS, "evaluated runs").items()
    }


def _value(run: Run, direction: str, name: str) -> float:
    if is_judged(name):
        return judged_values(run.get("judgements", {})).get(name, math.nan)
    value = (run.get(direction, {}) if direction else run).get(name)
    return math.nan if value is None else float(value)


def _interval(run: Run, direction: str, name: str) -> Sequence[float] | None:
    if is_judged(name):
        return judged_intervals(run.get("judgements", {})).get(name)
    return (run["intervals"].get(direction, {}) if direction else run["intervals"]).get(name)


def runs_section(data: ReportData) -> PageSection:
    """A short table, a chart of any metric with its intervals, and the table of all metrics."""
    runs = _read_metrics(data)
    parts: list[Part] = []
    if runs:
        reported = {
            name
            for run in runs.values()
            for direction in DIRECTION_WORDS
            for name in run.get(direction, {})
        }
        names = [
            *(name for name in SHORT_METRICS if name in reported),
            *sorted(reported - set(SHORT_METRICS), key=sort_key_of),
        ]
        columns = [("", name) for name in SUM_NAMES if any(name in run for run in runs.values())]
        judged = [judged_values(run.get("judgements", {})) for run in runs.values()]
        columns += [("", name) for name in sorted({name for names in judged for name in names})]
        columns += [(direction, name) for direction in DIRECTION_WORDS for name in names]
        short = [
            (direction, name)
            for direction, name in columns
            if (name in (*SUM_NAMES, *SHORT_METRICS) or is_judged(name))
            and all(not math.isnan(_value(run, direction, name)) for run in runs.values())
        ]
        n_columns = Counter(direction for direction, _ in short)
        groups = [
            (DIRECTION_WORDS.get(direction, ""), n_columns[direction])
            for direction in ("", *DIRECTION_WORDS)
            if n_columns[direction]
        ]
        lines: list[list[Value]] = [
            [label, *row]
            for label, *row in zip(runs, *(_cells(runs, *column) for column in short), strict=True)
        ]
        parts = [PageTable("Runs", ("run", *(name for _, name in short)), lines, groups=groups)]
        if len(runs) > 1:
            parts.append(Note(first_run_sentence(data)))
        ordered = sorted(columns, key=lambda column: (column[0], sort_key_of(column[1])))
        all_lines: list[list[Value]] = [
            [f"{direction} {name}".strip(), *_cells(runs, direction, name)]
            for direction, name in ordered
        ]
        # A metric is explained by its base: ncs@10[sbert] by ncs@k.
        bases = {name.split("[")[0].split("@")[0] for _, name in columns}
        terms = [
            (term, meaning) for term, meaning in _MEANINGS.items() if term.split("@")[0] in bases
        ]
        parts += [_chart(runs, data.runs, names)]
        parts += [PageTable("What the names mean", ("metric", "meaning"), terms, folded=True)]
        parts += [PageTable("All metrics of all runs", ("metric", *runs), all_lines, folded=True)]
    measures = dict.fromkeys(measure for run in runs.values() if (measure := first_measure(run)))
    graded = GRADED.format(" and ".join(measures)) if measures else ""
    return PageSection("runs", "Runs side by side", _INTRO + graded, parts)


def _cells(runs: dict[str, Run], direction: str, name: str) -> list[Cell]:
    values = [_value(run, direction, name) for run in runs.values()]
    intervals = [_interval(run, direction, name) for run in runs.values()]
    return mark_best(values, intervals, partial(format_metric, name), best_of(name))


def _chart(runs: dict[str, Run], order: Sequence[str], names: Sequence[str]) -> Chart:
    values: list[dict[str, Any]] = []
    for label, run in runs.items():
        for direction_key, direction in DIRECTION_WORDS.items():
            for name in names:
                value = _value(run, direction_key, name)
                interval = _interval(run, direction_key, name)
                if not math.isnan(value):
                    low, high = interval or (value, value)
                    of_run = {"run": label, "direction": direction, "metric": name}
                    scaled = {
                        "value": scale(name) * value,
                        "low": scale(name) * low,
                        "high": scale(name) * high,
                    }
                    cell = mark_best([value], [interval], partial(format_metric, name))[0]
                    texts = {"said": cell.text, "interval": cell.note}
                    values.append(of_run | scaled | texts)
    axis = _axis("metric", names)
    y, offset = channel("run:N", title=None, axis=None), channel("direction:N")
    colour = colour_of(order, runs)
    x = channel("value:Q", title=None, scale={"zero": False}, axis=axis)
    tip: list[Any] = [
        "run:N",
        "direction:N",
        "metric:N",
        channel("said:N", title="value"),
        "interval:N",
    ]
    bars = make_layer(
        "rule",
        channel("low:Q", title=None, axis=axis),
        y,
        x2={"field": "high"},
        yOffset=offset,
        color=colour,
        mark_options={"strokeWidth": 3, "opacity": 0.5},
    )
    dots = make_layer(
        "point",
        x,
        y,
        yOffset=offset,
        color=colour,
        shape=channel("direction:N", title=None),
        tip=tip,
        mark_options={"size": 70, "filled": True, "opacity": 1},
    )
    alt = (
        f"Value and 95% interval of a metric for {', '.join(runs)}, in both directions, in the"
        " units of the tables."
    )
    title = "Any metric with its interval"
    return make_chart(
        "runs", title, alt, values, bars, dots, wide=True, by_run=True, choose=("metric", names)
    )


LEVEL = 0.05  # significance level of the test of a lead
# The first of these that all runs have is the graded metric of the sentence.
GRADED_METRICS = ("nsum", "ndcg@25", "ncs@10")


def first_run_sentence(data: ReportData) -> str:
    """Whether binary and graded metrics put the same run first; empty for fewer than two runs."""
    runs = _read_metrics(data)

    def means(name: str) -> dict[str, float]:
        """The value of each run; of a metric with two directions their mean."""
        of_both = {
            k: float(np.mean([_value(run, direction, name) for direction in DIRECTION_WORDS]))
            for k, run in runs.items()
        }
        return {k: _value(run, "", name) if name in run else of_both[k] for k, run in runs.items()}

    def shared(names: Sequence[str]) -> str | None:
        return next(
            (name for name in names if not np.isnan(list(means(name).values())).any()), None
        )

    binary, graded = shared(("rsum", "recall@1")), shared(GRADED_METRICS)
    if len(runs) < 2 or binary is None:
        return ""
    of_binary = means(binary)
    binary_first = max(of_binary, key=of_binary.__getitem__)
    value = format_metric(binary, of_binary[binary_first]) + _lead(data, of_binary, binary)
    sentence = f"By {binary} {binary_first} is first of {len(runs)} runs ({value})"
    if graded is None:
        return f"{sentence}; no graded metric is there."
    measures = dict.fromkeys(measure for run in runs.values() if (measure := first_measure(run)))
    if len(measures) > 1:  # Values by different measures cannot be compared.
        return f"{sentence}; their {graded} is by different measures: {', '.join(measures)}."
    of_graded = means(graded)
    graded_first = max(of_graded, key=of_graded.__getitem__)
    same = "and also" if graded_first == binary_first else f"but {graded_first} is"
    by = f" by {next(iter(measures))}" if measures else ""
    value = format_metric(graded, of_graded[graded_first]) + _lead(data, of_graded, graded)
    return f"{sentence}, {same} first by {graded}, which counts graded relevance{by} ({value})."


def _lead(data: ReportData, means: dict[str, float], name: str) -> str:
    """What paired tests say of the first run's lead on the second: one test of a sum, else one per
    direction. "not tested" where a run has no values by query, or they are by other labels."""
    first, following = sorted(means, key=means.__getitem__, reverse=True)[:2]
    folders = data.find_folders(EVALUATION, PER_QUERY_FILE)
    if not {first, following} <= folders.keys():
        return "; not tested"
    try:
        comparison = compare({first: folders[first], following: folders[following]}, [name])
    except InputError:  # The two runs were evaluated with different labels.
        return "; not tested"
    tests = [test for test in comparison.values() if test is not None]
    if not tests:
        return "; not tested"
    worst = max(tests, key=lambda test: test.p_value)
    ahead = worst.p_value < LEVEL and all(test.difference > 0 for test in tests)
    lead = f"ahead of {following}" if ahead else f"its lead on {following} is within chance"
    p = format_p(worst.p_value, worst)
    by = "paired test, p" if len(tests) == 1 else "paired tests of both directions, p"
    at_most = " at most" if len(tests) > 1 and not p.startswith("<") else ""
    return f"; {lead}, {by}{at_most} {p}"


CURVES = "curves_k.json"
STROKES = {
    "symbolType": "stroke",
    "symbolSize": 600,
    "symbolStrokeColor": "#808080",
    "symbolFillColor": "transparent",
}
CURVE_TITLES = {
    "recall": "Recall of any own item",
    "ncs": "NCS: relevance found of what could be",
    "ndcg": "NDCG",
}


def curves_section(data: ReportData) -> PageSection:
    """One chart per metric; a line is solid from image to text and dashed from text to image."""
    folders = data.find_folders(EVALUATION, CURVES, "curves of evaluated runs")
    points = [
        {"run": name, **row}
        for name, folder in folders.items()
        for row in read_json(folder / CURVES)
    ]
    parts = [
        _curve(name, points, data.runs)
        for name in CURVE_TITLES
        if any(name in row for row in points)
    ]
    intro = "The same runs at other depths: a metric may rank runs differently at another K."
    return PageSection("curves", "Curves against K", intro, parts)


def _curve(name: str, points: list[dict[str, Any]], runs: list[str]) -> Chart:
    shown = [row for row in points if name in row]
    values = [
        {"direction": DIRECTION_WORDS[row["direction"]], **{k: row[k] for k in ("run", "k", name)}}
        for row in shown
    ]
    dashes = {"domain": list(DIRECTION_WORDS.values()), "range": [[1, 0], [4, 3]]}
    stroke = channel("direction:N", title=None, scale=dashes, legend=STROKES)
    colour = colour_of(runs, (row["run"] for row in shown))
    line = make_layer(
        "line",
        channel("k:Q", title="K", scale={"type": "log"}, axis={"values": [1, 2, 3, 5, 10, 20, 50]}),
        channel(f"{name}:Q", title=name, scale={"zero": False}, axis={"format": "%"}),
        color=colour,
        strokeDash=stroke,
        tip=["run:N", "direction:N", "k:Q", f"{name}:Q:.1%"],
        mark_options={"point": {"size": 22}},
    )
    at = ", ".join(
        f"{row['run']} {row['direction']} {format_percent(row[name])}"
        for row in shown
        if row["k"] == 10
    )
    alt = f"{name} against K, one line per run and direction{'; at 10: ' + at if at else ''}."
    return make_chart(f"against-k-{name}", CURVE_TITLES[name], alt, values, line, by_run=True)


NO_VALIDATION = ("epoch", "loss")
_ACTIVE = "active_"  # shares of hinges in training
VALIDATION = (
    "Validation is measured after every epoch. Runs of other lengths end at the same place."
    " capgrade train keeps its losses in steps.csv."
)


def training_section(data: ReportData) -> PageSection:
    """A chart of any validated metric, against the share of the run's steps."""
    folders = data.find_folders(RUNS, EPOCHS, "trained runs")
    epochs = {name: read_columns(folder / EPOCHS) for name, folder in folders.items()}
    parts = [_validation(epochs, data.runs)] if epochs else []
    return PageSection("training", "Training", VALIDATION, parts)


def _validation(epochs: dict[str, dict[str, np.ndarray]], runs: list[str]) -> Chart:
    columns_of_all = dict.fromkeys(name for table in epochs.values() for name in table)
    names = [
        name
        for name in columns_of_all
        if name not in NO_VALIDATION and not name.startswith(_ACTIVE)
    ] or ["-"]
    values = [
        {
            "run": run,
            "epoch": int(epoch),
            "done": epoch / table["epoch"].max(),
            "metric": name,
            "value": scale(name) * value,
            "said": format_metric(name, value),
        }
        for run, table in epochs.items()
        for name in names
        if name in table
        for epoch, value in zip(table["epoch"].tolist(), table[name].tolist(), strict=True)
    ]
    x = channel(
        "done:Q", title="share of the steps", axis={"format": "%"}, scale={"domain": [0, 1]}
    )
    line = make_layer(
        "line",
        x,
        channel(
            "value:Q", title="validation", scale={"zero": False}, axis=_axis("validated", names)
        ),
        color=colour_of(runs, epochs),
        tip=["run:N", "epoch:Q", "metric:N", channel("said:N", title="value")],
        mark_options={"point": True},
    )
    last = {run: table[names[0]][-1] for run, table in epochs.items() if names[0] in table}
    ends = ", ".join(f"{run} {format_metric(names[0], value)}" for run, value in last.items())
    alt = f"Validation after each epoch; {names[0]} at the end: {ends}."
    choose = ("validated", names)
    return make_chart(
        "training-validation", "Validation", alt, values, line, by_run=True, choose=choose
    )
