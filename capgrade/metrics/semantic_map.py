"""SemanticMap lambda@K: the model's own cosines of what it retrieves. There is no ground truth in
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.metrics.base import (
    Matrix,
    Queries,
    QueryBlock,
    check_k,
    score_matrix,
    score_queries,
    share,
)
from capgrade.schemas.arrays import Array, as_numpy
from capgrade.schemas.errors import InputError

# A model is called collapsed when the best candidate's cosine exceeds the mean by less than this.
COLLAPSE = 0.1
_DEPTH = 32  # cosines that are put in order at least, for cut-offs that are asked for later


def lambda_of(block: QueryBlock, k: int, remove_own: bool = False) -> Array:
    """`semantic_map` of a block."""
    key = f"best {max(k, _DEPTH)} {remove_own}"
    best, others = block.compute_once(key, _best_cosines, block, max(k, _DEPTH), remove_own)
    return share(best[:, :k].sum(axis=1), np.minimum(k, others), np.nan)


def _best_cosines(block: QueryBlock, depth: int, remove_own: bool) -> tuple[Array, Array]:
    """The `depth` largest cosines of each query, float64 falling, 0 behind the last; and how many
    candidates the query has."""
    cosines = block.finite_similarity()
    if max(-cosines.min(), cosines.max()) > 1.001:
        raise InputError(
            "SemanticMap is about cosines, these leave [-1, 1]", remedy="normalise the embeddings"
        )
    candidates = np.full(len(cosines), block.width)
    if remove_own:
        own, cosines = block.positives(), cosines.copy()
        cosines[own.queries, own.indices] = -np.inf
        candidates -= own.sizes
    behind = max(0, block.width - depth)
    best = np.sort(np.partition(cosines, behind, axis=1)[:, behind:], axis=1)[:, ::-1]
    return np.where(np.isfinite(best), best, 0).astype(np.float64), candidates


def semantic_map(
    scores: Matrix, k: int = 5, *, query_group: Matrix = None, candidate_group: Matrix = None
) -> Any:
    """lambda@K: the mean cosine of the K candidates of highest cosine; in [-1, 1]. Nawaz et al.
    "SemanticMap", eq. 1-2.

    With groups int [Q] and [N], a query's own candidates, those of its group, are left out (the
    paper's table 3). Ties change nothing. There is no ground truth in it: a model that maps
    everything to one point scores 1. Never read it without `collapse`.

    >>> semantic_map(np.array([[0.5, 0.25, 0.75]]), k=2)
    array([0.625])
    """
    return score_matrix(scores, lambda_of, groups=(query_group, candidate_group), k=check_k(k))


@dataclass(frozen=True)
class Collapse:
    """How far the best candidate stands out: mean of best - mean cosine over queries.

    >>> print(Collapse(contrast=0.05, collapsed=True)) # doctest: +NORMALIZE_WHITESPACE
    best minus average cosine 0.050: COLLAPSED,
    lambda@K means nothing here (lambda@K rewards a collapsed model)
    """

    contrast: float
    collapsed: bool

    def __str__(self) -> str:
        state = "COLLAPSED, lambda@K means nothing here" if self.collapsed else "not collapsed"
        return (
            f"best minus average cosine {self.contrast:.3f}: {state} (lambda@K rewards a collapsed"
            " model)"
        )


def collapse(*scores: Matrix) -> Collapse:
    """Does lambda@K mean anything? It does not where the best candidate is within 0.1 of the
    average one, in the mean of the folds if several are given.

    >>> collapse(np.array([[0.5, 0.25, 0.75]])).collapsed
    False
    """

    def contrast_of(block: QueryBlock) -> Array:
        similarity = block.finite_similarity()
        return similarity.max(axis=1).astype(np.float64) - similarity.mean(axis=1, dtype=np.float64)

    contrast = float(
        np.mean([score_queries(Queries(as_numpy(fold)), contrast_of).mean() for fold in scores])
    )
    return Collapse(contrast, contrast < COLLAPSE)
