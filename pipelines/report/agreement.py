"""Section: do the measures agree with people? Scatter, means of bins with intervals, and the table
of coefficients."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.page.charts import MEAN, chart, layer, of, rows
from capgrade.pipelines.page.parts import (
    Chart,
    Note,
    PageSection,
    PageTable,
    Part,
    Value,
    cell,
    with_best,
)
from capgrade.pipelines.report.data import AGREEMENT, CAPTIONS_KIND, JUDGED_PAIRS, ReportData
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import metadata_of, read_arrow
from capgrade.schemas.judges import PEOPLE, SAID, TITLES, TRUTH, VALUES

DOTS = 600  # pairs drawn in a scatter, evenly over the judgements' order
BINS = 12  # of equal width
_FEWEST = 20  # pairs in a bin whose mean is drawn
_KINDS = {"own": "circle", "other": "triangle-up"}
_SCALE = {  # an axis, and who judged
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
    " constant and has no correlation. Below a coefficient stands its 95% interval; the best"
    " measure is bold where no other's value lies within it."
)


def agreement(data: ReportData) -> PageSection:
    """Scatter and bins need the judged pairs that `capgrade agree --pairs` writes; the table needs
    its --out."""
    title, said, kind, scale = "Agreement with people", "", None, _SCALE[PEOPLE]
    parts: list[Part] = []
    if data.agreement:
        facts = data.agreement["judgements"]
        _require_these(facts["captions"], data.captions.digest, data, AGREEMENT)
        title, scale, kind = TITLES[facts["by"]], _SCALE[facts["by"]], facts.get("of")
        said = (
            f" Here: {SAID[facts['by']]} ({facts['file']}, {facts['pairs']:,} pairs of split"
            f" {facts['split']})."
        )
        parts += [*map(Note, best(data)), _table(data.agreement["measures"])]
    if data.has(JUDGED_PAIRS):
        table = read_arrow(data.at(JUDGED_PAIRS))
        of_pairs = metadata_of(table.schema)
        captions = read_captions(data.at(CAPTIONS_KIND), of_pairs["split"])
        _require_these(of_pairs["captions"], captions.digest, data, JUDGED_PAIRS)
        parts += [_chart(name, scale, table, captions) for name in of_pairs["measures"]]
    elif data.agreement and not kind:  # pairs of one kind have no such table
        data.lacks("the judged pairs one by one", AGREEMENT)
    return PageSection(
        "agreement", title, _INTRO.format(of=kind or "image and caption") + said, parts
    )


def best(data: ReportData) -> list[str]:
    """A sentence: which measure agrees best where binary relevance says nothing."""
    if not data.agreement:
        return []
    judged, measures = data.agreement["judgements"], data.agreement["measures"]
    known = {
        name: r
        for name, row in measures.items()
        if (r := row["pearson"].get("non_original")) is not None
    }
    if not known:
        return []
    first = max(known, key=known.__getitem__)
    return [
        f"Of the {len(known)} measures, {first} agrees best with {WHO[judged['by']]}"
        f" ({judged['pairs']:,} pairs): Pearson's r is {known[first]:.3f} over other captions,"
        " where binary relevance has none."
    ]


def _table(measures: dict[str, Any]) -> PageTable:
    keys = [(coefficient, scope) for scope in SCOPES for coefficient in _COEFFICIENTS]

    def of_all(
        rows: Iterable[dict[str, Any]], missing: Any, coefficient: str, scope: str
    ) -> list[Any]:
        return [row.get(coefficient, {}).get(scope, missing) for row in rows]

    intervals = [row.get("intervals", {}) for row in measures.values()]
    columns = [
        with_best(
            of_all(measures.values(), math.nan, *key),
            of_all(intervals, None, *key),
            lambda v: cell(v).text,
        )
        for key in keys
    ]
    lines: list[list[Value]] = [[name, *row] for name, *row in zip(measures, *columns, strict=True)]
    title = "Correlation of each measure with the judgements"
    groups = [(said, len(_COEFFICIENTS)) for said in SCOPES.values()]
    return PageTable(title, ("measure", *(c for c, _ in keys)), lines, groups=groups)


def _require_these(judged: str, captions: str, data: ReportData, file: str) -> None:
    if judged != captions:
        raise InputError(
            "judged pairs of other captions", file=data.at(file), remedy="run capgrade agree again"
        )


def _chart(name: str, scale: tuple[str, str], table: pa.Table, captions: Captions) -> Chart:
    value, score = table[name].to_numpy(), table["score"].to_numpy()
    means = bins(value, score)
    kinds = {"domain": list(_KINDS)}
    dots = layer(
        "point",
        of("value:Q", title=name),
        of("score:Q", title=scale[0]),
        color=of("pair:N", title=None, scale=kinds),
        shape=of("pair:N", title=None, scale={**kinds, "range": list(_KINDS.values())}),
        size=of("pairs:Q", legend=None, scale={"domain": [1, DOTS // 2], "range": [20, 600]}),
        tip=["caption:N", "judged:N", "pair:N", "value:Q", "score:Q", "pairs:Q"],
        of_mark={"filled": True, "opacity": 0.5, "aria": False},
    )
    at, mean = of("at:Q"), of("mean:Q")
    tip = ["at:Q", "mean:Q", "low:Q", "high:Q", "pairs:Q"]
    drawn = [
        layer("line", at, mean, of_mark={"strokeWidth": 2, "aria": False, "style": MEAN}),
        layer("rule", at, of("low:Q"), y2={"field": "high"}, of_mark={"strokeWidth": 2}),
        layer("square", at, mean, tip=tip, of_mark={"size": 46, "opacity": 1, "style": MEAN}),
    ]
    said = "too few pairs for means."
    if means:
        first, last = means[0], means[-1]
        said = f"the mean score goes from {first['mean']:.2f} at {first['at']:.2f} to "
        said += f"{last['mean']:.2f} at {last['at']:.2f}."
    told = f"{scale[0].capitalize()} against {name} for {len(score):,} pairs; {said}"
    layers = [dots, *({**one, "data": rows(means)} for one in drawn)]
    return chart(
        f"agreement-{name}", f"{name} and {scale[1]}", told, _points(name, table, captions), *layers
    )


def _points(name: str, table: pa.Table, captions: Captions) -> list[dict[str, Any]]:
    """Pairs of every kind: half of them own where there are enough, so that scarce ones are seen,
    and drawn last. Those that lie on the same place are one dot."""
    own = table["original"].to_numpy(zero_copy_only=False)
    some = [
        rows[:: -(-len(rows) // (DOTS // 2)) or 1]
        for rows in (np.flatnonzero(~own), np.flatnonzero(own))
    ]
    first = captions.refs[captions.ref_ptr[:-1]]
    dots: dict[tuple[bool, float, float], dict[str, Any]] = {}
    for row in table.take(np.concatenate(some)).to_pylist():
        at = (row["original"], round(row[name], 3), round(row["score"], 3))
        said = {
            "caption": captions.texts[row["caption"]],
            "judged": captions.texts[first[row["image"]]],
        }
        place = {
            "pair": "own" if row["original"] else "other",
            "value": at[1],
            "score": at[2],
            "pairs": 0,
        }
        dots.setdefault(at, {**said, **place})["pairs"] += 1
    return list(dots.values())


def bins(value: np.ndarray, score: np.ndarray) -> list[dict[str, float]]:
    """Mean score and its normal 95% interval over bins of equal width that hold at least FEWEST
    pairs."""
    edges = np.linspace(value.min(), value.max(), BINS + 1)
    row = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, BINS - 1)
    means = []
    for inside in (row == k for k in range(BINS)):
        n = int(inside.sum())
        if n >= _FEWEST:
            half, mean = (
                1.96 * float(score[inside].std(ddof=1)) / n**0.5,
                float(score[inside].mean()),
            )
            at = float(value[inside].mean())
            means.append(
                {"at": at, "mean": mean, "low": mean - half, "high": mean + half, "pairs": n}
            )
    return means
