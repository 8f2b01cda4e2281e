"""Sums of what the n-grams of an image give each caption, by its postings (CIDEr-D's exact tops).

Sums are of whole units, each gain rounded up: so a sum is never below what the caption gains.
"""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.cider_kernel import first_from
from capgrade.pipelines.measures.tops.cider_gains import POSTINGS, gain_of, gains_of
from capgrade.pipelines.measures.tops.cider_index import BLOCK, LEVELS, LONG
from capgrade.pipelines.measures.tops.cider_packed import rank_of
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit
from capgrade.schemas.prefetch import prefetch

TOGETHER = np.uint64(POSTINGS)  # an unsigned step: no check for negative positions


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


@njit(cache=True, forceinline=True)
def _note(table, begin, end, ix, gains, sums, touched, noted):
    """As `_add`, and note the ranks that gain for the first time; how many are noted then."""
    whole, n = begin + (end - begin) // TOGETHER * TOGETHER, np.uint64(noted)
    for p in range(begin, whole, TOGETHER):
        gains_of(table, p, ix, gains)
        for x in range(TOGETHER):
            n = _gained(rank_of(ix.post[p + x], ix.bits), gains[x], sums, touched, n)
    for p in range(whole, end):
        n = _gained(rank_of(ix.post[p], ix.bits), gain_of(table, ix.post[p], ix), sums, touched, n)
    return n


@njit(cache=True, forceinline=True)
def _gained(r, gain, sums, touched, n):
    touched[n] = r
    n += np.uint64(sums[r] == 0)
    sums[r] += gain
    return n


@njit(cache=True)
def walk_first(n_lists, lists, ix, im, sums, touched):
    """Add up what the first n-grams gain, and note the ranks that gain; how many."""
    post, begin, end, first_term, last_term, n = ix.post, im.begin, im.end, lists.begin, lists.end, np.uint64(0)
    gains = np.empty(POSTINGS, np.uint16)
    for x in range(n_lists):
        for k in range(first_term[x], last_term[x]):
            _ask_for(post, begin[k], end[k])
    for x in range(n_lists):
        for k in range(first_term[x], last_term[x]):
            n = _note(im.table[k], np.uint64(begin[k]), np.uint64(end[k]), ix, gains, sums, touched, n)
    return n


@njit(cache=True)
def leaders_of(sums, ranks, lead_sums, leaders):
    """Keep the captions of the largest sums; how many."""
    n, gate = 0, np.uint16(0)
    for r in ranks:
        if sums[r] > gate:
            n = push(np.float32(sums[r]), r, lead_sums, leaders, n, np.uint64(0), None)
            if n == leaders.shape[0]:
                gate = np.uint16(lead_sums[0])
    return n


@njit(cache=True, forceinline=True)
def _add(table, begin, end, ix, gains, sums):
    """Add up what postings begin..end gain."""
    whole = begin + (end - begin) // TOGETHER * TOGETHER
    for p in range(begin, whole, TOGETHER):
        gains_of(table, p, ix, gains)
        for x in range(TOGETHER):
            sums[rank_of(ix.post[p + x], ix.bits)] += gains[x]
    for p in range(whole, end):
        sums[rank_of(ix.post[p], ix.bits)] += gain_of(table, ix.post[p], ix)


@njit(cache=True)
def walk_range(some, lists, j, ix, im, sums):
    """Add up what `some` n-grams gain in range j."""
    post, size = ix.post, ix.range_blocks * BLOCK << ix.bits
    first, last = j * size, (j + 1) * size
    starts, ends = np.empty(im.term.shape[0], np.int64), np.empty(im.term.shape[0], np.int64)
    gains = np.empty(POSTINGS, np.uint16)
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
            _add(im.table[k], np.uint64(starts[k]), np.uint64(ends[k]), ix, gains, sums)
