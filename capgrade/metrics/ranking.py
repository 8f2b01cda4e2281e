"""Rankings of whole blocks of queries: one radix sort per query, with its groups of ties.

The tie rule of every metric lives here. Candidates of equal score form a group, and a metric is the expectation
over all orders inside the groups, so the order of the index never matters. `ties="reference"` makes every
candidate a group of its own, later index first: what a stable `numpy.argsort(row)[::-1]` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from capgrade.kernels import njit
from capgrade.schemas.errors import InputError

Array: TypeAlias = npt.NDArray[Any]
Ties: TypeAlias = Literal["expected", "reference"]

_U32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_SIGN, _ALL, _INF = np.uint64(1 << 31), np.uint64(0xFFFFFFFF), np.uint64(0x7F800000)  # of float32's bits
_DIGIT = np.uint64(2047)
COLUMNS = 512  # that a selection of the best folds a row into
_SHIFTS = np.array([32, 43, 54], dtype=np.uint64)  # 11 + 11 + 10 bits of the key


@dataclass(frozen=True)
class Ranking:
    """Candidates of each query from best to worst, (b, n) int32 each.

    `order[q, p]` is the candidate at position p; `end[q, p]` is one past the last position of p's tie group
    under the tie rule asked for; `tied_end` is the same for equal scores, whatever the rule. Only the groups that
    reach into the first `depth` positions are filled.
    """

    order: Array
    end: Array
    tied_end: Array
    depth: int

    def groups(self, depth: int) -> tuple[Array, Array]:
        """Where the tie group of each of the first `depth` positions starts, and its size: (b, depth) each."""
        place, end = np.arange(depth), self.end[:, :depth]
        first = np.ones(end.shape, bool)
        first[:, 1:] = end[:, :-1] == place[1:]
        start = np.maximum.accumulate(np.where(first, place, 0), axis=1)
        return start, end - start


@njit(cache=True, nogil=True)
def _radix(packed, scratch, counts):
    """Sort by the high 32 bits, stable: least significant digit first, passes over one bucket skipped."""
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
    """Rank rows of float32 bits, best first; returns the flat position of a NaN, or -1."""
    rows, n = bits.shape
    packed, scratch = np.empty(n, np.uint64), np.empty(n, np.uint64)
    counts = np.empty((3, 2048), np.int32)
    for row in range(rows):
        for i in range(n):  # filled from the last candidate, so that a stable sort puts later ones first
            item = n - 1 - i
            u = np.uint64(bits[row, item])
            if (u & ~_SIGN) > _INF:
                return row * n + item
            if u == _SIGN:
                u = np.uint64(0)  # -0.0 ties with 0.0
            key = u if u & _SIGN else _ALL ^ (u | _SIGN)
            packed[i] = (key << _U32) | np.uint64(item)
        ordered = _radix(packed, scratch, counts)
        stop, key = n, ordered[n - 1] >> _U32
        for p in range(n - 1, -1, -1):
            here = ordered[p] >> _U32
            if here != key:
                stop, key = p + 1, here
            order[row, p] = np.int64(ordered[p] & _LOW)
            end[row, p] = stop
    return -1


@njit(cache=True, nogil=True)
def _sort_run(scores, order, end, first):
    """Sort candidates by score, stable, and mark their groups; they are at the positions from `first` on."""
    values = np.empty(order.size, scores.dtype)
    for p in range(order.size):
        values[p] = -scores[order[p]]
    if order.size > 1:
        by_value = np.argsort(values, kind="mergesort")
        order[:] = order[by_value]
        values = values[by_value]
    stop = first + order.size
    for p in range(order.size - 1, -1, -1):
        if p < order.size - 1 and values[p] != values[p + 1]:
            stop = first + p + 1
        end[p] = stop


@njit(cache=True, nogil=True)
def _settle(scores, order, end):
    """Of a ranking by float32 the groups of ties, by the float64 scores."""
    for row in range(len(scores)):
        pos = 0
        while pos < order.shape[1]:
            stop = end[row, pos]
            if stop - pos > 1:
                _sort_run(scores[row], order[row, pos:stop], end[row, pos:stop], pos)
            pos = stop


@njit(cache=True, nogil=True)
def _collect(row, best, bound, order):
    """Write the candidates of at least `bound` into `order`, the last first; returns how many.

    Candidate c is in column c modulo their number, so only columns whose `best` reaches the bound are read.
    """
    count = 0
    for column in range(best.size):
        if best[column] >= bound:
            for item in range(column, row.size, best.size):
                if row[item] >= bound:
                    order[count] = item
                    count += 1
    order[:count] = np.sort(order[:count])[::-1]
    return count


@njit(cache=True, nogil=True)
def _rank_some(scores, best, bounds, order, end):
    for row in range(scores.shape[0]):
        count = _collect(scores[row], best[row], bounds[row], order[row])
        _sort_run(scores[row], order[row, :count], end[row, :count], 0)


def _rank_top(scores: Array, depth: int, order: Array, end: Array) -> int:
    """Rank at least what ties with or beats the depth-th best of each row.

    The depth-th best of the columns' maxima is at most the depth-th best of the row, so nothing that counts is below.
    """
    rows, n = scores.shape
    whole = n - n % COLUMNS
    best = scores[:, :whole].reshape(rows, -1, COLUMNS).max(axis=1)  # NaN where there is one
    np.maximum(best[:, : n - whole], scores[:, whole:], out=best[:, : n - whole])
    bad = np.isnan(best).any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        return row * n + int(np.isnan(scores[row]).argmax())
    bounds = np.partition(best, COLUMNS - depth, axis=1)[:, COLUMNS - depth].copy()
    _rank_some(scores, best, bounds, order, end)
    return -1


def _sorted(scores: Array, depth: int, order: Array, end: Array) -> int:
    """Full radix sort, or a selection where that is clearly less work; the flat position of a NaN, or -1."""
    if scores.shape[1] >= COLUMNS and depth <= min(COLUMNS // 4, scores.shape[1] // 16):
        return _rank_top(scores, depth, order, end)
    with np.errstate(over="ignore"):  # infinity ties with what float32 cannot hold, until that is settled
        bad = int(_rank_all(scores.astype(np.float32, copy=False).view(np.uint32), order, end))
    if bad < 0 and scores.dtype == np.float64:
        _settle(scores, order, end)
    return bad


def rank(
    scores: Array,
    ties: Ties = "expected",
    *,
    depth: int | None = None,
    what: str = "similarity",
    first: int = 0,
) -> Ranking:
    """Rank each row of `scores` (b, n), C-contiguous float32 or float64, best first.

    One least-significant-digit radix sort per row, O(n); or a selection, if only the first `depth` positions are
    asked for. NaN is an InputError that names its query (counted from `first`) and its candidate.
    """
    width = scores.shape[1]
    depth = width if depth is None else min(depth, width)
    order, tied_end = np.empty(scores.shape, np.int32), np.empty(scores.shape, np.int32)
    bad = _sorted(scores, depth, order, tied_end)
    if bad >= 0:
        where = f"query {first + bad // width}, candidate {bad % width}"
        raise InputError(f"{what} holds NaN ({where})", remedy="find the pair that has no score and score it")
    if ties == "expected":
        return Ranking(order, tied_end, tied_end, depth)
    alone = np.arange(1, width + 1, dtype=np.int32)
    return Ranking(order, np.tile(alone, (len(scores), 1)), tied_end, depth)


@njit(cache=True, nogil=True)
def mean_gains(order, end, gains, skip, groups, exponential, out):
    """Of one query the gain expected at each of the first places, 0 behind the last candidate.

    Every candidate of a tie group has each of its places with the same probability, so each place has the mean of the
    group's gains (of 2 ** gain - 1, if `exponential`). The candidates of group `skip` are left out.
    """
    out[:] = 0.0
    pos, filled = 0, 0
    while pos < order.size and filled < out.size:
        size, total = 0, 0.0
        for p in range(pos, end[pos]):
            if groups[order[p]] != skip:
                size += 1
                gain = np.float64(gains[order[p]])
                total += 2.0**gain - 1.0 if exponential else gain
        for p in range(filled, min(filled + size, out.size)):
            out[p] = total / size
        filled += size
        pos = end[pos]


@njit(cache=True, nogil=True)
def gains_of_matrix(order, end, gains, skip, groups, exponential, out):
    """`mean_gains` of each query, gains (b, n)."""
    for row in range(len(order)):
        mean_gains(order[row], end[row], gains[row], skip[row], groups, exponential, out[row])


@njit(cache=True, nogil=True)
def gains_of_lists(order, end, indptr, indices, gains, skip, groups, out):
    """`mean_gains` of each query whose list alone has gains: float64, one for each of `indices`."""
    here = np.zeros(order.shape[1])
    for row in range(len(order)):
        listed = slice(indptr[row], indptr[row + 1])
        here[indices[listed]] = gains[listed]
        mean_gains(order[row], end[row], here, skip[row], groups, False, out[row])
        here[indices[listed]] = 0.0
