"""Recall over lists of positives: any of them in the top K, the share of them, the rank of the first, mAP@R.

The lists are the own items (R@K of the field), or any others: CxC, ECCV Caption, an extension set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Matrix, Positives, QueryBlock, check_k, of_matrix, share
from capgrade.metrics.ranking import Array, Ties


def any_in_top(block: QueryBlock, k: int, lists: str | None = None) -> Array:
    """`recall` of a block: place by place the chance of a hit where there was none before, without replacement."""
    own = block.positives(lists)
    hits = block.hits_at(own, k)
    start, size = block.ranking.groups(hits.shape[1])
    left = size - (np.arange(hits.shape[1]) - start)  # of the group, at this place
    missed = np.prod(1 - np.minimum(np.rint(hits * size) / left, 1), axis=1)
    return np.where(np.diff(own.indptr) > 0, 1 - missed, np.nan)


def share_in_top(block: QueryBlock, k: int = 0, lists: str | None = None) -> Array:
    """`recall_share` of a block; k = 0 is R-Precision."""
    own = block.positives(lists)
    hits = block.hits_at(own, k or longest(own))
    first = np.arange(hits.shape[1]) < (k or own.sizes[:, None])
    return share((hits * first).sum(axis=1), own.sizes, np.nan)


def first_of(block: QueryBlock, lists: str | None = None) -> Array:
    """`first_rank` of a block, once for its median and its mean."""
    return block.once(f"first {lists}", lambda: _first(block, block.positives(lists)))


def _first(block: QueryBlock, own: Positives) -> Array:
    marks = np.zeros(block.similarity.shape, bool)
    marks[own.queries, own.indices] = True
    hits, end = np.take_along_axis(marks, block.ranking.order, axis=1), block.ranking.end
    tied = end == np.take_along_axis(end, hits.argmax(axis=1)[:, None], axis=1)  # the group of the first hit
    place = tied.argmax(axis=1) + (tied.sum(axis=1) + 1) / ((tied & hits).sum(axis=1) + 1)
    return np.where(np.diff(own.indptr) > 0, place, np.nan)


def map_of(block: QueryBlock, lists: str) -> Array:
    """`map_at_r` of a block: the chance of a hit at each place, times the precision expected beside it."""
    own = block.positives(lists)
    hits = block.hits_at(own, longest(own))
    place = np.arange(hits.shape[1])
    start, size = block.ranking.groups(len(place))
    before = np.take_along_axis(np.cumsum(hits, axis=1) - hits, start, axis=1)  # hits in groups above
    beside = (np.rint(hits * size) - 1) / np.maximum(size - 1, 1)  # the chance of another hit at a place of the group
    precision = (before + 1 + (place - start) * beside) / (place + 1)
    return share((hits * precision * (place < own.sizes[:, None])).sum(axis=1), own.sizes, np.nan)


def longest(positives: Positives) -> int:
    """The largest number of positives of a query, at least 1: how deep a ranking R-Precision reads."""
    return max(1, int(positives.sizes.max(initial=0)))


def recall(scores: Matrix, own: Matrix, k: int = 1, *, ties: Ties = "expected") -> Any:
    """R@K of image-text retrieval: 1 if any own candidate is among the first k; NaN for a query without one.

    Under ties the probability of a hit: 1 - C(g - p, s) / C(g, s) for p own ones in a group of g with s places left.
    Biten et al. 2022, sec. 3.1 (R^V@K); VSE++ evaluation.py.

    >>> recall(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 0.])
    """
    return of_matrix(scores, any_in_top, own=own, ties=ties, k=check_k(k))


def recall_share(scores: Matrix, own: Matrix, k: int = 5, *, ties: Ties = "expected") -> Any:
    """The share of the own candidates that is among the first k, as information retrieval has recall; in [0, 1].

    At most k / |own|: R@1 cannot exceed 0.2 with five captions an image. Biten et al. 2022, eq. 1.

    >>> recall_share(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]), k=2)
    array([0.5])
    """
    return of_matrix(scores, share_in_top, own=own, ties=ties, k=check_k(k))


def first_rank(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """The rank of the first own candidate, from 1; its median is medr, its mean meanr.

    Under ties its expectation a + (g + 1) / (p + 1): a above, p own ones in the group of g.

    >>> first_rank(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 2.])
    """
    return of_matrix(scores, first_of, own=own, ties=ties)


def r_precision(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """The share of own candidates among the first R, R their number; in [0, 1].

    >>> r_precision(np.array([[0.9, 0.2, 0.5]]), np.array([[True, False, True]]))
    array([1.])
    """
    return of_matrix(scores, share_in_top, own=own, ties=ties)


def map_at_r(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """mAP@R = (1/R) sum over r = 1..R of [item r is own] * precision@r, R the number of own candidates; in [0, 1].

    NaN for a query without own candidates; under ties its exact expectation. Musgrave et al. 2020; Chun et al. 2022
    "ECCV Caption", eccv_caption/_metrics.py:compute_eccv_metrics.

    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]))
    array([0.5])
    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), Positives.from_lists([[0, -1, -1, -1]]))  # three are not in the gallery
    array([0.25])
    """
    return of_matrix(scores, map_of, own=own, ties=ties)


def median_rank(ranks: Array) -> float:
    """The field's medr, floor of the median of ranks counted from 1 (VSE++: floor(median) + 1 from 0)."""
    return float(np.floor(np.nanmedian(ranks)))
