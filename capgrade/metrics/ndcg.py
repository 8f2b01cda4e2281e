"""Normalised discounted cumulative gain over graded, float relevance."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Matrix, QueryBlock, check_choice, check_k, of_matrix, share
from capgrade.metrics.ncs import weighted_gains
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.errors import InputError

GAINS = ("linear", "exponential")
LARGEST = 960  # label of an exponential gain: 2 ** 1024 is infinite, and gains of 2 ** 60 candidates add up


def discounts(k: int) -> Array:
    """1 / log2(p + 1) of the places p = 1..k."""
    return 1 / np.log2(np.arange(k) + 2.0)


def ndcg_of(block: QueryBlock, relevance: str, k: int, gain: str = "linear") -> Array:
    """`ndcg` of a block."""
    graded = block.gains(relevance, k)
    if gain == "exponential" and (largest := graded.values.max()) > LARGEST:
        problem = f"{f'relevance {relevance}'.rstrip()} reaches {largest:.3g}, and 2 to that power is no number"
        raise InputError(problem, remedy="scale it, or use the linear gain")
    return share(*weighted_gains(block, graded, discounts(k), exponential=gain == "exponential"))


def ndcg(scores: Matrix, relevance: Matrix, k: int = 25, *, gain: str = "linear", ties: Ties = "expected") -> Any:
    """NDCG@k = sum_{p<=k} g(rel_p) / log2(p + 1) over that of the best order of all candidates; in [0, 1].

    relevance >= 0. g is rel (`linear`; Messina et al. 2021, eq. 7-8) or 2^rel - 1 (`exponential`; Burges et al. 2005,
    TERAN's dcg.py). Tied candidates share the mean of their gains, as in `sklearn.metrics.ndcg_score`. A query whose
    relevance is all zero is 0, as there.

    >>> ndcg(np.array([[0.9, 0.2, 0.5]]), np.array([[0.0, 1.0, 2.0]]), k=2).round(4)
    array([0.4796])
    """
    check_choice("gain", gain, GAINS)
    return of_matrix(scores, ndcg_of, relevance=relevance, ties=ties, k=check_k(k), gain=gain)
