"""Human ratings of pairs: one or several per pair, as lists of judgements hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.schemas.judges import CHOSEN, SHARES


@dataclass(frozen=True)
class Ratings:
    """Every single rating: value float64 [ratings], those of pair k at ptr[k]:ptr[k + 1]; ptr int64 [pairs + 1]."""

    ptr: np.ndarray
    value: np.ndarray

    @staticmethod
    def of(rows: Sequence[Sequence[float]]) -> Ratings:
        """From the ratings of each pair, one or more."""
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Ratings(ptr, np.array([value for row in rows for value in row], np.float64))

    @property
    def counts(self) -> np.ndarray:
        """int64 [pairs]"""
        return np.diff(self.ptr)

    @property
    def means(self) -> np.ndarray:
        """float64 [pairs]"""
        return np.asarray(np.add.reduceat(self.value, self.ptr[:-1]) / self.counts)


@dataclass(frozen=True)
class Judgements:
    """Human scores of pairs: image int64 and caption int64 numbers of the captions, score float64, all [n]. Where a
    pair has several ratings, `score` is their mean and `ratings` has each. `uncalibrated` says why these cannot tell
    what a value means to people, where they cannot. `scale`: the lowest and the highest score that could be given, None
    where the file does not say. `sampling`: RANDOM where any pair was as likely to be judged, else CHOSEN."""

    image: np.ndarray
    caption: np.ndarray
    score: np.ndarray
    ratings: Ratings | None = None
    uncalibrated: str | None = None
    scale: tuple[float, float] | None = None
    sampling: str = CHOSEN

    @property
    def binary(self) -> bool:
        """Whether people said yes or no: every rating is 0 or 1, both were given, and no other could be."""
        given = self.score if self.ratings is None else self.ratings.value
        return self.scale in (None, SHARES) and set(np.unique(given)) == {0.0, 1.0}
