"""Pairs of an image and a caption with their labels, and which of them come first."""

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

    def shares(self, name: str) -> np.ndarray:
        """Where each value of a label stands among all, float64 [n] in (0, 1): (rank - 1/2) / n, ties sharing their
        mean rank. Measures on different scales become comparable, as does a person's 0..5."""
        return (rankdata(self.values[name]) - 0.5) / max(len(self), 1)


def joined(parts: Iterable[LabelledPairs]) -> LabelledPairs:
    """One after the other; their labels have the same names."""
    parts = list(parts)
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values}
    image, caption, original = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("image", "caption", "original")
    )
    return LabelledPairs(image.astype(np.int32), caption.astype(np.int32), values, original)


def ranked(pairs: LabelledPairs, strength: np.ndarray, top: int, per_item: int = 2) -> np.ndarray:
    """Rows of the `top` pairs of largest strength, int64; an image and a caption come at most `per_item` times, so that
    one odd caption does not fill the page. Equal ones keep their order."""
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
