"""Kernels of the samplers: what each image of a block has kept so far, and a chunk of captions offered to it.

A sample is a max-heap of the lowest keys that it has seen. Nearly every caption is beaten by all heaps: a first pass
without branches marks those that may enter one, and only these are looked at one by one.
"""

from __future__ import annotations

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
    """Sample x takes a caption that its limit lets in, with the caption's values float32 [measures]."""
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
def _least_top(heap, payload, size, start, m):
    """The value of measure m that a caption must exceed to enter its top: captions come in order, so ties lose."""
    room = start[2 + m] - start[1 + m]
    if size[1 + m] < room:
        return np.float32(-np.inf)
    return payload[heap[start[1 + m], SLOT], m] if room else np.float32(np.inf)


@njit(cache=True)
def _offer_slice(
    base, caption_keys, first_row, values, value_bits, lower, upper, low, per_step, overlap, start, salt,
    heap, payload, size, limit, begun, ended,
):  # fmt: skip
    """`offer` of one image and so few captions that the limits at their start let few by for nothing."""
    n_measures, n = values.shape
    n_windows = lower.shape[1] - 1
    pair, hit = np.empty(n, np.uint64), np.empty(n, np.uint8)
    first, after = np.empty((n_measures, n), np.uint32), np.empty((n_measures, n), np.uint32)
    counts = np.zeros((4, n_windows + 1), np.int64)
    most = limit[0]
    for c in range(n):
        pair[c] = mix(base + caption_keys[c])
        hit[c] = mix(pair[c] + salt[0]) <= most
    for m in range(n_measures):
        least = _least_top(heap, payload, size, start, m)
        row = values[m]
        for c in range(n):
            hit[c] |= row[c] > least
        for edges, begin, passed, total in ((lower, 0, after, begun), (upper, 1, first, ended)):
            _passed(row, edges[m], low[m, begin], per_step[m], passed[m])
            counts[:] = 0
            _count(passed[m], counts)
            total[m] += counts.sum(0)
        x = 1 + n_measures + m * n_windows
        if n_windows <= 64:
            rare, most = _rare_windows(limit[x : x + n_windows])
            _mark_windows(pair, first[m], after[m], overlap[m], rare, most, np.uint64(x + 1), hit)
        else:
            hit[:] = 1
    for c in range(n):
        if hit[c]:
            _offer_caption(
                pair[c], first_row + c, values[:, c], value_bits[:, c], first[:, c], after[:, c], start, salt,
                heap, payload, size, limit,
            )  # fmt: skip


@njit(cache=True)
def _offer_caption(
    pair, row, values, value_bits, first, after, start, salt, heap, payload, size, limit
):  # fmt: skip
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


@njit(parallel=True, cache=True)
def offer(
    base, caption_keys, first_row, values, value_bits, lower, upper, low, per_step, overlap, start, salt,
    heap, payload, size, limit, begun, ended,
):  # fmt: skip
    """Offer captions first_row.. to every sample of every image.

    Sample 0 is the uniform one, then the tops, then the windows. values float32 [measures, images, captions]; lower
    and upper float32 [measures, windows + 1], the last infinite; salt uint64 [samples]; heap uint64 [images, room, 3];
    payload float32 [images, room, measures]; size and limit [images, samples]; begun and ended int64 [images,
    measures, windows + 1] count the values by windows that have begun and ended at them.
    """
    n = values.shape[2]
    for b in prange(values.shape[1]):
        for at in range(0, n, SLICE):
            some = slice(at, min(at + SLICE, n))
            _offer_slice(
                base[b], caption_keys[some], first_row + at, values[:, b, some], value_bits[:, b, some], lower, upper,
                low, per_step, overlap, start, salt, heap[b], payload[b], size[b], limit[b], begun[b], ended[b],
            )  # fmt: skip


@njit(parallel=True, cache=True)
def merge(start, heap, payload, size, limit, other_heap, other_payload, other_size):
    """Offer what other captions of the same images have left in their samples."""
    for b in prange(heap.shape[0]):
        for x in range(start.shape[0] - 1):
            for k in range(start[x], start[x] + other_size[b, x]):
                if other_heap[b, k, KEY] < limit[b, x]:
                    values = other_payload[b, other_heap[b, k, SLOT]]
                    row = other_heap[b, k, ROW]
                    take(x, other_heap[b, k, KEY], row, values, start, heap[b], payload[b], size[b], limit[b])


@njit(cache=True)
def _finish_one(
    own, own_values, n, n_measures, lower, upper, per_window, uniform, start, heap, payload, size, begun, ended,
    out_row, out_bits, out_values, out_miss,
):  # fmt: skip
    n_samples, n_windows = start.shape[0] - 1, lower.shape[1] - 1
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
        miss = 1.0 - uniform / n if uniform < n else 0.0
        for m in range(n_measures):
            began, over = 0, 0  # values that had not begun, and had not ended, before window w
            for w in range(n_windows):
                began += begun[m, w]
                over += ended[m, w]
                if lower[m, w] <= out_values[m, x] < upper[m, w]:
                    miss *= 1.0 - min(1.0, per_window / max(1, over - began))
        out_miss[x] = miss
    return kept + 1


@njit(parallel=True, cache=True)
def finish(
    own_ptr, own, own_values, n, lower, upper, per_window, uniform, start, heap, payload, size, begun, ended,
    rows, bits, values, miss, kept,
):  # fmt: skip
    """Fill each image's kept captions in order, their reasons and values, and the probability that random samples
    miss them; how many. rows, bits, miss [images, most]; values [images, measures, most]."""
    for b in prange(heap.shape[0]):
        mine = slice(own_ptr[b], own_ptr[b + 1])
        kept[b] = _finish_one(
            own[mine], own_values[mine], n, payload.shape[2], lower, upper, per_window, uniform, start, heap[b],
            payload[b], size[b], begun[b], ended[b], rows[b], bits[b], values[b], miss[b],
        )  # fmt: skip
