"""Kernel of the samplers: captions offered to every sample of every image.

`gates` mark the captions that may enter a sample, a slice of them at a time, and only these are looked at one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.sampling import gates
from capgrade.pipelines.sampling.counts import TOGETHER, count_begun, count_ended, edges_reached, extremes
from capgrade.pipelines.sampling.kernel import SLOT, State, descending, take
from capgrade.schemas.bits import mix
from capgrade.schemas.compiled import njit

SLICE = 1024
GROUP = 16  # of them, passed over together


class Scratch(NamedTuple):
    """Room for a slice of captions."""

    pair: np.ndarray  # uint64 [SLICE]: hashes
    shifted: np.ndarray  # uint64 [SLICE]
    ended: np.ndarray  # uint32 [SLICE]: windows that a value is behind
    hit: np.ndarray  # int64 [SLICE]: marks, bit 0 of the uniform sample, bit 1 + m of the samples of measure m
    reached: np.ndarray  # int64 [windows + TOGETHER]: values that have reached each upper edge
    end_bits: np.ndarray  # int32 [2]: of the lowest and of the highest value
    ends: np.ndarray  # float32 [2]: these values, the same memory


@njit(cache=True)
def _scratch(n_windows):
    words, end_bits = np.empty((2, SLICE), np.uint64), np.empty(2, np.int32)
    ended, hit = np.empty(SLICE, np.uint32), np.empty(SLICE, np.int64)
    return Scratch(
        words[0], words[1], ended, hit, np.empty(n_windows + TOGETHER, np.int64), end_bits, end_bits.view(np.float32)
    )  # fmt: skip


@njit(cache=True)
def _least_top(state, start, m):
    """The value of measure m that a caption must exceed to enter its top: captions come in order, so ties lose."""
    room = start[2 + m] - start[1 + m]
    if state.size[1 + m] < room:
        return np.float32(-np.inf)
    return state.payload[state.heap[start[1 + m], SLOT], m] if room else np.float32(np.inf)


@njit(cache=True)
def _mark(m, values, value_bits, windows, layout, state, scratch, pair, hit):
    """Count the values of measure m by window, and mark those that one of its samples may take."""
    n_measures, n_windows, bit = state.begun.shape[0], windows.lower.shape[1] - 1, 2 << m
    x, top = 1 + n_measures + m * n_windows, _least_top(state, layout.start, m)
    upper, lower, ended = windows.upper[m], windows.lower[m], scratch.ended[: values.shape[0]]
    a, b, most = gates.common_windows(state.limit, x, n_windows, state.begun[m], state.ended[m])
    extremes(value_bits, scratch.end_bits)
    common = count_ended(values, scratch.ends, windows.upper, m, state.ended[m], scratch.reached, ended)
    overlap = count_begun(values, scratch.ends, lower, state.begun[m], upper, scratch.reached)
    if b < a:
        hit |= bit
        return
    gates.mark_outside(values, upper[a - 1] if a else np.float32(-np.inf), lower[b + 1], top, bit, hit)
    if most == 0:  # no window has room
        return
    if a == b:
        gates.mark_low(pair, layout.salt[x + a], most, bit, hit)
        return
    shifted = scratch.shifted[: values.shape[0]]
    gates.salted(pair, ended, np.uint64(x + 1 + common), shifted)
    for j in range(min(overlap, b - a + 1)):
        gates.mark_low(shifted, np.uint64(j) * gates.STEP, most, bit, hit)


@njit(cache=True)
def _take_marked(b, at, first_row, values, value_bits, lower, upper, start, salt, scratch, heap, payload, size, limit):
    """Offer captions `at`.. of the image to the samples that they are marked for."""
    n_measures, n_windows = values.shape[0], lower.shape[1] - 1
    pair, hit = scratch.pair, scratch.hit
    for group in range(0, SLICE, GROUP):
        some = np.int64(0)
        for c in range(group, group + GROUP):
            some |= hit[c]
        if not some:
            continue
        for c in range(group, group + GROUP):
            if not hit[c]:
                continue
            row = first_row + at + c
            if hit[c] & 1:
                key = mix(pair[c] + salt[0])
                if key < limit[0]:
                    _keep(take(0, key, row, start, heap, size, limit), values, b, at + c, payload)
            for m in range(n_measures):
                if hit[c] & (2 << m):
                    key = descending(value_bits[m, b, at + c], row)
                    if key < limit[1 + m]:
                        _keep(take(1 + m, key, row, start, heap, size, limit), values, b, at + c, payload)
                    value, w = values[m, b, at + c], edges_reached(upper, m, values[m, b, at + c])
                    while w < n_windows and value >= lower[m, w]:
                        x = 1 + n_measures + m * n_windows + w
                        key = mix(pair[c] + salt[x])
                        if key < limit[x]:
                            _keep(take(x, key, row, start, heap, size, limit), values, b, at + c, payload)
                        w += 1


@njit(cache=True)
def _keep(slot, values, b, c, payload):
    """Copy a caption's values to its slot."""
    for m in range(values.shape[0]):
        payload[slot, m] = values[m, b, c]


@njit(cache=True)
def _offer_image(base, caption_keys, first_row, b, values, value_bits, windows, layout, mine):
    """`offer` of image b."""
    scratch = _scratch(windows.lower.shape[1] - 1)
    for at in range(0, values.shape[2], SLICE):
        n = min(SLICE, values.shape[2] - at)
        pair, hit = scratch.pair[:n], scratch.hit[:n]
        scratch.hit[:] = 0
        gates.hash_pairs(base, caption_keys[at : at + n], pair)
        gates.mark_low(pair, layout.salt[0], mine.limit[0], 1, hit)
        for m in range(values.shape[0]):
            row, bits = values[m, b, at : at + n], value_bits[m, b, at : at + n]
            _mark(m, row, bits, windows, layout, mine, scratch, pair, hit)
        _take_marked(
            b, at, first_row, values, value_bits, windows.lower, windows.upper, layout.start, layout.salt, scratch,
            mine.heap, mine.payload, mine.size, mine.limit,
        )  # fmt: skip


@njit(parallel=True, cache=True)
def offer(base, caption_keys, first_row, values, value_bits, windows, layout, state):
    """Offer captions first_row.. to every sample of every image: values float32 [measures, images, captions] and their
    bits as int32, hashes of the images `base` and of the captions."""
    heap, payload, size, limit, begun, ended = state
    for b in prange(values.shape[1]):
        mine = State(heap[b], payload[b], size[b], limit[b], begun[b], ended[b])
        _offer_image(base[b], caption_keys, first_row, b, values, value_bits, windows, layout, mine)
