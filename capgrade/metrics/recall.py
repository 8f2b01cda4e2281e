"""Recall over lists of positives: any of them in the top K, the share of them, the rank of the first.

The lists are the own items (R@K of the field), or any others: CxC, ECCV Caption, an extension set.
"""

from __future__ import annotations

import numpy as np

from capgrade.metrics.base import Block, Positives, Queries, check_k, per_query
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


def with_positives(similarity: Array, positives: Positives, ties: Ties) -> Queries:
    """The task of a metric that needs one list of positives per query."""
    return Queries(similarity, positives={"": positives}, ties=ties)


def recall(similarity: Array, positives: Positives, *, k: int, ties: Ties = "expected") -> Array:
    """R^V@K, the recall of the field: 1 if any positive is among the first K, per query, in [0, 1].

    similarity (n_queries, n_candidates); positives as `own_positives(query_image, candidate_image)` gives them.
    Under ties the probability of a hit: 1 - C(g - p, s) / C(g, s) for p positives in a group of g with s places
    left. A query without positives is NaN. Biten et al. 2022, sec. 3.1; VSE++ evaluation.py.
    """
    k = check_k(k)
    return per_query(with_positives(similarity, positives, ties), lambda block: any_in_top(block, k, ""))


def recall_share(similarity: Array, positives: Positives, *, k: int, ties: Ties = "expected") -> Array:
    """R@K: the share of the positives that is among the first K, |G ∩ Q_k| / |G|, per query, in [0, 1].

    At most K/|G|: R@1 cannot exceed 0.2 with five captions per image. Biten et al. 2022, eq. 1.
    """
    k = check_k(k)
    return per_query(with_positives(similarity, positives, ties), lambda block: share_in_top(block, k, ""))


def first_rank(similarity: Array, positives: Positives, *, ties: Ties = "expected") -> Array:
    """Rank of the first positive, from 1; under ties its expectation a + (g + 1) / (p + 1).

    Its mean is the field's meanr; medr is `median_rank`.
    """
    return per_query(with_positives(similarity, positives, ties), lambda block: first_of(block, ""))


def median_rank(ranks: Array) -> float:
    """The field's medr, floor of the median of ranks counted from 1 (VSE++: floor(median) + 1 from 0)."""
    return float(np.floor(np.nanmedian(ranks)))
