"""Pairs on which two voices disagree, and the disagreement in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.explorer.pairs import LabelledPairs, ranked

PEOPLE, RANK = "people", "rank"
APART, JUDGED, ERRORS = "measures", "people", "errors"
KINDS = {
    APART: "Measures disagree",
    JUDGED: "Labels and people disagree",
    ERRORS: "A model's errors that labels call relevant",
}


@dataclass(frozen=True)
class Disagreement:
    """One pair worth a look: what the two say, and the values of every voice."""

    image: int
    caption: int
    original: bool
    said: tuple[str, str]
    values: dict[str, float]


def between(pairs: LabelledPairs, high: str, low: str, top: int) -> list[Disagreement]:
    """The pairs that `high` ranks highest above `low`, among those where both say something."""
    known = pairs.take(np.flatnonzero(np.isfinite(pairs.values[high]) & np.isfinite(pairs.values[low])))
    shares = {name: known.shares(name) for name in (high, low)}
    rows = ranked(known, shares[high] - shares[low], top)
    return [_of(known, row, tuple(f"{name}: {_place(shares[name][row])}" for name in (high, low))) for row in rows]


def errors(pairs: LabelledPairs, model: str, label: str, top: int) -> list[Disagreement]:
    """What a model retrieves above the original (`ModelVoice.errors`), the pairs of highest label first."""
    shares, found = pairs.shares(label), []
    for row in ranked(pairs, pairs.values[label].astype(np.float64), top):
        wrong = f"{model}: rank {pairs.values[RANK][row]:.0f}, above the caption's own image"
        found.append(_of(pairs, row, (wrong, f"{label}: {_place(shares[row])}")))
    return found


def _of(pairs: LabelledPairs, row: int, said: tuple[str, ...]) -> Disagreement:
    values = {name: float(column[row]) for name, column in pairs.values.items()}
    return Disagreement(
        int(pairs.image[row]), int(pairs.caption[row]), bool(pairs.original[row]), (said[0], said[1]), values
    )


def _place(share: float) -> str:
    """Where a pair stands among all, in words."""
    return f"among the highest {_percent(1 - share)}" if share > 0.5 else f"among the lowest {_percent(share)}"


def _percent(share: float) -> str:
    return "1 %" if share < 0.01 else f"{np.ceil(100 * share):.0f} %"
