"""Kernels of the samplers: what each image of a block has kept so far, and a chunk of captions offered to it.

A sample is a max-heap of the lowest keys that it has seen. Nearly every caption is beaten by all heaps: a first pass
without branches marks those that may enter one, and only these are looked at one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.schemas.bits import GOLDEN, mix
from capgrade.schemas.compiled import njit

ANY = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # the limit of a sample with room left
STEP = GOLDEN  # between the salts of two samples
RARE = np.uint64(1 << 57)  # a limit that lets one caption in 128 in
SLICE = 1024  # captions looked at together
NEGATIVE_ZERO = np.int32(-(2**31))  # bits of the float32
KEY, ROW, SLOT = 0, 1, 2  # columns of a heap: rank in the sample, caption, where the caption's values are


class Windows(NamedTuple):
    """Bounds of windows: float32 [measures, windows + 1], behind the last an infinite one."""

    lower: np.ndarray
    upper: np.ndarray
    low: np.ndarray  # float32 [measures, 2]: where the evenly spaced lower and upper bounds would start
    per_step: np.ndarray  # float32 [measures]: windows per unit of the measure
    overlap: np.ndarray  # int64 [measures]: how many windows hold a value at most


class Layout(NamedTuple):
    """The samples of an image: sample 0 is the uniform one, then the tops, then the windows."""

    start: np.ndarray  # int64 [samples + 1]: where each begins in the image's room
    salt: np.ndarray  # uint64 [samples]


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
    begun: np.ndarray  # int64 [images, measures, windows + 1]: values by how many windows have begun at them
    ended: np.ndarray  # int64, the same: by how many have ended


class Own(NamedTuple):
    """The images' own captions and their values."""

    ptr: np.ndarray  # int64 [images + 1]
    rows: np.ndarray  # int64 [own]
    values: np.ndarray  # float32 [own, measures]


@njit(cache=True)
def mix_all(x):
    """`mix` of uint64 [n]."""
    out = np.empty_like(x)
    for k in range(x.shape[0]):
        out[k] = mix(x[k])
    return out


@njit(cache=True)
def descending(bits, row):
    """A key that sorts by falling value, then by rising row, from the bits of a float32 as int32. Those of -0.0 count
    as those of 0.0: equal values tie."""
    if bits == NEGATIVE_ZERO:
        bits = np.int32(0)
    rising = np.int64(bits) ^ ((np.int64(bits) >> np.int64(31)) & np.int64(0x7FFFFFFF))
    return (np.uint64(np.int64(0x7FFFFFFF) - rising) << np.uint64(32)) | np.uint64(row)


