"""Recall over lists of positives: any of them in the top K, the share of them, the rank of the first.

The lists are the own items (R@K of the field), or any others: CxC, ECCV Caption, an extension set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Block, Matrix, Positives, check_k, of_matrix
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.compiled import njit


@njit(cache=True, nogil=True)
def _any_kernel(order, end, indptr, indices, k):
    rows, n = order.shape
    out, mark = np.full(rows, np.nan), np.zeros(n, np.bool_)
    for row in range(rows):
        own = indices[indptr[row] : indptr[row + 1]]
        if own.size == 0:
            continue
        mark[own] = True
        pos, missed = 0, 1.0
        while pos < min(k, n) and missed > 0:
            stop = end[row, pos]
            slots, size = min(k, stop) - pos, stop - pos
            seen = 0
            for p in range(pos, stop):
                if mark[order[row, p]]:
                    missed *= max(0, size - slots - seen) / (size - seen)  # hypergeometric, one positive at a time
                    seen += 1
            pos = stop
        out[row] = 1.0 - missed
        mark[own] = False
    return out


@njit(cache=True, nogil=True)
def _share_kernel(order, end, indptr, indices, sizes, k):
    """Expected share of the positives in the top k; k = 0 is each query's number of positives."""
    rows, n = order.shape
    out, mark = np.full(rows, np.nan), np.zeros(n, np.bool_)
    for row in range(rows):
        own = indices[indptr[row] : indptr[row + 1]]
        if sizes[row] == 0:
            continue
        mark[own] = True
        cut = min(n, k if k > 0 else sizes[row])
        pos, hits = 0, 0.0
        while pos < cut:
            stop = end[row, pos]
            found = 0
            for p in range(pos, stop):
                found += mark[order[row, p]]
            hits += found * (min(cut, stop) - pos) / (stop - pos)
            pos = stop
        out[row] = hits / sizes[row]
        mark[own] = False
    return out


@njit(cache=True, nogil=True)
def _first_kernel(similarity, indptr, indices, reference):
    """No ranking needed: count what beats the best positive, and what ties with it."""
    rows, n = similarity.shape
    out = np.full(rows, np.nan)
    for row in range(rows):
        own = indices[indptr[row] : indptr[row + 1]]
        if own.size == 0:
            continue
        best, last, found = similarity[row, own[0]], own[0], 0
        for item in own:
            if similarity[row, item] > best or (similarity[row, item] == best and item > last):
                best, last = similarity[row, item], item
        for item in own:
            found += similarity[row, item] == best
        above, tied, later = 0, 0, 0
        for i in range(n):
            above += similarity[row, i] > best
            tied += similarity[row, i] == best
            later += similarity[row, i] == best and i > last
        out[row] = above + (later + 1 if reference else (tied + 1) / (found + 1))
    return out


def any_in_top(block: Block, k: int, lists: str | None = None) -> Array:
    """`recall` of a block."""
    own, ranking = block.positives(lists), block.ranking(k)
    return _any_kernel(ranking.order, ranking.end, own.indptr, own.indices, k)


def share_in_top(block: Block, k: int, lists: str | None = None) -> Array:
    """`recall_share` of a block; k = 0 is R-Precision."""
    own = block.positives(lists)
    ranking = block.ranking(k or longest(own))
    return _share_kernel(ranking.order, ranking.end, own.indptr, own.indices, own.sizes, k)


def first_of(block: Block, lists: str | None = None) -> Array:
    """`first_rank` of a block."""
    own = block.positives(lists)
    block.ranking(1)  # refuses NaN
    reference = block.queries.ties == "reference"
    key = f"first {lists}"
    return block.once(key, lambda: _first_kernel(block.similarity, own.indptr, own.indices, reference))


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
    k = check_k(k)
    return of_matrix(scores, lambda block: any_in_top(block, k, ""), own=own, ties=ties)


def recall_share(scores: Matrix, own: Matrix, k: int = 5, *, ties: Ties = "expected") -> Any:
    """The share of the own candidates that is among the first k, as information retrieval has recall; in [0, 1].

    At most k / |own|: R@1 cannot exceed 0.2 with five captions an image. Biten et al. 2022, eq. 1.

    >>> recall_share(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]), k=2)
    array([0.5])
    """
    k = check_k(k)
    return of_matrix(scores, lambda block: share_in_top(block, k, ""), own=own, ties=ties)


def first_rank(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """The rank of the first own candidate, from 1; its median is medr, its mean meanr.

    Under ties its expectation a + (g + 1) / (p + 1): a above, p own ones in the group of g.

    >>> first_rank(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 2.])
    """
    return of_matrix(scores, lambda block: first_of(block, ""), own=own, ties=ties)


def r_precision(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """The share of own candidates among the first R, R their number; in [0, 1].

    >>> r_precision(np.array([[0.9, 0.2, 0.5]]), np.array([[True, False, True]]))
    array([1.])
    """
    return of_matrix(scores, lambda block: share_in_top(block, 0, ""), own=own, ties=ties)


def median_rank(ranks: Array) -> float:
    """The field's medr, floor of the median of ranks counted from 1 (VSE++: floor(median) + 1 from 0)."""
    return float(np.floor(np.nanmedian(ranks)))
