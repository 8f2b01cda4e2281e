"""Pairs on which two voices disagree most, with the values of every voice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from capgrade.schemas.pairs import Pairs

PEOPLE_SCORES, RANK = "judgements", "rank"  # no names of measures: `people` is one
APART, JUDGED, ERRORS = "measures", "people", "errors"
KINDS = {
    APART: "Measures and models disagree",
    JUDGED: "Labels and people disagree",
    ERRORS: "A model's errors that labels call relevant",
}


def rank_shares(values: np.ndarray) -> np.ndarray:
    """The rank of each value of a voice as a share of all, float64 [n] in (0, 1): (rank - 1/2) / n,
    where ties have their mean rank. It makes different scales comparable, such as a measure's and a
    person's 0 to 5."""
    return (rankdata(values) - 0.5) / max(len(values), 1)


def rank_pairs(pairs: Pairs, strength: np.ndarray, top: int, per_item: int = 2) -> np.ndarray:
    """Rows of the `top` pairs of largest strength, int64; an image and a caption come at most
    `per_item` times, so that one odd caption does not fill the page. Equal ones keep their order.
    """
    times: dict[tuple[str, int], int] = {}
    rows: list[int] = []
    for row in np.argsort(-strength, kind="stable").tolist():
        if len(rows) == top:
            break
        items = ("image", int(pairs.image[row])), ("caption", int(pairs.caption[row]))
        if all(times.get(item, 0) < per_item for item in items):
            times |= {item: times.get(item, 0) + 1 for item in items}
            rows.append(row)
    return np.array(rows, np.int64)


@dataclass(frozen=True)
class Disagreement:
    """A pair with the statements of the two voices, and the values of every voice."""

    image: int
    caption: int
    original: bool
    statements: tuple[str, str]
    values: dict[str, float]


def find_disagreements(
    pairs: Pairs, owner: np.ndarray, high: str, low: str, top: int
) -> list[Disagreement]:
    """The `top` pairs with the largest difference of rank shares between `high` and `low`, among
    those that have both values. Pairs of `MatrixVoice.find_errors`, which have a RANK, are ordered
    by the value of `low` alone. owner int64 [n_captions]."""
    both = pairs.take(
        np.flatnonzero(np.isfinite(pairs.values[high]) & np.isfinite(pairs.values[low]))
    )
    first, second = rank_shares(both.values[high]), rank_shares(both.values[low])
    found_pairs = []
    for row in rank_pairs(both, second if RANK in both.values else first - second, top).tolist():
        values = {
            name: float(column[row])
            for name, column in both.values.items()
            if np.isfinite(column[row])
        }
        place = (
            f"rank {values[RANK]:.0f}, above the caption's own image"
            if RANK in values
            else _place(first[row])
        )
        statements = f"{high}: {place}", f"{low}: {_place(second[row])}"
        image, caption = int(both.image[row]), int(both.caption[row])
        pair = image, caption, bool(owner[caption] == image)
        found_pairs.append(Disagreement(*pair, statements, values))
    return found_pairs


def _place(share: float) -> str:
    """A rank share in words."""
    side, end = ("highest", 1 - share) if share > 0.5 else ("lowest", share)
    return f"among the {side} {max(np.ceil(100 * end), 1):.0f}%"