@njit(cache=True)
def _take(heap, at, room, size, key, row):
    """Put a key into the max-heap of the lowest `room` keys at heap[at : at + room], which is not full or has a
    higher one; returns the slot that became the caption's and the highest key to beat from now on."""
    if size[0] < room:
        k = size[0]
        slot = np.uint64(at + k)
        size[0] += 1
        while k > 0 and heap[at + (k - 1) // 2, KEY] < key:
            heap[at + k] = heap[at + (k - 1) // 2]
            k = (k - 1) // 2
    else:
        k = 0
        slot = heap[at, SLOT]
        while 2 * k + 1 < room:
            child = 2 * k + 1
            if child + 1 < room and heap[at + child + 1, KEY] > heap[at + child, KEY]:
                child += 1
            if heap[at + child, KEY] <= key:
                break
            heap[at + k] = heap[at + child]
            k = child
    heap[at + k, KEY], heap[at + k, ROW], heap[at + k, SLOT] = key, np.uint64(row), slot
    return slot, heap[at, KEY] if size[0] == room else ANY


@njit(cache=True)
def take(x, key, row, values, start, heap, payload, size, limit):
    """Sample x of an image takes a caption that its limit lets in, with the caption's values float32 [measures]."""
    slot, limit[x] = _take(heap, start[x], start[x + 1] - start[x], size[x : x + 1], key, row)
    payload[slot] = values


@njit(cache=True)
def _passed(values, edges, low, per_step, out):
    """How many of the ascending edges each value has reached: a guess from their even spacing, put right."""
    last = np.int32(edges.shape[0] - 2)
    for c in range(values.shape[0]):
        guess = np.int32((values[c] - low) * per_step)
        at = np.uint32(min(max(guess, np.int32(0)), last))  # unsigned indices need no wrap-around: vector code
        reached = np.uint32(values[c] >= edges[at]) + np.uint32(values[c] >= edges[at + np.uint32(1)])
        out[c] = at + reached


@njit(cache=True)
def _mark_windows(pair, first, after, overlap, rare, most, sample, hit):
    """Mark the captions that are in a rare window (a bit of `rare`), or whose priority in a window is at most `most`.

    Limits are not looked up: a loop that reads tables by index is not made vector code.
    """
    for j in range(overlap):
        for c in range(pair.shape[0]):
            w = np.uint64(first[c]) + np.uint64(j)
            low = mix(pair[c] + (w + sample) * STEP) <= most
            scarce = ((rare >> w) & np.uint64(1)) == np.uint64(1)
            hit[c] |= np.uint8(low | scarce) & np.uint8(w < np.uint64(after[c]))


@njit(cache=True)
def _rare_windows(limit):
    """Bits of the windows (64 at most) that still take more than one caption in 128; the others' highest limit."""
    bits, most = np.uint64(0), np.uint64(0)
    for w in range(limit.shape[0]):
        if limit[w] > RARE:
            bits |= np.uint64(1) << np.uint64(w)
        else:
            most = max(most, limit[w])
    return bits, most


@njit(cache=True)
def _count(passed, counts):
    """Add to counts[0] how many values have passed so many edges; in four rows, as most are the same number."""
    n = passed.shape[0]
    for c in range(0, n - 3, 4):
        counts[0, passed[c]] += 1
        counts[1, passed[c + 1]] += 1
        counts[2, passed[c + 2]] += 1
        counts[3, passed[c + 3]] += 1
    for c in range(n - n % 4, n):
        counts[0, passed[c]] += 1


@njit(cache=True)
def _least_top(state, start, m):
    """The value of measure m that a caption must exceed to enter its top: captions come in order, so ties lose."""
    room = start[2 + m] - start[1 + m]
    if state.size[1 + m] < room:
        return np.float32(-np.inf)
    return state.payload[state.heap[start[1 + m], SLOT], m] if room else np.float32(np.inf)


@njit(cache=True)
def _offer_slice(base, caption_keys, first_row, values, value_bits, windows, layout, state):
    """`offer` of one image and so few captions that the limits at their start let few by for nothing."""
    lower, upper, limit = windows.lower, windows.upper, state.limit
    n_measures, n = values.shape
    n_windows = lower.shape[1] - 1
    pair, hit = np.empty(n, np.uint64), np.empty(n, np.uint8)
    first, after = np.empty((n_measures, n), np.uint32), np.empty((n_measures, n), np.uint32)
    counts = np.zeros((4, n_windows + 1), np.int64)
    most = limit[0]
    for c in range(n):
        pair[c] = mix(base + caption_keys[c])
        hit[c] = mix(pair[c] + layout.salt[0]) <= most
    for m in range(n_measures):
        least = _least_top(state, layout.start, m)
        row = values[m]
        for c in range(n):
            hit[c] |= row[c] > least
        for edges, begin, passed, total in ((lower, 0, after, state.begun), (upper, 1, first, state.ended)):
            _passed(row, edges[m], windows.low[m, begin], windows.per_step[m], passed[m])
            counts[:] = 0
            _count(passed[m], counts)
            total[m] += counts.sum(0)
        x = 1 + n_measures + m * n_windows
        if n_windows <= 64:
            rare, most = _rare_windows(limit[x : x + n_windows])
            _mark_windows(pair, first[m], after[m], windows.overlap[m], rare, most, np.uint64(x + 1), hit)
        else:
            hit[:] = 1
    for c in range(n):
        if hit[c]:
            _offer_caption(
                pair[c], first_row + c, values[:, c], value_bits[:, c], first[:, c], after[:, c], layout, state
            )  # fmt: skip


@njit(cache=True)
def _offer_caption(pair, row, values, value_bits, first, after, layout, state):
    start, salt = layout.start, layout.salt
    heap, payload, size, limit = state.heap, state.payload, state.size, state.limit
    n_measures = values.shape[0]
    n_windows = (start.shape[0] - 2 - n_measures) // n_measures
    key = mix(pair + salt[0])
    if key < limit[0]:
        take(0, key, row, values, start, heap, payload, size, limit)
    for m in range(n_measures):
        key = descending(value_bits[m], row)
        if key < limit[1 + m]:
            take(1 + m, key, row, values, start, heap, payload, size, limit)
        for w in range(first[m], after[m]):
            x = 1 + n_measures + m * n_windows + w
            key = mix(pair + salt[x])
            if key < limit[x]:
                take(x, key, row, values, start, heap, payload, size, limit)


@njit(cache=True)
def _offer_image(base, caption_keys, first_row, values, value_bits, windows, layout, state):
    for at in range(0, values.shape[1], SLICE):
        some = slice(at, min(at + SLICE, values.shape[1]))
        _offer_slice(
            base, caption_keys[some], first_row + at, values[:, some], value_bits[:, some], windows, layout, state
        )  # fmt: skip


@njit(parallel=True, cache=True)
def offer(base, caption_keys, first_row, values, value_bits, windows, layout, state):
    """Offer captions first_row.. to every sample of every image: values float32 [measures, images, captions] and their
    bits as int32, hashes of the images `base` and of the captions."""
    heap, payload, size, limit, begun, ended = state
    for b in prange(values.shape[1]):
        mine = State(heap[b], payload[b], size[b], limit[b], begun[b], ended[b])
        _offer_image(base[b], caption_keys, first_row, values[:, b], value_bits[:, b], windows, layout, mine)


@njit(cache=True)
def _merge_image(start, heap, payload, size, limit, other_heap, other_payload, other_size):
    for x in range(start.shape[0] - 1):
        for k in range(start[x], start[x] + other_size[x]):
            key = other_heap[k, KEY]
            if key < limit[x]:
                values = other_payload[other_heap[k, SLOT]]
                take(x, key, other_heap[k, ROW], values, start, heap, payload, size, limit)


@njit(parallel=True, cache=True)
def merge(start, state, other_heap, other_payload, other_size):
    """Offer what other captions of the same images have left in their samples."""
    heap, payload, size, limit = state.heap, state.payload, state.size, state.limit
    for b in prange(heap.shape[0]):
        _merge_image(start, heap[b], payload[b], size[b], limit[b], other_heap[b], other_payload[b], other_size[b])


@njit(cache=True)
def _finish_image(own, own_values, n, windows, room, start, state, out_row, out_bits, out_values, out_miss):
    heap, payload, size = state.heap, state.payload, state.size
    lower, upper = windows.lower, windows.upper
    n_samples, n_windows, n_measures = start.shape[0] - 1, lower.shape[1] - 1, payload.shape[1]
    most = out_row.shape[0]
    found, bits, slot = np.empty(most, np.int64), np.empty(most, np.uint32), np.empty(most, np.int64)
    k = 0
    for q in range(own.shape[0]):
        found[k], bits[k], slot[k], k = own[q], 1, -1 - q, k + 1
    for x in range(n_samples):
        m = x - 1 if x <= n_measures else (x - 1 - n_measures) // n_windows
        bit = 2 if x == 0 else (4 if x <= n_measures else 8) << (2 * m)
        for q in range(start[x], start[x] + size[x]):
            found[k], bits[k], slot[k], k = np.int64(heap[q, ROW]), bit, np.int64(heap[q, SLOT]), k + 1
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
            began, over = 0, 0  # values that had not begun, and had not ended, before window w
            for w in range(n_windows):
                began += state.begun[m, w]
                over += state.ended[m, w]
                if lower[m, w] <= out_values[m, x] < upper[m, w]:
                    miss *= 1.0 - min(1.0, room.per_window / max(1, over - began))
        out_miss[x] = miss
    return kept + 1


@njit(parallel=True, cache=True)
def finish(own, n, windows, room, start, state, rows, bits, values, miss, kept):
    """Fill each image's kept captions of n in order, their reasons and values, and the probability that random samples
    miss them; how many. rows, bits, miss [images, most]; values [images, measures, most]."""
    own_ptr, own_rows, own_values = own
    heap, payload, size, limit, begun, ended = state
    for b in prange(heap.shape[0]):
        mine = State(heap[b], payload[b], size[b], limit[b], begun[b], ended[b])
        at = slice(own_ptr[b], own_ptr[b + 1])
        kept[b] = _finish_image(
            own_rows[at], own_values[at], n, windows, room, start, mine, rows[b], bits[b], values[b], miss[b]
        )  # fmt: skip
