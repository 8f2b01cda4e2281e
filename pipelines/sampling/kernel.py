"""Kernels of the samplers: what each image of a block has kept so far.

A sample is a max-heap of the lowest keys that it has seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling.cells import cell_of
from capgrade.pipelines.sampling.keys import ANY
from capgrade.schemas.bits import mix
from capgrade.schemas.compiled import njit

NEGATIVE_ZERO = np.int32(-(2**31))  # bits of the float32
KEY, ROW, SLOT = 0, 1, 2  # columns of a heap: rank in the sample, caption, where the caption's values are
HALF, LOW = np.uint64(32), np.uint64(2**32 - 1)  # a top's KEY has half of the tie's hash, above ROW is the other half


class Windows(NamedTuple):
    """Bounds of windows: float32 [measures, windows + 1], behind the last an infinite one."""

    lower: np.ndarray
    upper: np.ndarray


class Layout(NamedTuple):
    """The samples of an image: sample 0 is the uniform one, then the tops, then the windows."""

    start: np.ndarray  # int64 [samples + 1]: where each begins in the image's room
    key: np.ndarray  # int64 [samples]: the number of the key of each random one; of a top none


class Room(NamedTuple):
    """How many captions a random sample keeps."""

    per_window: int
    uniform: int


class State(NamedTuple):
    """What each image has kept so far; that of one image has one dimension less."""

    heap: np.ndarray  # uint64 [images, room, 3]
    payload: np.ndarray  # float32 [images, room, measures]
    size: np.ndarray  # int64 [images, samples]
    limit: np.ndarray  # uint64 [images, samples]: the highest key to beat
    counts: np.ndarray  # int64 [images, measures, cells]: values in each cell


class Own(NamedTuple):
    """The images' own captions and their values."""

    ptr: np.ndarray  # int64 [images + 1]
    rows: np.ndarray  # int64 [own]
    values: np.ndarray  # float32 [own, measures]


@njit(cache=True)
def descending(bits):
    """The upper half of a key that sorts by falling value, from the bits of a float32 as int32. Those of -0.0 count as
    those of 0.0: equal values tie."""
    if bits == NEGATIVE_ZERO:
        bits = np.int32(0)
    rising = np.int64(bits) ^ ((np.int64(bits) >> np.int64(31)) & np.int64(0x7FFFFFFF))
    return np.uint64(np.int64(0x7FFFFFFF) - rising) << HALF


@njit(cache=True)
def lets_in(x, key, row, start, heap, limit):
    """Whether sample x takes a caption: its key is below the limit, or is the limit and the row is lower."""
    return key < limit[x] or (key == limit[x] and start[x] < start[x + 1] and row < heap[start[x], ROW])


@njit(cache=True)
def tied(high, seed, row):
    """Key and row of a caption in a top, from `descending` and the pair's seed, whose hash decides between ties."""
    tie = mix(seed)
    return high | (tie >> HALF), (tie << HALF) | np.uint64(row)


@njit(cache=True, forceinline=True)
def _after(key, row, other, other_row):
    return (key > other) | ((key == other) & (row > other_row))


@njit(cache=True)
def take(x, key, row, start, heap, size, limit):
    """Sample x of an image, a max-heap of the lowest keys, takes a caption that it `lets_in`; returns the slot for the
    caption's values."""
    at, room, row = start[x], start[x + 1] - start[x], np.uint64(row)
    if size[x] < room:
        k = size[x]
        slot = np.uint64(at + k)
        size[x] += 1
        while k > 0:
            parent = at + (k - 1) // 2
            if not _after(key, row, heap[parent, KEY], heap[parent, ROW]):
                break
            _move(heap, parent, at + k)
            k = (k - 1) // 2
    else:
        k = 0
        slot = heap[at, SLOT]
        while 2 * k + 1 < room:
            child = 2 * k + 1
            if child + 1 < room:  # which of two is a toss-up: no branch
                one, other = at + child + 1, at + child
                child += int(_after(heap[one, KEY], heap[one, ROW], heap[other, KEY], heap[other, ROW]))
            if not _after(heap[at + child, KEY], heap[at + child, ROW], key, row):
                break
            _move(heap, at + child, at + k)
            k = child
    heap[at + k, KEY], heap[at + k, ROW], heap[at + k, SLOT] = key, row, slot
    limit[x] = heap[at, KEY] if size[x] == room else ANY
    return slot


@njit(cache=True)
def _move(heap, source, target):
    for column in range(3):
        heap[target, column] = heap[source, column]


@njit(cache=True)
def _finish_image(own, own_values, n, cells, members, room, start, state, out_row, out_bits, out_values, out_miss):
    heap, payload, size = state.heap, state.payload, state.size
    n_samples, n_windows, n_measures = start.shape[0] - 1, members.shape[1], payload.shape[1]
    most = out_row.shape[0]
    found, bits, slot = np.empty(most, np.int64), np.empty(most, np.uint32), np.empty(most, np.int64)
    k = 0
    for q in range(own.shape[0]):
        found[k], bits[k], slot[k], k = own[q], 1, -1 - q, k + 1
    for x in range(n_samples):
        m = x - 1 if x <= n_measures else (x - 1 - n_measures) // n_windows
        bit = 2 if x == 0 else (4 if x <= n_measures else 8) << (2 * m)
        for q in range(start[x], start[x] + size[x]):
            found[k], bits[k], slot[k], k = np.int64(heap[q, ROW] & LOW), bit, np.int64(heap[q, SLOT]), k + 1
    kept = -1
    for x in np.argsort(found[:k], kind="mergesort"):
        if kept < 0 or out_row[kept] != found[x]:
            kept += 1
            out_row[kept], out_bits[kept] = found[x], 0
            out_values[:, kept] = own_values[-1 - slot[x]] if slot[x] < 0 else payload[slot[x]]
        out_bits[kept] |= bits[x]
    for x in range(kept + 1):
        miss = 1.0 - room.uniform / n if room.uniform < n else 0.0
        for m in range(n_measures):
            cell = cell_of(cells.edges, m, out_values[m, x])
            for w in range(cells.first[m, cell], cells.behind[m, cell]):
                miss *= 1.0 - min(1.0, room.per_window / max(1, members[m, w]))
        out_miss[x] = miss
    return kept + 1


@njit(nogil=True, cache=True)
def finish(begin, end, own, n, cells, members, room, start, state, rows, bits, values, miss, kept):
    """Fill the kept captions of n of images begin..end in order, their reasons and values, and the probability that
    random samples miss them; how many. members int64 [images, measures, windows]; rows, bits, miss [images, most];
    values [images, measures, most]."""
    own_ptr, own_rows, own_values = own
    heap, payload, size, limit, counts = state
    for b in range(begin, end):
        mine = State(heap[b], payload[b], size[b], limit[b], counts[b])
        at = slice(own_ptr[b], own_ptr[b + 1])
        kept[b] = _finish_image(
            own_rows[at], own_values[at], n, cells, members[b], room, start, mine, rows[b], bits[b], values[b], miss[b]
        )  # fmt: skip
