"""Kernels of `among`: which captions an image's hashes draw, and samples of listed captions."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.sampling.cells import cell_of
from capgrade.pipelines.sampling.kernel import descending, take
from capgrade.pipelines.sampling.keys import ANY, LANES, REST, key_below, lane, share_hash, word
from capgrade.schemas.compiled import njit

UNIFORM, INSIDE, TOP = 1, 2, 4  # marks; measure m has TOP << m
SLICE = 256  # captions looked at together


@njit(cache=True)
def share_hashes(seeds):
    """uint64 [pairs]: the hash of each pair that says whether it is in its image's share."""
    out = np.empty_like(seeds)
    for k in range(seeds.shape[0]):
        out[k] = share_hash(seeds[k])
    return out


@njit(cache=True)
def uniform_keys(seeds):
    """uint64 [pairs]: the key of each pair in the uniform sample."""
    out = np.empty_like(seeds)
    for k in range(seeds.shape[0]):
        out[k] = key_below(word(seeds[k], 0), 0, ANY)
    return out


@njit(nogil=True, cache=True)
def below(begin, end, base, caption_keys, uniform, limit, rows, counts):
    """Fill the captions of images begin..end of hashes up to the limit, or of uniform keys whose highest bits are at
    most its own, as far as there is room; counts all."""
    n, room = caption_keys.shape[0], rows.shape[1]
    for b in range(begin, end):
        found, hit = 0, np.empty(SLICE, np.uint8)
        for at in range(0, n, SLICE):
            some = caption_keys[at : at + SLICE]
            hits = np.uint8(0)
            if uniform:
                for c in range(some.shape[0]):
                    hit[c] = lane(word(base[b] + some[c], 0), 0) <= limit >> REST
                    hits |= hit[c]
            else:
                for c in range(some.shape[0]):
                    hit[c] = share_hash(base[b] + some[c]) <= limit
                    hits |= hit[c]
            if hits:
                for c in range(some.shape[0]):
                    if hit[c]:
                        if found < room:
                            rows[b, found] = at + c
                        found += 1
        counts[b] = found


@njit(nogil=True, cache=True)
def offer_listed(begin, end, base, keys, ptr, rows, marks, values, value_bits, cells, layout, state):
    """As `offering.offer`, of listed captions of images begin..end: each to the samples it is marked for, inside the
    share to windows."""
    edges, first, behind = cells
    start, numbers = layout
    heap, payload, size, limit, counts = state
    n_measures = values.shape[0]
    for b in range(begin, end):
        for k in range(ptr[b], ptr[b + 1]):
            seed, row, mine = base[b] + keys[k], rows[k], np.ascontiguousarray(values[:, k])
            if marks[k] & UNIFORM:
                key = key_below(word(seed, 0), 0, limit[b, 0])
                if key < ANY:
                    payload[b, take(0, key, row, start, heap[b], size[b], limit[b])] = mine
            for m in range(n_measures):
                if marks[k] & (TOP << m):
                    key = descending(value_bits[m, k], row)
                    if key < limit[b, 1 + m]:
                        payload[b, take(1 + m, key, row, start, heap[b], size[b], limit[b])] = mine
                if marks[k] & INSIDE:
                    cell, x = cell_of(edges, m, mine[m]), 1 + n_measures + m * behind[0, -1]
                    counts[b, m, cell] += 1
                    for y in range(x + first[m, cell], x + behind[m, cell]):
                        key = key_below(word(seed, numbers[y] // LANES), numbers[y], limit[b, y])
                        if key < ANY:
                            payload[b, take(y, key, row, start, heap[b], size[b], limit[b])] = mine
