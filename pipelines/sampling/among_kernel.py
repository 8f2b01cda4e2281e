"""Kernels of `among`: which captions an image's hashes draw, and samples of listed captions."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.sampling.cells import cell_of
from capgrade.pipelines.sampling.kernel import descending, take
from capgrade.pipelines.sampling.keys import ANY, GUARD, LANES, SHARE, UNIFORM, key_below, word
from capgrade.schemas.compiled import njit

OF_UNIFORM, INSIDE, TOP = 1, 2, 4  # marks; measure m has TOP << m
TOGETHER = 64  # captions whose hashes are computed before one is looked at


@njit(cache=True)
def keys_of(seeds, key):
    """uint64 [pairs]: key UNIFORM or SHARE of each pair, which are of the first word."""
    out = np.empty_like(seeds)
    for k in range(seeds.shape[0]):
        out[k] = key_below(word(seeds[k], 0), key, ANY)
    return out


@njit(nogil=True, cache=True)
def low(begin, end, base, caption_keys, limits, bound, size, rows, marks, counts, uniform):
    """Fill the captions of images begin..end whose key of the share is up to its limit, and those of the `size` lowest
    uniform keys among those up to theirs, with marks of which, as far as there is room; counts of each image, and of
    uniform keys up to the limit. limits uint64 [2], and as `pack` makes them a word."""
    n, room = caption_keys.shape[0], rows.shape[1]
    left = np.empty(TOGETHER, np.uint64)
    for b in range(begin, end):
        found, seed = 0, base[b]
        for at in range(0, n, TOGETHER):
            some, every = caption_keys[at : at + TOGETHER], GUARD
            for c in range(some.shape[0]):
                left[c] = (word(seed + some[c], 0) | GUARD) - bound  # a lane that is below takes the guard's bit
                every &= left[c]
            if every != GUARD:
                for c in range(some.shape[0]):
                    if left[c] & GUARD != GUARD:
                        mark = _mark(word(seed + some[c], 0), limits)
                        if mark and found < room:
                            rows[b, found], marks[b, found] = at + c, mark
                        found += int(mark > 0)
        counts[b] = found
        if found <= room:
            uniform[b] = _keep_lowest(seed, caption_keys, rows[b, :found], marks[b, :found], size)
            counts[b] = _close_up(rows[b, :found], marks[b, :found])


@njit(cache=True)
def _mark(drawn, limits):
    mark = OF_UNIFORM if key_below(drawn, UNIFORM, ANY) <= limits[UNIFORM] else 0
    return mark | INSIDE if key_below(drawn, SHARE, ANY) <= limits[SHARE] else mark


@njit(cache=True)
def _keep_lowest(seed, caption_keys, rows, marks, size):
    """Leave the mark of the uniform sample to the `size` lowest keys; how many had it."""
    keys = keys_of(seed + caption_keys[rows[marks & OF_UNIFORM > 0]], UNIFORM)
    if keys.shape[0] > size:
        first_out, n = np.sort(keys)[size], 0
        for k in range(rows.shape[0]):
            if marks[k] & OF_UNIFORM:
                marks[k] -= OF_UNIFORM * int(keys[n] >= first_out)
                n += 1
    return keys.shape[0]


@njit(cache=True)
def _close_up(rows, marks):
    """Leave out what has no mark; how many are left."""
    n = 0
    for k in range(rows.shape[0]):
        rows[n], marks[n] = rows[k], marks[k]
        n += int(marks[n] > 0)
    return n


@njit(nogil=True, cache=True)
def together(begin, end, n_captions, rows, marks, ptr, cells, their):
    """Fill cells, image x n_captions + row, and marks of images begin..end, one image's behind the other's."""
    for b in range(begin, end):
        for k in range(ptr[b + 1] - ptr[b]):
            cells[ptr[b] + k], their[ptr[b] + k] = b * n_captions + rows[b, k], marks[b, k]


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
            if marks[k] & OF_UNIFORM:
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
