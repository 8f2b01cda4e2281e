"""Normalised cumulative semantic score: relevance gathered in the top K over the most that could be."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Graded, Matrix, QueryBlock, check_choice, check_k, of_matrix, share
from capgrade.metrics.ranking import Array, Ties
from capgrade.metrics.semantic_recall import sr_of

FORMS = ("paper", "eq5", "authors")


def weighted_gains(
    block: QueryBlock, graded: Graded, weights: Array, *, removes: bool = False, exponential: bool = False
) -> tuple[Array, Array]:
    """Of each query the gains at the first places, weighted by place and added up: as they are ranked, and at best."""
    rankings = block.ranking(len(weights), removes), graded.ranking
    options: dict[str, Any] = {"left_out": block.groups(removes), "exponential": exponential}
    found, best = (block.gains_at(one, graded.values, len(weights), **options) for one in rankings)
    return found @ weights[: found.shape[1]], best @ weights[: best.shape[1]]


def ncs_of(block: QueryBlock, relevance: str, k: int, form: str = "paper", removes: bool = False) -> Array:
    """`ncs` of a block; form `ordered` weighs place p by log2(k - p + 2), p from 1: what SAM's train_f30k.py chooses
    its epoch by (metric.py 115-123, `softer_order`)."""
    if form == "eq5":
        return sr_of(block, relevance, k, k, "soft", removes)
    weights = np.log2(np.arange(k, 0, -1) + 1.0) if form == "ordered" else np.ones(k)
    found, best = weighted_gains(block, block.gains(relevance, k, removes), weights, removes=removes)
    return share(found, np.where(best > 0, best + k * 1e-10, 0) if form == "authors" else best)


def ncs(
    scores: Matrix, relevance: Matrix, k: int = 5, *, form: str = "paper", query_group: Matrix = None,
    candidate_group: Matrix = None, ties: Ties = "expected",
) -> Any:  # fmt: skip
    """NCS@k = relevance of the k retrieved / the k largest relevances; in [0, 1]. Biten et al. 2022.

    relevance >= 0; 0 where it is all zero. `paper`: as sec. 3.3 words it, and as the tables were made. `eq5`: eq. 5 as
    printed: only those retrieved that are among the k most relevant count. `authors`: metric.py:NCS, mean / (mean +
    1e-10). With groups int [Q] and [N], a query's own candidates, those of its group, leave the ranking and the ideal
    (the authors' default).

    >>> ncs(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2)
    array([0.6])
    """
    return of_matrix(
        scores, ncs_of, relevance=relevance, groups=(query_group, candidate_group), ties=ties, k=check_k(k),
        form=check_choice("form", form, FORMS), removes=query_group is not None,
    )  # fmt: skip
