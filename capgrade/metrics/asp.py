"""Average semantic precision: how near each candidate's two ranks are, by similarity and by
relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capgrade.kernels import njit
from capgrade.metrics.base import Matrix, QueryBlock, score_matrix
from capgrade.metrics.ranking import TieRule, rank
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError


@njit(cache=True, nogil=True)
def _expected_ratio(a, b, c, d, harmonic):
    """Mean of min / max over ranks r in a + 1 .. b and s in c + 1 .. d, independent and uniform."""
    if b - a > d - c:
        a, b, c, d = c, d, a, b
    total = 0.0
    for r in range(a + 1, b + 1):
        cut = min(max(r, c), d)  # s <= cut gives s / r, above it r / s
        total += (cut - c) * (cut + c + 1.0) / 2.0 / r + r * (harmonic[d] - harmonic[cut])
    return total / (np.float64(b - a) * (d - c))


@njit(cache=True, nogil=True)
def _asp_of_rows(order, end, rel_order, rel_end):
    """Each pair of a group by similarity and one by relevance is computed once: O(n ** 1.5) at
    worst."""
    rows, n = order.shape
    harmonic = np.zeros(n + 1)
    for r in range(1, n + 1):
        harmonic[r] = harmonic[r - 1] + 1.0 / r
    # Rows are candidates; each has the first and the end place of its tie group by relevance.
    span = np.empty((n, 2), np.int32)
    out = np.zeros(rows)
    # A group by relevance is known by its first place. Its last value is kept, and the group by
    # similarity that this value is with.
    value_of = np.empty(n)
    value_is_with = np.empty(n, np.int32)
    for row in range(rows):
        value_is_with[:] = -1
        start = 0
        for p in range(n):
            if p > 0 and rel_end[row, p - 1] == p:
                start = p
            item = rel_order[row, p]
            span[item, 0], span[item, 1] = start, rel_end[row, p]
        start, total = 0, 0.0
        for p in range(n):
            if p > 0 and end[row, p - 1] == p:
                start = p
            # Ranks of one integer type let numba compile `_expected_ratio` once.
            item = order[row, p]
            stop = np.int64(end[row, p])
            c, d = np.int64(span[item, 0]), np.int64(span[item, 1])
            if stop - start == 1 and d - c == 1:
                total += min(stop, d) / max(stop, d)
            else:
                if value_is_with[c] != start:
                    value_is_with[c], value_of[c] = (
                        start,
                        _expected_ratio(start, stop, c, d, harmonic),
                    )
                total += value_of[c]
        out[row] = total / n
    return out


def asp_of(block: QueryBlock, relevance: str) -> Array:
    """`asp` of a block."""
    ranking, ideal = block.ranking, block.ideal(relevance)
    return _asp_of_rows(ranking.order, ranking.end, ideal.order, ideal.end)


def asp(scores: Matrix, relevance: Matrix, *, ties: TieRule = "expected") -> Any:
    """ASP = mean over candidates of min / max of their ranks r by score and s by relevance; in (0,
    1].

    About 0.5 for a random order of many candidates. Li et al. 2022 "DAA", appendix eq. 1;
    evaluation.py:ASP_compute breaks ties arbitrarily, here both rankings take every order of their
    tie groups with equal probability, in closed form. So a model that is right about everything
    scores under 1 where labels tie: `asp(relevance, relevance)`.

    >>> asp(np.array([[0.9, 0.2]]), np.array([[0.0, 1.0]]))
    array([0.5])
    """
    return score_matrix(scores, asp_of, relevance=relevance, ties=ties)


def asp_average_of(block: QueryBlock, names: Sequence[str], weights: Sequence[float]) -> Array:
    """ASP(A) of a block: ASP with the weighted mean of several relevance matrices (DAA, appendix C
    and its table 1).

    The weights bring them to one scale, such as 1 / maximum of each: CIDEr-D reaches 10, ROUGE-L 1.
    The table's numbers are not the means of its ASP columns; that mean is `asp` of each, averaged.
    """
    mean = np.zeros((block.stop - block.start, block.width), np.float32)
    with np.errstate(over="ignore"):  # refused below
        for name, weight in zip(names, weights, strict=True):
            mean += np.float32(weight / len(names)) * block.relevance(name)
    if not np.isfinite(mean).all():
        raise InputError(
            "mean relevance is more than a float32 holds", remedy="bring the matrices to one scale"
        )
    ranking, ideal = block.ranking, rank(mean, block.queries.ties)
    return _asp_of_rows(ranking.order, ranking.end, ideal.order, ideal.end)
