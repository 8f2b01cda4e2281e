"""Rankings of whole blocks of queries: one radix sort per query, with its groups of ties.

The tie rule of every metric lives here. Candidates of equal score form a group, and a metric is the
expectation over all orders inside the groups, so the order of the index never matters.
`ties="reference"` makes every candidate a group of its own, later index first: what a stable
`numpy.argsort(row)[::-1]` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from capgrade.kernels import njit
from capgrade.schemas.arrays import Array

TieRule: TypeAlias = Literal["expected", "reference"]

_U32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_SIGN, _ALL = np.uint64(1 << 31), np.uint64(0xFFFFFFFF)  # of float32's bits
_DIGIT = np.uint64(2047)
_PARTS = 8192  # of the range of scores, at most: a table of them stays in a near cache
_SHIFTS = np.array([32, 43, 54], dtype=np.uint64)  # 11 + 11 + 10 bits of the key


@dataclass(frozen=True)
class Ranking:
    """Candidates of each query from best to worst, (b, n) int32 each.

    `order[q, p]` is the candidate at position p; `end[q, p]` is one past the last position of p's
    tie group under the tie rule asked for; `tied_end` is the same for equal scores, whatever the
    rule.
    """

    order: Array
    end: Array
    tied_end: Array

    def groups(self, depth: int) -> tuple[Array, Array]:
        """Where the tie group of each of the first `depth` positions starts, and its size: (b,
        depth) each."""
        place, end = np.arange(depth), self.end[:, :depth]
        first = np.ones(end.shape, bool)
        first[:, 1:] = end[:, :-1] == place[1:]
        start = np.maximum.accumulate(np.where(first, place, 0), axis=1)
        return start, end - start


@njit(cache=True, nogil=True)
def _radix_sort(packed, scratch, counts):
    """Sort by the high 32 bits, stable: least significant digit first, passes over one bucket
    skipped."""
    counts[:] = 0
    n = packed.size
    for i in range(n):
        for d in range(3):
            counts[d, np.int64((packed[i] >> _SHIFTS[d]) & _DIGIT)] += 1
    source, target = packed, scratch
    for d in range(3):
        if counts[d, np.int64((source[0] >> _SHIFTS[d]) & _DIGIT)] == n:
            continue
        total = 0
        for bucket in range(2048):
            counts[d, bucket], total = total, total + int(counts[d, bucket])
        for i in range(n):
            digit = np.int64((source[i] >> _SHIFTS[d]) & _DIGIT)
            target[counts[d, digit]] = source[i]
            counts[d, digit] += 1
        source, target = target, source
    return source


@njit(cache=True, nogil=True)
def _rank_all(bits, order, end):
    """Rank rows of float32 bits, best first."""
    rows, n = bits.shape
    packed, scratch = np.empty(n, np.uint64), np.empty(n, np.uint64)
    counts = np.empty((3, 2048), np.int32)
    for row in range(rows):
        # Filled from the last candidate, so that the stable sort puts later ones first.
        for i in range(n):
            item = n - 1 - i
            u = np.uint64(bits[row, item])
            if u == _SIGN:
                u = np.uint64(0)  # -0.0 ties with 0.0
            key = u if u & _SIGN else _ALL ^ (u | _SIGN)
            packed[i] = (key << _U32) | np.uint64(item)
        ordered = _radix_sort(packed, scratch, counts)
        stop, key = n, ordered[n - 1] >> _U32
        for p in range(n - 1, -1, -1):
            own_key = ordered[p] >> _U32
            if own_key != key:
                stop, key = p + 1, own_key
            order[row, p] = np.int64(ordered[p] & _LOW)
            end[row, p] = stop


@njit(cache=True, nogil=True)
def _sort_ties(scores, order, end):
    """Order each tie group of a ranking by float32 again, by the float64 scores."""
    for row in range(len(scores)):
        pos = 0
        while pos < order.shape[1]:
            stop = end[row, pos]
            if stop - pos > 1:
                tied = order[row, pos:stop]
                values = -scores[row][tied]
                by_value = np.argsort(values, kind="mergesort")
                tied[:], values = tied[by_value], values[by_value]
                last = stop
                for p in range(stop - 1, pos - 1, -1):
                    if p < stop - 1 and values[p - pos] != values[p - pos + 1]:
                        last = p + 1
                    end[row, p] = last
            pos = stop


# Kinds of numbers that float32 holds, each of them.
_HELD_BY_FLOAT32 = (np.float32, np.float16, np.bool_, np.int8, np.uint8, np.int16, np.uint16)


def as_rankable(scores: Array) -> Array:
    """Scores of any real dtype and layout as `rank` takes them, C-contiguous and writable: float32
    if it holds every number of their dtype, else float64, since float32 would make ties of scores
    that differ. It may be the same memory."""
    kind = np.float32 if scores.dtype in _HELD_BY_FLOAT32 else np.float64
    # Kernels are compiled for writable arrays alone.
    return np.require(scores, kind, ["C", "W", "E"])


def rank(scores: Array, ties: TieRule = "expected") -> Ranking:
    """Rank each row of `scores` (b, n), C-contiguous float32 or float64 without NaN, best first: a
    least-significant-digit radix sort, O(n)."""
    order, tied_end = np.empty(scores.shape, np.int32), np.empty(scores.shape, np.int32)
    # Scores that float32 cannot hold tie with infinity until `_sort_ties` parts them.
    with np.errstate(over="ignore"):
        _rank_all(scores.astype(np.float32, copy=False).view(np.uint32), order, tied_end)
    if scores.dtype == np.float64:
        _sort_ties(scores, order, tied_end)
    if ties == "expected":
        return Ranking(order, tied_end, tied_end)
    alone = np.arange(1, scores.shape[1] + 1, dtype=np.int32)
    return Ranking(order, np.tile(alone, (len(scores), 1)), tied_end)


@njit(cache=True, nogil=True)
def _bucket(score, lowest, scale, last):
    """The number of one of even parts of a range, 0 to `last`; never lower for a higher score."""
    part = (score - lowest) * scale
    # Infinity times 0 is no number, and goes to part 0 with all others.
    return (last if part > last else np.int64(part)) if part > 0 else 0


@njit(cache=True, nogil=True)
def count_above(scores, start, items, reference, above, tied):
    """Of listed candidates of each row, items[start[row]:start[row + 1]], how many candidates score
    higher, and how many the same, itself included. By rule `reference` none ties: later ones come
    first.

    Each score is looked up among those of the listed candidates, by a table of parts of their
    range: a third of the time of sorting all.
    """
    for row in range(len(scores)):
        first, stop = start[row], start[row + 1]
        if first == stop:
            continue
        # The listed scores, each once, and infinity behind the last.
        values = np.full(stop - first + 1, np.inf, scores.dtype)
        values[:-1] = scores[row][items[first:stop]]
        values.sort()
        distinct = 1
        for k in range(1, len(values) - 1):
            if values[k] != values[distinct - 1]:
                values[distinct] = values[k]
                distinct += 1
        values[distinct] = np.inf
        low, high = 0, distinct - 1
        while low < high and values[low] == -np.inf:
            low += 1
        while low < high and values[high] == np.inf:
            high -= 1
        lowest, span = np.float64(values[low]), np.float64(values[high]) - np.float64(values[low])
        last = min(16 * distinct, _PARTS) - 1
        scale = (last + 1) / span if 0 < span < np.inf else 0.0
        begins = np.zeros(last + 2, np.int32)
        for k in range(distinct):
            begins[_bucket(values[k], lowest, scale, last) + 1] += 1
        begins = np.cumsum(begins)
        # How many scores are at most each value and more than the one before, and how many it.
        upto, same = np.zeros(distinct + 1, np.int64), np.zeros(distinct + 1, np.int64)
        for item in range(scores.shape[1]):
            score = scores[row, item]
            part = _bucket(score, lowest, scale, last)
            place, end = begins[part], begins[part + 1]
            while place < end:
                middle = (place + end) // 2
                if values[middle] < score:
                    place = middle + 1
                else:
                    end = middle
            upto[place] += 1
            same[place] += values[place] == score
        upto = np.cumsum(upto)
        for k in range(first, stop):
            own = scores[row, items[k]]
            place = np.searchsorted(values[:distinct], own)
            above[k], tied[k] = scores.shape[1] - upto[place], same[place]
            if reference and tied[k] > 1:
                tied[k] = 1
                for item in range(items[k] + 1, scores.shape[1]):
                    above[k] += scores[row, item] == own


@njit(cache=True, nogil=True)
def gains_by_place(order, end, gains, skip, groups, exponential, out):
    """Of each query the gain (b, n) expected at each of the first places, 0 behind the last
    candidate.

    Every candidate of a tie group has each of its places with the same probability, so each place
    has the mean of the group's gains (of 2 ** gain - 1, if `exponential`). The candidates of group
    `skip` of the query are left out.
    """
    out[:] = 0.0
    for row in range(len(order)):
        pos, filled = 0, 0
        while pos < order.shape[1] and filled < out.shape[1]:
            size, total = 0, 0.0
            for p in range(pos, end[row, pos]):
                if groups[order[row, p]] != skip[row]:
                    size += 1
                    gain = np.float64(gains[row, order[row, p]])
                    total += 2.0**gain - 1.0 if exponential else gain
            for p in range(filled, min(filled + size, out.shape[1])):
                out[row, p] = total / size
            filled += size
            pos = end[row, pos]


@njit(cache=True, nogil=True)
def chances(order, end, m, skip, groups, out):
    """Of each query the probability (b, n) that a candidate is among the first m, without those of
    group `skip`."""
    out[:] = 0.0
    for row in range(len(order)):
        pos, filled = 0, 0
        while pos < order.shape[1] and filled < m:
            stop, size = end[row, pos], 0
            for p in range(pos, stop):
                size += groups[order[row, p]] != skip[row]
            for p in range(pos, stop):
                if groups[order[row, p]] != skip[row]:
                    out[row, order[row, p]] = min(size, m - filled) / size
            filled += size
            pos = stop
