"""Relevance gathered in the top K over the most that could be: NCS adds it up, NDCG discounts it by
place."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Matrix, QueryBlock, check_k, score_matrix, share
from capgrade.metrics.ranking import TieRule
from capgrade.metrics.semantic_recall import sr_of
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError, check_choice

_FORMS = ("paper", "eq5", "authors")
GAINS = ("linear", "exponential")
# The largest label with an exponential gain. 2 ** 1024 is infinite, so the sum of up to 2 ** 60
# gains of 2 ** 960 still is a number.
_LARGEST = 960


def _weighted_gains(
    block: QueryBlock,
    relevance: str,
    weights: Array,
    *,
    remove_own: bool = False,
    exponential: bool = False,
) -> tuple[Array, Array]:
    """The sum over the first places of gain times weight, for each query: of the ranking, and of
    the best order. float64 (b,) each."""
    gains, left_out = block.gains(relevance), block.groups(remove_own)
    options = gains, len(weights), left_out, exponential
    retrieved = block.gains_at(block.ranking, *options)
    best = block.gains_at(block.ideal(relevance), *options)
    return retrieved @ weights[: retrieved.shape[1]], best @ weights[: best.shape[1]]


def ncs_of(
    block: QueryBlock, relevance: str, k: int, form: str = "paper", remove_own: bool = False
) -> Array:
    """`ncs` of a block; form `ordered` weighs place p by log2(k - p + 2), p from 1: what SAM's
    train_f30k.py chooses its epoch by (metric.py 115-123, `softer_order`)."""
    if form == "eq5":
        return sr_of(block, relevance, k, k, "soft", remove_own)
    place = np.arange(min(k, block.width))
    weights = np.log2(k + 1.0 - place) if form == "ordered" else np.ones(len(place))
    retrieved, best = _weighted_gains(block, relevance, weights, remove_own=remove_own)
    return share(retrieved, np.where(best > 0, best + k * 1e-10, 0) if form == "authors" else best)


def ncs(
    scores: Matrix,
    relevance: Matrix,
    k: int = 5,
    *,
    form: str = "paper",
    query_group: Matrix = None,
    candidate_group: Matrix = None,
    ties: TieRule = "expected",
) -> Any:
    """NCS@k = relevance of the k retrieved / the k largest relevances; in [0, 1]. Biten et al.
    2022.

    relevance >= 0; 0 where it is all zero. `paper`: as sec. 3.3 words it, and as the tables were
    made. `eq5`: eq. 5 as printed: only those retrieved that are among the k most relevant count.
    `authors`: metric.py:NCS, mean / (mean + 1e-10). With groups int [Q] and [N], a query's own
    candidates, those of its group, leave the ranking and the ideal (the authors' default).

    >>> ncs(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2)
    array([0.6])
    """
    return score_matrix(
        scores,
        ncs_of,
        relevance=relevance,
        groups=(query_group, candidate_group),
        ties=ties,
        k=check_k(k),
        form=check_choice("form", form, _FORMS),
    )


def ndcg_of(block: QueryBlock, relevance: str, k: int, gain: str = "linear") -> Array:
    """`ndcg` of a block."""
    if gain == "exponential" and (largest := block.gains(relevance).max()) > _LARGEST:
        problem = (
            f"{f'relevance {relevance}'.rstrip()} reaches {largest:.3g}, and 2 to that power is no"
            " number"
        )
        raise InputError(problem, remedy="scale it, or use the linear gain")
    return share(
        *_weighted_gains(
            block,
            relevance,
            1 / np.log2(np.arange(min(k, block.width)) + 2.0),
            exponential=gain == "exponential",
        )
    )


def ndcg(
    scores: Matrix,
    relevance: Matrix,
    k: int = 25,
    *,
    gain: str = "linear",
    ties: TieRule = "expected",
) -> Any:
    """NDCG@k = sum_{p<=k} g(rel_p) / log2(p + 1) over that of the best order of all candidates; in
    [0, 1].

    relevance >= 0. g is rel (`linear`; Messina et al. 2021, eq. 7-8) or 2^rel - 1 (`exponential`;
    Burges et al. 2005, TERAN's dcg.py). Tied candidates share the mean of their gains, as in
    `sklearn.metrics.ndcg_score`. A query whose relevance is all zero is 0, as there.

    >>> ndcg(np.array([[0.9, 0.2, 0.5]]), np.array([[0.0, 1.0, 2.0]]), k=2).round(4)
    array([0.4796])
    """
    check_choice("gain", gain, GAINS)
    return score_matrix(scores, ndcg_of, relevance=relevance, ties=ties, k=check_k(k), gain=gain)
