"""Section: do the measures agree with people? Scatter, means of bins with intervals, and the table of coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from capgrade.pipelines.report.charts import MEAN, made, rows
from capgrade.pipelines.report.data import AGREEMENT, JUDGED, ReportData
from capgrade.pipelines.report.parts import Cell, Chart, Missing, PageSection, PageTable, Part, number, text
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import metadata_of, read_arrow, read_json
from capgrade.schemas.judges import PEOPLE, SAID, TITLES, TRUTH, VALUES

DOTS = 600  # pairs drawn in a scatter, evenly over the judgements' order
BINS = 12  # of equal width
FEWEST = 20  # pairs in a bin whose mean is drawn
KINDS = {"own": "circle", "other": "triangle-up"}
SCALE = {  # an axis, and a title
    PEOPLE: ("judgement", "the judgements"),
    TRUTH: ("true relevance", "the truth"),
    VALUES: ("value of the other matrix", "the other matrix"),
}
SCOPES = {"all": "all pairs", "non_original": "non-original pairs"}
COEFFICIENTS = ("pearson", "spearman", "kendall")
INTRO = (
    "Judged pairs of {of}. The line is the mean of the pairs in a bin, with 95% intervals; circles are "
    "own pairs, triangles other pairs, and the larger a mark, the more pairs lie on it. Binary relevance, which "
    "benchmarks use, is 1 for own pairs; over non-original pairs it is constant and has no correlation."
)


def agreement(data: ReportData) -> PageSection:
    """Scatter and bins need the judged pairs that `capgrade agree --pairs` writes; the table needs its --out."""
    options = "--captions {captions} --judgements FILE --out {agreement.json} --pairs {judged.arrow}"
    command, title, said, of = data.command("agree", options), "Agreement with people", "", None
    parts: list[Part] = []
    scale = SCALE[PEOPLE]
    if data.has(AGREEMENT):
        found = read_json(data.at(AGREEMENT))
        facts = found["judgements"]
        _require_these(facts["captions"], data.captions.digest, data.at(AGREEMENT))
        title, scale, of = TITLES[facts["by"]], SCALE[facts["by"]], facts.get("of")
        said = f" Here: {SAID[facts['by']]} ({facts['file']}, {facts['pairs']:,} pairs of split {facts['split']})."
        parts.append(_table(found["measures"]))
    else:
        parts.append(Missing("the agreement of the measures with judgements", command))
    if data.has(JUDGED):
        parts += _charts(data, scale)
    elif data.has(AGREEMENT) and not of:  # pairs of one kind have no such table
        parts.append(Missing("the judged pairs one by one", command))
    return PageSection("agreement", title, INTRO.format(of=of or "image and caption") + said, parts)


def _table(found: dict[str, Any]) -> PageTable:
    keys = [(c, scope) for scope in SCOPES for c in COEFFICIENTS]
    values = {name: [row[c].get(scope, float("nan")) for c, scope in keys] for name, row in found.items()}
    best = np.nanmax(np.array(list(values.values()), float), axis=0)
    lines = [
        [text(name), *(_cell(value, top) for value, top in zip(row, best, strict=True))] for name, row in values.items()
    ]
    heads = ("measure", *(f"{c}, {SCOPES[scope]}" for c, scope in keys))
    return PageTable("Correlation of each measure with the judgements, the best in bold", heads, lines)


def _cell(value: float, best: float) -> Cell:
    made = number(value)
    return Cell(made.text, made.value, best=f"{value:.3f}" == f"{best:.3f}")


def _charts(data: ReportData, scale: tuple[str, str]) -> list[Part]:
    table = read_arrow(data.at(JUDGED))
    facts = metadata_of(table.schema)
    captions = read_captions(data.at("captions"), facts["split"])
    _require_these(facts["captions"], captions.digest, data.at(JUDGED))
    return [_chart(name, scale, table, captions) for name in facts["measures"]]


def _require_these(judged: str, captions: str, path: Path) -> None:
    if judged != captions:
        raise InputError("judged pairs of other captions", file=path, remedy="run capgrade agree again")


def _chart(name: str, scale: tuple[str, str], table: pa.Table, captions: Captions) -> Chart:
    value, score = table[name].to_numpy(), table["score"].to_numpy()
    points, means = alt.Data(values=_points(name, table, captions)), rows(bins(value, score))
    x, y = alt.X("value:Q", title=name), alt.Y("score:Q", title=scale[0])
    dots = alt.Chart(points).mark_point(filled=True, opacity=0.5, aria=False).encode(
        x, y, alt.Color("pair:N", title=None, scale=alt.Scale(domain=list(KINDS))),
        alt.Shape("pair:N", title=None, scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values()))),
        alt.Size("pairs:Q", legend=None, scale=alt.Scale(domain=[1, DOTS // 2], range=[20, 600])),
        tooltip=["caption:N", "judged:N", "pair:N", "value:Q", "score:Q", "pairs:Q"],
    )  # fmt: skip
    base = alt.Chart(means)
    bars = base.mark_rule(strokeWidth=2).encode(alt.X("at:Q"), alt.Y("low:Q"), alt.Y2("high:Q"))
    told = [alt.Tooltip(f"{key}:Q") for key in ("at", "mean", "low", "high", "pairs")]
    line = base.mark_line(strokeWidth=2, aria=False, style=MEAN).encode(alt.X("at:Q"), alt.Y("mean:Q"))
    marks = base.mark_square(size=46, opacity=1, style=MEAN).encode(alt.X("at:Q"), alt.Y("mean:Q"), tooltip=told)
    ends = bins(value, score)
    said = "too few pairs for means."
    if ends:
        first, last = ends[0], ends[-1]
        said = f"the mean score goes from {first['mean']:.2f} at {first['at']:.2f} to "
        said += f"{last['mean']:.2f} at {last['at']:.2f}."
    alt_text = f"{scale[0].capitalize()} against {name} for {len(score):,} pairs; {said}"
    return made(f"agreement-{name}", f"{name} and {scale[1]}", alt_text, dots + line + bars + marks)


def _points(name: str, table: pa.Table, captions: Captions) -> list[dict[str, Any]]:
    """Pairs of every kind: half of them own where there are enough, so that scarce ones are seen, and drawn last. Those
    that lie on the same place are one dot."""
    own = table["original"].to_numpy(zero_copy_only=False)
    some = [_spread(np.flatnonzero(kind), DOTS // 2) for kind in (~own, own)]
    columns = (table.take(np.concatenate(some))[c].to_pylist() for c in ("image", "caption", "original", name, "score"))
    first = captions.refs[captions.ref_ptr[:-1]]
    dots: dict[tuple[bool, float, float], dict[str, Any]] = {}
    for image, caption, original, value, score in zip(*columns, strict=True):
        at = (original, round(value, 3), round(score, 3))
        said = {"caption": captions.texts[caption], "judged": captions.texts[first[image]]}
        place = {"pair": "own" if original else "other", "value": at[1], "score": at[2], "pairs": 0}
        dots.setdefault(at, {**said, **place})["pairs"] += 1
    return list(dots.values())


def _spread(at: np.ndarray, most: int) -> np.ndarray:
    return at[np.unique(np.linspace(0, len(at) - 1, min(most, len(at))).astype(int))] if len(at) else at


def bins(value: np.ndarray, score: np.ndarray) -> list[dict[str, float]]:
    """Mean score and its normal 95% interval over bins of equal width that hold at least FEWEST pairs."""
    edges = np.linspace(value.min(), value.max(), BINS + 1)
    of = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, BINS - 1)
    found = []
    for k in range(BINS):
        inside = score[of == k]
        if len(inside) >= FEWEST:
            half, mean = 1.96 * float(inside.std(ddof=1)) / len(inside) ** 0.5, float(inside.mean())
            at = float(value[of == k].mean())
            found.append({"at": at, "mean": mean, "low": mean - half, "high": mean + half, "pairs": len(inside)})
    return found
