"""Sums of what the n-grams of an image give each caption, by its postings (CIDEr-D's exact tops).

Sums are of whole units, each gain rounded up: so a sum is never below what the caption gains.
"""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.cider_kernel import first_from
from capgrade.pipelines.measures.tops.cider_index import BLOCK, LEVELS, LONG
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit
from capgrade.schemas.prefetch import prefetch

POSTINGS = 8  # that a line of the cache holds


@njit(cache=True, inline="always")
def _gain(table, k, post, norms, p):
    """In units, rounded up."""
    return np.uint16(np.int32(table[k, post[p, 1] & np.uint32(255)] * norms[p, 1]) + np.int32(1))


@njit(cache=True, forceinline=True)
def _ask_for(post, begin, end):
    """Ask for these postings."""
    for p in range(begin, end, POSTINGS):
        prefetch(post, p)


@njit(cache=True)
def first_lists(lists, most):
    """The n-grams of as many levels as have `most` postings, but one level at least."""
    level = 0
    while level + 1 < len(LEVELS) and lists.size[level + 1] <= most:
        level += 1
    return lists.stop[level]


@njit(cache=True)
def walk_first(n_lists, lists, post, norms, im, sums, touched):
    """Add up what the first n-grams gain, and note the ranks that gain; how many."""
    table, begin, end, first_term, last_term, n = im.table, im.begin, im.end, lists.begin, lists.end, 0
    for x in range(n_lists):
        for k in range(first_term[x], last_term[x]):
            _ask_for(post, begin[k], end[k])
    for x in range(n_lists):
        for k in range(first_term[x], last_term[x]):
            for p in range(begin[k], end[k]):
                r = post[p, 0]
                touched[n] = r
                n += sums[r] == 0
                sums[r] += _gain(table, k, post, norms, p)
    return n


@njit(cache=True)
def leaders_of(sums, ranks, lead_sums, leaders):
    """Keep the captions of the largest sums; how many."""
    n, gate = 0, np.uint16(0)
    for r in ranks:
        if sums[r] > gate:
            n = push(np.float32(sums[r]), r, lead_sums, leaders, n)
            if n == leaders.shape[0]:
                gate = np.uint16(lead_sums[0])
    return n


@njit(cache=True)
def walk_range(some, lists, j, ix, norms, im, sums):
    """Add up what `some` n-grams gain in range j."""
    post, table, first, last = ix.post, im.table, j * ix.range_blocks * BLOCK, (j + 1) * ix.range_blocks * BLOCK
    starts, ends, ranks = np.empty(im.term.shape[0], np.int64), np.empty(im.term.shape[0], np.int64), post[:, 0]
    for x in some:
        for k in range(lists.begin[x], lists.end[x]):
            starts[k], ends[k] = im.begin[k], im.end[k]
            if ends[k] - starts[k] > LONG:
                row = np.searchsorted(ix.long, im.term[k])
                starts[k], ends[k] = ix.starts[row, j], ix.starts[row, j + 1]
            else:
                starts[k] = first_from(ranks, starts[k], ends[k], first)
                ends[k] = first_from(ranks, starts[k], ends[k], last)
            _ask_for(post, starts[k], ends[k])
    for x in some:
        for k in range(lists.begin[x], lists.end[x]):
            for p in range(starts[k], ends[k]):
                sums[post[p, 0]] += _gain(table, k, post, norms, p)
