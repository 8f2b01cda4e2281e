"""Kernels of `among`: which captions an image's hashes draw, and samples of listed captions."""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.pipelines.sampling.counts import edges_reached
from capgrade.pipelines.sampling.kernel import descending, take
from capgrade.schemas.bits import mix
from capgrade.schemas.compiled import njit

UNIFORM, INSIDE, TOP = 1, 2, 4  # marks; measure m has TOP << m
SLICE = 256  # captions looked at together


@njit(cache=True)
def pairs_of(base, caption_keys):
    """uint64 [pairs]: the hash of each pair."""
    out = np.empty(base.shape[0], np.uint64)
    for k in range(base.shape[0]):
        out[k] = mix(base[k] + caption_keys[k])
    return out


@njit(cache=True)
def keys_of(base, caption_keys, salt):
    """uint64 [pairs]: the key of each pair in the sample of this salt."""
    out = np.empty(base.shape[0], np.uint64)
    for k in range(base.shape[0]):
        out[k] = mix(mix(base[k] + caption_keys[k]) + salt)
    return out


@njit(parallel=True, cache=True)
def below(base, caption_keys, salted, salt, limit, rows, counts):
    """Fill each image's captions of hashes, or of keys, up to the limit, as far as there is room; counts all."""
    n, room = caption_keys.shape[0], rows.shape[1]
    for b in prange(base.shape[0]):
        found, hit = 0, np.empty(SLICE, np.uint8)
        for at in range(0, n, SLICE):
            some = caption_keys[at : at + SLICE]
            hits = np.uint8(0)
            if salted:
                for c in range(some.shape[0]):
                    hit[c] = mix(mix(base[b] + some[c]) + salt) <= limit
                    hits |= hit[c]
            else:
                for c in range(some.shape[0]):
                    hit[c] = mix(base[b] + some[c]) <= limit
                    hits |= hit[c]
            if hits:
                for c in range(some.shape[0]):
                    if hit[c]:
                        if found < room:
                            rows[b, found] = at + c
                        found += 1
        counts[b] = found


@njit(parallel=True, cache=True)
def offer_listed(
    base, keys, ptr, rows, marks, values, value_bits, lower, upper, start, salt, heap, payload, size, limit, begun,
    ended,
):  # fmt: skip
    """As `offering.offer`, of listed captions: each to the samples it is marked for, inside the share to windows."""
    n_measures, n_windows = lower.shape[0], lower.shape[1] - 1
    for b in prange(base.shape[0]):
        for k in range(ptr[b], ptr[b + 1]):
            pair, row, mine = mix(base[b] + keys[k]), rows[k], np.ascontiguousarray(values[:, k])
            if marks[k] & UNIFORM:
                key = mix(pair + salt[0])
                if key < limit[b, 0]:
                    payload[b, take(0, key, row, start, heap[b], size[b], limit[b])] = mine
            for m in range(n_measures):
                if marks[k] & (TOP << m):
                    key = descending(value_bits[m, k], row)
                    if key < limit[b, 1 + m]:
                        payload[b, take(1 + m, key, row, start, heap[b], size[b], limit[b])] = mine
                if marks[k] & INSIDE:
                    after, first = edges_reached(lower, m, mine[m]), edges_reached(upper, m, mine[m])
                    begun[b, m, after] += 1
                    ended[b, m, first] += 1
                    for w in range(first, after):
                        x = 1 + n_measures + m * n_windows + w
                        key = mix(pair + salt[x])
                        if key < limit[b, x]:
                            payload[b, take(x, key, row, start, heap[b], size[b], limit[b])] = mine
