"""Sums of what the n-grams of an image give each caption, by its postings (CIDEr-D's exact tops).

Sums are of whole units, each gain rounded up: so a sum is never below what the caption gains.
"""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.cider_kernel import first_from
from capgrade.pipelines.measures.tops.cider_index import BLOCK, LEVELS, LONG
from capgrade.pipelines.measures.tops.cider_packed import norm_of, rank_of
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit
from capgrade.schemas.prefetch import prefetch

POSTINGS = 16  # that a line of the cache holds


@njit(cache=True, inline="always")
def _gain(table, posting, ix):
    """In units, rounded up, of a table by class."""
    d = ix.class_of_block[rank_of(posting, ix.bits) // np.uint64(BLOCK)]
    return np.uint16(np.int32(table[d] * norm_of(posting, ix.bits, ix.shift, ix.base)) + np.int32(1))


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
def walk_first(n_lists, lists, ix, im, sums, touched):
    """Add up what the first n-grams gain, and note the ranks that gain; how many."""
    post, begin, end, first_term, last_term, n = ix.post, im.begin, im.end, lists.begin, lists.end, np.uint64(0)
    for x in range(n_lists):
        for k in range(first_term[x], last_term[x]):
            _ask_for(post, begin[k], end[k])
    for x in range(n_lists):
        for k in range(first_term[x], last_term[x]):
            table = im.table[k]
            for posting in post[begin[k] : end[k]]:
                r = rank_of(posting, ix.bits)
                touched[n] = r
                n += np.uint64(sums[r] == 0)
                sums[r] += _gain(table, posting, ix)
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
def walk_range(some, lists, j, ix, im, sums):
    """Add up what `some` n-grams gain in range j."""
    post, size = ix.post, ix.range_blocks * BLOCK << ix.bits
    first, last = j * size, (j + 1) * size
    starts, ends = np.empty(im.term.shape[0], np.int64), np.empty(im.term.shape[0], np.int64)
    for x in some:
        for k in range(lists.begin[x], lists.end[x]):
            starts[k], ends[k] = im.begin[k], im.end[k]
            if ends[k] - starts[k] > LONG:
                row = np.searchsorted(ix.long, im.term[k])
                starts[k], ends[k] = ix.starts[row, j], ix.starts[row, j + 1]
            else:
                starts[k] = first_from(post, starts[k], ends[k], first)
                ends[k] = first_from(post, starts[k], ends[k], last)
            _ask_for(post, starts[k], ends[k])
    for x in some:
        for k in range(lists.begin[x], lists.end[x]):
            table = im.table[k]
            for posting in post[starts[k] : ends[k]]:
                sums[rank_of(posting, ix.bits)] += _gain(table, posting, ix)
