"""What sums and bounds do not rule out (CIDEr-D's exact tops): by range of ranks, by block, by caption."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.tops.cider_bounds import bound
from capgrade.pipelines.measures.tops.cider_index import BLOCK, BY, LEVELS
from capgrade.schemas.compiled import njit
from capgrade.schemas.lanes import at_least, lowest_bit
from capgrade.schemas.prefetch import prefetch

TOGETHER = 128  # blocks whose sums stay in the first-level cache


@njit(cache=True, forceinline=True)
def _highest(j, level, lists, ix):
    """What the n-grams above a level give a caption of range j at most."""
    first, last, highest = j * ix.range_blocks, (j + 1) * ix.range_blocks, np.float32(0)
    for d in range(ix.class_start.shape[0] - 1):
        if ix.class_start[d] < last and ix.class_start[d + 1] > first:
            highest = max(highest, bound(ix.most_of_range[level, j], lists.rest[level], d))
    return highest


@njit(cache=True)
def promising(lists, ix):
    """The ranges, those first where common n-grams may give most."""
    highest = np.empty(ix.most_of_range.shape[1], np.float32)
    for j in range(highest.shape[0]):
        highest[j] = -_highest(j, BY, lists, ix)
    return np.argsort(highest)


@njit(cache=True)
def level_of(j, lists, least, ix):
    """The first level whose n-grams above it give no caption of range j so much."""
    level = 0
    while level < len(LEVELS) - 1 and _highest(j, level, lists, ix) >= least:
        level += 1
    return level


@njit(cache=True)
def _lowest(most, rest, d, least, out):
    """The sum that reaches `least` units with the bound of each of these blocks, which are of class d."""
    m0, m1, m2, m3 = rest[0, d], rest[1, d], rest[2, d], rest[3, d]
    for x in range(most.shape[0]):
        b0, b1 = np.float32(most[x] & np.uint32(255)), np.float32(most[x] >> np.uint32(8) & np.uint32(255))
        b2, b3 = np.float32(most[x] >> np.uint32(16) & np.uint32(255)), np.float32(most[x] >> np.uint32(24))
        low = least - (m0 * b0 + m1 * b1 + m2 * b2 + m3 * b3) * np.float32(1 / 255)
        out[x] = np.uint16(np.int32(max(np.float32(0), low)))


@njit(cache=True)
def left(first, last, level, least, lists, ix, sums, room, n):
    """Put the ranks of blocks first..last that the bound leaves behind the n in `room.touched`, and forget the sums;
    how many there are then."""
    n = np.uint64(n)
    for d in range(ix.class_start.shape[0] - 1):
        stop = min(last, ix.class_start[d + 1])
        for begin in range(max(first, ix.class_start[d]), stop, TOGETHER):
            end = min(begin + TOGETHER, stop)
            n = _left(begin, end, d, level, least, lists, ix, sums, room, n)
            sums[begin * BLOCK : end * BLOCK] = 0
    return np.int64(n)


@njit(cache=True)
def _left(begin, end, d, level, least, lists, ix, sums, room, n):
    """As `left`, of blocks of class d; the sums remain."""
    parts, rest, lowest, out = ix.common[level], lists.rest[level], room.lowest, room.touched
    _lowest(ix.most[level, begin:end], rest, d, least, lowest[begin:end])
    n_reached = _reaching(begin, end, sums, lowest, parts, room.blocks, out, n)
    for r in out[n:n_reached]:
        out[n] = r
        n += np.uint64(sums[r] + bound(parts[r], rest, np.uint32(d)) >= least)
    return n


@njit(cache=True)
def _reaching(begin, end, sums, lowest, parts, blocks, out, n):
    """Put the ranks of these blocks whose sum is as large as the block's lowest behind the n in `out`; how many."""
    hits = np.uint64(0)
    for block in range(begin, end):
        blocks[hits] = block
        hits += np.uint64(at_least(sums, block * BLOCK, lowest[block]) != 0)
    for block in blocks[:hits]:
        reached = at_least(sums, block * BLOCK, lowest[block])
        while reached:
            out[n] = block * BLOCK + lowest_bit(reached)
            prefetch(parts, out[n])
            reached &= reached - np.uint64(1)
            n += np.uint64(1)
    return n
