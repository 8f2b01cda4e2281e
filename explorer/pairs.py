"""Pairs of an image and a caption with their labels, which of them come first, and on which two
voices disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from capgrade.schemas.captions import Captions

PEOPLE_SCORES, RANK = "people", "rank"
APART, JUDGED, ERRORS = "measures", "people", "errors"
KINDS = {
    APART: "Measures and models disagree",
    JUDGED: "Labels and people disagree",
    ERRORS: "A model's errors that labels call relevant",
}


@dataclass(frozen=True)
class LabelledPairs:
    """image and caption: int32 numbers of the captions; values: each label float32, NaN where it is
    not known; original: the caption was written for the image. All [n]."""

    image: np.ndarray
    caption: np.ndarray
    values: Mapping[str, np.ndarray]
    original: np.ndarray

    @staticmethod
    def of(
        captions: Captions, image: np.ndarray, caption: np.ndarray, values: Mapping[str, np.ndarray]
    ) -> LabelledPairs:
        """Pairs of these captions."""
        original = captions.owner[caption] == image
        return LabelledPairs(image.astype(np.int32), caption.astype(np.int32), values, original)

    def __len__(self) -> int:
        return len(self.image)

    def take(self, rows: np.ndarray) -> LabelledPairs:
        """The pairs in these rows, int64 or bool."""
        values = {name: column[rows] for name, column in self.values.items()}
        return LabelledPairs(self.image[rows], self.caption[rows], values, self.original[rows])

    def shares(self, name: str) -> np.ndarray:
        """Where each value of a label stands among all, float64 [n] in (0, 1): (rank - 1/2) / n,
        ties sharing their mean rank. Measures on different scales become comparable, as does a
        person's 0..5."""
        return (rankdata(self.values[name]) - 0.5) / max(len(self), 1)


def ranked(pairs: LabelledPairs, strength: np.ndarray, top: int, per_item: int = 2) -> np.ndarray:
    """Rows of the `top` pairs of largest strength, int64; an image and a caption come at most
    `per_item` times, so that one odd caption does not fill the page. Equal ones keep their order.
    """
    seen: dict[tuple[str, int], int] = {}
    rows: list[int] = []
    for row in np.argsort(-strength, kind="stable").tolist():
        if len(rows) == top:
            break
        items = ("image", int(pairs.image[row])), ("caption", int(pairs.caption[row]))
        if all(seen.get(item, 0) < per_item for item in items):
            seen |= {item: seen.get(item, 0) + 1 for item in items}
            rows.append(row)
    return np.array(rows, np.int64)


@dataclass(frozen=True)
class Disagreement:
    """One pair worth a look: what the two say, and the values of every voice."""

    image: int
    caption: int
    original: bool
    said: tuple[str, str]
    values: dict[str, float]


def disagreements(pairs: LabelledPairs, high: str, low: str, top: int) -> list[Disagreement]:
    """The pairs that `high` ranks highest above `low`, among those where both say something. What a
    model retrieves above the original (`MatrixVoice.errors`) has a RANK: of these, the pairs that
    `low` ranks highest."""
    known = pairs.take(
        np.flatnonzero(np.isfinite(pairs.values[high]) & np.isfinite(pairs.values[low]))
    )
    first, second = known.shares(high), known.shares(low)
    found = []
    for row in ranked(known, second if RANK in known.values else first - second, top).tolist():
        values = {
            name: float(column[row])
            for name, column in known.values.items()
            if np.isfinite(column[row])
        }
        place = (
            f"rank {values[RANK]:.0f}, above the caption's own image"
            if RANK in values
            else _place(first[row])
        )
        said = f"{high}: {place}", f"{low}: {_place(second[row])}"
        pair = int(known.image[row]), int(known.caption[row]), bool(known.original[row])
        found.append(Disagreement(*pair, said, values))
    return found


def _place(share: float) -> str:
    """Where a pair stands among all, in words."""
    side, end = ("highest", 1 - share) if share > 0.5 else ("lowest", share)
    return f"among the {side} {max(np.ceil(100 * end), 1):.0f}%"
