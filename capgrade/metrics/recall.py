"""Recall over lists of positives: any of them in the top K, the share of them, the rank of the
first, mAP@R.

The lists are the own items (R@K of the field), or any others: CxC, ECCV Caption, an extension set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Matrix, QueryBlock, check_k, score_matrix, share
from capgrade.metrics.positives import Positives
from capgrade.metrics.ranking import TieRule
from capgrade.schemas.arrays import Array


def _above_own(block: QueryBlock, lists: str | None) -> tuple[Array, Array]:
    """How many candidates rank above each own one, and how many tie with it, itself included. To
    count takes a part of the time of a ranking."""
    return block.compute_once(f"above {lists}", block.counts_above, block.positives(lists))


def _above_first(block: QueryBlock, lists: str | None) -> tuple[Array, Array, Array]:
    """How many candidates rank above each query's best own one, how many tie with it (itself
    included), and how many of those are own: int64 (b,) each."""
    queries, (above, tied) = block.positives(lists).queries, _above_own(block, lists)
    least = np.full(block.stop - block.start, block.width)
    np.minimum.at(least, queries, above)
    is_best = above == least[queries]
    size = np.ones(len(least), np.int64)
    size[queries[is_best]] = tied[is_best]
    return least, size, np.bincount(queries[is_best], minlength=len(least))


def any_in_top(block: QueryBlock, k: int, lists: str | None = None) -> Array:
    """`recall` of a block: no hit before the first group with own ones, and in it place by place,
    without replacement."""
    above, size, own = _above_first(block, lists)
    # How many places of the tie group are among the first k.
    places = np.clip(k - above, 0, size)[:, None]
    place = np.arange(places.max())
    # The chance of a hit at each place of the group, with no hit before it.
    chance = np.minimum(own[:, None] / np.maximum(size[:, None] - place, 1), 1)
    missed = np.prod(np.where(place < places, 1 - chance, 1), axis=1)
    positives = block.positives(lists)
    missed[np.diff(positives.indptr) == 0] = 1  # what the gallery lacks is never retrieved
    return np.where(positives.sizes > 0, 1 - missed, np.nan)


def share_in_top(block: QueryBlock, k: int = 0, lists: str | None = None) -> Array:
    """`recall_share` of a block; k = 0 is R-Precision."""
    own, (above, tied) = block.positives(lists), _above_own(block, lists)
    depth = k or own.sizes[own.queries]
    # Each of a tie group has each of its places with the same probability.
    hits = np.bincount(own.queries, np.clip((depth - above) / tied, 0, 1), len(own.sizes))
    return share(hits, own.sizes, np.nan)


def first_of(block: QueryBlock, lists: str | None = None) -> Array:
    """`first_rank` of a block."""
    above, size, own = _above_first(block, lists)
    return np.where(
        np.diff(block.positives(lists).indptr) > 0, above + (size + 1) / (own + 1), np.nan
    )


def map_of(block: QueryBlock, lists: str) -> Array:
    """`map_at_r` of a block: the chance of a hit at each place, times the precision expected beside
    it."""
    own = block.positives(lists)
    hits = block.hits_at(own, _most_positives(own))
    place = np.arange(hits.shape[1])
    start, size = block.ranking.groups(len(place))
    # The hits expected in the tie groups above.
    before = np.take_along_axis(np.cumsum(hits, axis=1) - hits, start, axis=1)
    # The chance of another hit at each other place of the same group.
    beside = (np.rint(hits * size) - 1) / np.maximum(size - 1, 1)
    precision = (before + 1 + (place - start) * beside) / (place + 1)
    return share((hits * precision * (place < own.sizes[:, None])).sum(axis=1), own.sizes, np.nan)


def _most_positives(positives: Positives) -> int:
    """The largest number of positives of a query, at least 1: how deep a ranking R-Precision
    reads."""
    return max(1, int(positives.sizes.max(initial=0)))


def recall(scores: Matrix, own: Matrix, k: int = 1, *, ties: TieRule = "expected") -> Any:
    """R@K of image-text retrieval: 1 if any own candidate is among the first k; NaN for a query
    without one, 0 where the gallery lacks them all.

    Under ties the probability of a hit: 1 - C(g - p, s) / C(g, s) for p own ones in a group of g
    with s places left. Biten et al. 2022, sec. 3.1 (R^V@K); VSE++ evaluation.py.

    >>> recall(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 0.])
    """
    return score_matrix(scores, any_in_top, own=own, ties=ties, k=check_k(k))


def recall_share(scores: Matrix, own: Matrix, k: int = 5, *, ties: TieRule = "expected") -> Any:
    """The share of the own candidates that is among the first k, as information retrieval has
    recall; in [0, 1].

    At most k / |own|: R@1 cannot exceed 0.2 with five captions an image. Biten et al. 2022, eq. 1.

    >>> recall_share(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]), k=2)
    array([0.5])
    """
    return score_matrix(scores, share_in_top, own=own, ties=ties, k=check_k(k))


def first_rank(scores: Matrix, own: Matrix, *, ties: TieRule = "expected") -> Any:
    """The rank of the first own candidate, from 1; its median is medr, its mean meanr.

    Under ties its expectation a + (g + 1) / (p + 1): a above, p own ones in the group of g.

    >>> first_rank(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 2.])
    """
    return score_matrix(scores, first_of, own=own, ties=ties)


def r_precision(scores: Matrix, own: Matrix, *, ties: TieRule = "expected") -> Any:
    """The share of own candidates among the first R, R their number; in [0, 1].

    >>> r_precision(np.array([[0.9, 0.2, 0.5]]), np.array([[True, False, True]]))
    array([1.])
    """
    return score_matrix(scores, share_in_top, own=own, ties=ties)


def map_at_r(scores: Matrix, own: Matrix, *, ties: TieRule = "expected") -> Any:
    """mAP@R = (1/R) sum over r = 1..R of [item r is own] * precision@r, R the number of own
    candidates; in [0, 1].

    NaN for a query without own candidates; under ties its exact expectation. Musgrave et al. 2020;
    Chun et al. 2022 "ECCV Caption", eccv_caption/_metrics.py:compute_eccv_metrics.

    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]))
    array([0.5])
    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), Positives.from_lists([[0, -1, -1, -1]]))
    array([0.25])
    """
    return score_matrix(scores, map_of, own=own, ties=ties)
