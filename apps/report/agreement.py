"""Section: do the measures agree with people? Scatter, means of bins with intervals, and the table
of coefficients."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.apps.page.charts import MEAN, channel, inline_data, make_chart, make_layer
from capgrade.apps.page.parts import (
    Chart,
    Note,
    PageSection,
    PageTable,
    Part,
    Value,
    as_cell,
    mark_best,
)
from capgrade.apps.report.data import AGREEMENT, CAPTIONS_KIND, JUDGED_PAIRS, ReportData
from capgrade.pipelines.stages.agree import AGREE
from capgrade.schemas.arrow import metadata_of, read_arrow
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.judges import ONE_PERSON, PEOPLE, SAID, TITLES, TRUTH, VALUES

DOTS = 600  # pairs drawn in a scatter, spread evenly over the judgements
BINS = 12  # of equal width
_MIN_PAIRS = 20  # in a bin whose mean is drawn
_KINDS = {"own": "circle", "other": "triangle-up"}
# Who judged -> the title of their axis, and how a chart's title names their judgements.
_SCALE = {
    PEOPLE: ("judgement", "the judgements"),
    TRUTH: ("true relevance", "the truth"),
    VALUES: ("value of the other matrix", "the other matrix"),
}
WHO = {PEOPLE: "people", TRUTH: "the truth of the scenes", VALUES: "the other matrix"}
SCOPES = {"all": "all judged pairs", "non_original": "other captions"}
_COEFFICIENTS = ("pearson", "spearman", "kendall")
_INTRO = (
    "Judged pairs of {of}. The line is the mean of the pairs in a bin, with 95% intervals; circles"
    " are own captions, triangles other captions, and the larger a mark, the more pairs lie on it."
    " Binary relevance, which benchmarks use, is 1 for own captions; over other captions it is"
    " constant and has no correlation. Below a coefficient of a measure stands its 95% interval;"
    " the best measure is bold where no other's value lies within it."
)


def agreement_section(data: ReportData) -> PageSection:
    """The table needs the figures of `capgrade agree`; the charts need its judged pairs too."""
    title, judged_by, kind = "Agreement with people", "", None
    scale = _SCALE[PEOPLE]
    parts: list[Part] = []
    if data.agreement:
        facts = data.agreement["judgements"]
        _require_same_captions(facts["captions"], data.captions.digest, data, AGREEMENT)
        title, scale, kind = TITLES[facts["by"]], _SCALE[facts["by"]], facts.get("of")
        judged_by = (
            f" Here: {SAID[facts['by']]} ({facts['file']}, {facts['pairs']:,} pairs of split"
            f" {facts['split']})."
        )
        if sentence := best_measure_sentence(data):
            parts.append(Note(sentence))
        parts.append(_table(data.agreement["measures"]))
    if data.has(JUDGED_PAIRS):
        table = read_arrow(data.path(JUDGED_PAIRS))
        metadata = metadata_of(table.schema)
        captions = read_captions(data.path(CAPTIONS_KIND), metadata["split"])
        _require_same_captions(metadata["captions"], captions.digest, data, JUDGED_PAIRS)
        parts += [_chart(name, scale, table, captions) for name in metadata["measures"]]
    elif data.agreement and not kind:  # `agree` writes no table of pairs of one kind.
        data.add_missing("the judged pairs one by one", AGREE.name)
    return PageSection(
        "agreement", title, _INTRO.format(of=kind or "image and caption") + judged_by, parts
    )


def best_measure_sentence(data: ReportData) -> str:
    """Which measure agrees best over other captions, where binary relevance has no correlation;
    empty without judgements of those."""
    if not data.agreement:
        return ""
    judgements, measures = data.agreement["judgements"], data.agreement["measures"]
    r_by_measure = {
        name: r
        for name, row in measures.items()
        if (r := row["pearson"].get("non_original")) is not None
    }
    person = r_by_measure.pop(ONE_PERSON, None)
    if not r_by_measure:
        return ""
    beside = "" if person is None else f" One person has {person:.3f} with the others."
    best = max(r_by_measure, key=r_by_measure.__getitem__)
    return (
        f"Of the {len(r_by_measure)} measures, {best} agrees best with {WHO[judgements['by']]}"
        f" ({judgements['pairs']:,} pairs): Pearson's r is {r_by_measure[best]:.3f} over other"
        f" captions, where binary relevance has none.{beside}"
    )


def _table(measures: dict[str, Any]) -> PageTable:
    keys = [(coefficient, scope) for scope in SCOPES for coefficient in _COEFFICIENTS]

    def column_of(
        rows: Iterable[dict[str, Any]], missing: Any, coefficient: str, scope: str
    ) -> list[Any]:
        return [row.get(coefficient, {}).get(scope, missing) for row in rows]

    intervals = [row.get("intervals", {}) for row in measures.values()]
    columns = [
        mark_best(
            column_of(measures.values(), math.nan, *key),
            column_of(intervals, None, *key),
            lambda v: as_cell(v).text,
        )
        for key in keys
    ]
    lines: list[list[Value]] = [[name, *row] for name, *row in zip(measures, *columns, strict=True)]
    title = "Correlation of each measure with the judgements"
    groups = [(scope_title, len(_COEFFICIENTS)) for scope_title in SCOPES.values()]
    return PageTable(title, ("measure", *(c for c, _ in keys)), lines, groups=groups)


def _require_same_captions(judged: str, captions: str, data: ReportData, file: str) -> None:
    if judged != captions:
        raise InputError(
            "judged pairs of other captions",
            file=data.path(file),
            remedy="run capgrade agree again",
        )


def _chart(name: str, scale: tuple[str, str], table: pa.Table, captions: Captions) -> Chart:
    value, score = table[name].to_numpy(), table["score"].to_numpy()
    means = mean_by_bin(value, score)
    kinds = {"domain": list(_KINDS)}
    dots = make_layer(
        "point",
        channel("value:Q", title=name),
        channel("score:Q", title=scale[0]),
        color=channel("pair:N", title=None, scale=kinds),
        shape=channel("pair:N", title=None, scale={**kinds, "range": list(_KINDS.values())}),
        size=channel("pairs:Q", legend=None, scale={"domain": [1, DOTS // 2], "range": [20, 600]}),
        tip=["caption:N", "judged:N", "pair:N", "value:Q", "score:Q", "pairs:Q"],
        mark_options={"filled": True, "opacity": 0.5, "aria": False},
    )
    x, mean = channel("at:Q"), channel("mean:Q")
    tip = ["at:Q", "mean:Q", "low:Q", "high:Q", "pairs:Q"]
    mean_layers = [
        make_layer("line", x, mean, mark_options={"strokeWidth": 2, "aria": False, "style": MEAN}),
        make_layer(
            "rule", x, channel("low:Q"), y2={"field": "high"}, mark_options={"strokeWidth": 2}
        ),
        make_layer(
            "square", x, mean, tip=tip, mark_options={"size": 46, "opacity": 1, "style": MEAN}
        ),
    ]
    trend = "too few pairs for means."
    if means:
        first, last = means[0], means[-1]
        trend = f"the mean score goes from {first['mean']:.2f} at {first['at']:.2f} to "
        trend += f"{last['mean']:.2f} at {last['at']:.2f}."
    alt = f"{scale[0].capitalize()} against {name} for {len(score):,} pairs; {trend}"
    layers = [dots, *({**mean_layer, "data": inline_data(means)} for mean_layer in mean_layers)]
    return make_chart(
        f"agreement-{name}", f"{name} and {scale[1]}", alt, _points(name, table, captions), *layers
    )


def _points(name: str, table: pa.Table, captions: Captions) -> list[dict[str, Any]]:
    """Rows of a scatter of at most DOTS pairs: half of them own where there are enough, so that
    these few are seen, and last, so that they are drawn on top. Pairs on the same place are one
    dot."""
    own = table["original"].to_numpy(zero_copy_only=False)
    drawn = [
        candidates[:: -(-len(candidates) // (DOTS // 2)) or 1]
        for candidates in (np.flatnonzero(~own), np.flatnonzero(own))
    ]
    first_captions = captions.refs[captions.ref_ptr[:-1]]
    dots: dict[tuple[bool, float, float], dict[str, Any]] = {}
    for row in table.take(np.concatenate(drawn)).to_pylist():
        key = (row["original"], round(row[name], 3), round(row["score"], 3))
        texts = {
            "caption": captions.texts[row["caption"]],
            "judged": captions.texts[first_captions[row["image"]]],
        }
        values = {
            "pair": "own" if row["original"] else "other",
            "value": key[1],
            "score": key[2],
            "pairs": 0,
        }
        dots.setdefault(key, {**texts, **values})["pairs"] += 1
    return list(dots.values())


def mean_by_bin(value: np.ndarray, score: np.ndarray) -> list[dict[str, float]]:
    """Mean score and its normal 95% interval in bins of equal width; bins of fewer than _MIN_PAIRS
    pairs are left out."""
    edges = np.linspace(value.min(), value.max(), BINS + 1)
    bin_of = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, BINS - 1)
    means = []
    for inside in (bin_of == k for k in range(BINS)):
        n = int(inside.sum())
        if n >= _MIN_PAIRS:
            mean = float(score[inside].mean())
            half = 1.96 * float(score[inside].std(ddof=1)) / n**0.5
            centre = float(value[inside].mean())
            means.append(
                {"at": centre, "mean": mean, "low": mean - half, "high": mean + half, "pairs": n}
            )
    return means
