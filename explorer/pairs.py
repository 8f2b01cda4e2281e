"""Pairs of an image and a caption with their labels, and where two voices on them disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata


@dataclass(frozen=True)
class LabelledPairs:
    """image and caption: int32 numbers of the captions; values: each label float32; original: the caption was written
    for the image. All [n]."""

    image: np.ndarray
    caption: np.ndarray
    values: Mapping[str, np.ndarray]
    original: np.ndarray

    def __len__(self) -> int:
        return len(self.image)

    def take(self, rows: np.ndarray) -> LabelledPairs:
        """The pairs in these rows, int64 or bool."""
        values = {name: column[rows] for name, column in self.values.items()}
        return LabelledPairs(self.image[rows], self.caption[rows], values, self.original[rows])


def joined(parts: Iterable[LabelledPairs]) -> LabelledPairs:
    """One after the other; their labels have the same names."""
    found = list(parts)
    values = {name: np.concatenate([p.values[name] for p in found]) for name in found[0].values}
    image, caption = (np.concatenate([getattr(p, name) for p in found]) for name in ("image", "caption"))
    return LabelledPairs(
        image.astype(np.int32), caption.astype(np.int32), values, np.concatenate([p.original for p in found])
    )


def rank_share(values: np.ndarray) -> np.ndarray:
    """Where each value stands among all, float64 in (0, 1): (rank - 1/2) / n, ties sharing their mean rank.

    Measures on different scales become comparable, as does a person's 0..5.
    """
    return (rankdata(values) - 0.5) / max(len(values), 1)


def disagreement(pairs: LabelledPairs, high: str, low: str) -> np.ndarray:
    """How much higher `high` ranks each pair than `low` does: float64 [n] in (-1, 1)."""
    return rank_share(pairs.values[high]) - rank_share(pairs.values[low])


def ranked(pairs: LabelledPairs, strength: np.ndarray, top: int, per_item: int = 2) -> np.ndarray:
    """Rows of the `top` pairs of largest strength, int64; an image and a caption come at most `per_item` times, so that
    one odd caption does not fill the page. Equal ones keep their order."""
    images: dict[int, int] = {}
    captions: dict[int, int] = {}
    found: list[int] = []
    for row in np.argsort(-strength, kind="stable").tolist():
        if len(found) == top:
            break
        i, c = int(pairs.image[row]), int(pairs.caption[row])
        if images.get(i, 0) < per_item and captions.get(c, 0) < per_item:
            images[i], captions[c] = images.get(i, 0) + 1, captions.get(c, 0) + 1
            found.append(row)
    return np.array(found, np.int64)
