"""A score of candidate captions: a value of each, and what the score of all together is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scored:
    """One score of candidates: `sentences`, float64 [candidates].

    `statistics`, float64 [candidates, k], are summed, and `of` makes corpus scores [n] of sums [n,
    k].
    """

    sentences: np.ndarray
    statistics: np.ndarray
    of: Callable[[np.ndarray], np.ndarray]

    @property
    def corpus(self) -> float:
        """The score of all candidates together."""
        return float(self.of(self.statistics.sum(axis=0, keepdims=True))[0])


def mean_of(sums: np.ndarray) -> np.ndarray:
    """Means from sums float64 [n, 2]: of values, and of ones."""
    return sums[:, 0] / sums[:, 1]


def averaged(values: np.ndarray) -> Scored:
    """A score of the corpus that is the mean over candidates."""
    values = np.asarray(values, np.float64)
    return Scored(values, np.stack([values, np.ones_like(values)], axis=1), mean_of)
