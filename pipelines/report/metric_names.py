"""Metrics as every page prints them: fractions in percent with their sign, sums, ranks, tau and cosine as they are; and
what their names mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import altair as alt

from capgrade.pipelines.report.parts import Glossary
from capgrade.trainer.evaluation.tables import scale, shown


def said(name: str, value: float) -> str:
    """A metric's value with its unit."""
    return "–" if value != value else f"{shown(name, value)}{_sign(name)}"


def interval(name: str, between: tuple[float, float] | list[float] | None) -> str:
    """The ends of an interval, whose unit stands beside the value; empty without one."""
    return "" if between is None else f"{shown(name, between[0])} – {shown(name, between[1])}"


def axis(parameter: str, names: Iterable[str]) -> alt.Axis:
    """The axis of the metric that a reader chooses, its values as `scale` makes them."""
    fractions = json.dumps([name for name in names if _sign(name)])
    return alt.Axis(labelExpr=f"indexof({fractions}, {parameter}) < 0 ? datum.label : datum.label + '%'")


def _sign(name: str) -> str:
    return "%" if scale(name) == 100 else ""


MEANINGS = {
    "i2t, t2i": "image to text: captions are found for an image; text to image: images for a caption.",
    "recall@k": "Share of queries with one of their own items among the first k. Binary: nothing else counts.",
    "rsum": "Sum of recall@1, @5 and @10 of both directions, in percent: 0 to 600.",
    "ncs@k": "Normalised cumulative semantic score: relevance among the first k over the most that k can have.",
    "nsum": "Sum of ncs@1, @5 and @10 of both directions, in percent: 0 to 600. The graded counterpart of rsum.",
    "ndcg@k": "Like ncs, but an item counts less the later it comes.",
    "asp": "Average semantic precision: how near ranks by similarity are to ranks by relevance. Chance is not 0.",
    "kendall_tau_b": "Rank correlation of similarity and relevance: 1 for the same order, 0 for none.",
}  # docs/metrics.md has the formulas


def glossary(names: Iterable[str]) -> Glossary:
    """The terms among these names of metrics; `ncs@10[sbert]` is a kind of `ncs@k`."""
    bases = {name.split("[")[0].split("@")[0] for name in names}
    shown = {term: said for term, said in MEANINGS.items() if term.split("@")[0] in bases or term == "i2t, t2i"}
    return Glossary("What the names mean", shown)
