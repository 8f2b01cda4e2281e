"""Metrics as every page prints them: fractions in percent with their sign; sums, ranks, tau and cosine as they are."""

from __future__ import annotations

import json
from collections.abc import Iterable

import altair as alt

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
