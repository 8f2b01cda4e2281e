"""Normalised discounted cumulative gain over graded, float relevance."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Block, Matrix, check_choice, check_k, of_matrix
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.compiled import njit
from capgrade.schemas.errors import InputError

GAINS = ("linear", "exponential")
LARGEST = 960  # label of an exponential gain: 2 ** 1024 is infinite, and gains of 2 ** 60 candidates add up


@njit(cache=True, nogil=True)
def _gain(value, exponential):
    return 2.0 ** np.float64(value) - 1.0 if exponential else np.float64(value)


@njit(cache=True, nogil=True)
def _kernel(order, end, ideal, values, k, exponential, ordered):
    rows, n = order.shape
    depth, k = k, min(k, n)
    discount = np.zeros(k + 1)  # cumulative: discount[p] = sum of the first p discounts
    for p in range(k):
        discount[p + 1] = discount[p] + (np.log2(depth - p + 1.0) if ordered else 1.0 / np.log2(p + 2.0))
    out = np.zeros(rows)
    for row in range(rows):
        best = 0.0
        for p in range(k):
            best += _gain(values[row, ideal[row, p]], exponential) * (discount[p + 1] - discount[p])
        pos, total = 0, 0.0
        while pos < k and best > 0:
            stop = end[row, pos]
            gain = 0.0
            for p in range(pos, stop):
                gain += _gain(values[row, order[row, p]], exponential)
            total += gain / (stop - pos) * (discount[min(stop, k)] - discount[pos])
            pos = stop
        if best > 0:
            out[row] = total / best
    return out


def ndcg_of(block: Block, relevance: str, k: int, gain: str) -> Array:
    """`ndcg` of a block."""
    graded = block.gains(relevance, k)
    if gain == "exponential" and graded.values.max() > LARGEST:
        problem = f"relevance {relevance} reaches {graded.values.max():.3g}, and 2 to that power is no number"
        raise InputError(" ".join(problem.split()), remedy="scale it, or use the linear gain")
    ranking, ideal = block.ranking(k), graded.ranking.order
    return _kernel(ranking.order, ranking.end, ideal, graded.values, k, gain == "exponential", False)


def ncs_ordered_of(block: Block, relevance: str, k: int) -> Array:
    """NCS@K whose places weigh log2(K - p + 2), p from 1: what SAM's train_f30k.py chooses its epoch by (metric.py
    115-123, `softer_order`)."""
    graded, ranking = block.gains(relevance, k), block.ranking(k)
    return _kernel(ranking.order, ranking.end, graded.ranking.order, graded.values, k, False, True)


def ndcg(scores: Matrix, relevance: Matrix, k: int = 25, *, gain: str = "linear", ties: Ties = "expected") -> Any:
    """NDCG@k = sum_{p<=k} g(rel_p) / log2(p + 1) over that of the best order of all candidates; in [0, 1].

    relevance >= 0. g is rel (`linear`; Messina et al. 2021, eq. 7-8) or 2^rel - 1 (`exponential`; Burges et al. 2005,
    TERAN's dcg.py). Tied candidates share the mean of their gains, as in `sklearn.metrics.ndcg_score`. A query whose
    relevance is all zero is 0, as there.

    >>> ndcg(np.array([[0.9, 0.2, 0.5]]), np.array([[0.0, 1.0, 2.0]]), k=2).round(4)
    array([0.4796])
    """
    k = check_k(k)
    check_choice("gain", gain, GAINS)
    return of_matrix(scores, lambda block: ndcg_of(block, "", k, gain), relevance=relevance, ties=ties)


def zero_ideal(relevance: Array) -> int:
    """Number of queries with no relevance at all: NDCG and NCS score them 0, whatever is retrieved."""
    return int((~(np.asarray(relevance) > 0).any(axis=1)).sum())
