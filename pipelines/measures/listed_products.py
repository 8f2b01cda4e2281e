"""The largest product of an image's vectors with each of the captions that are listed for it."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.products import capped, grouped
from capgrade.schemas.chains import TOGETHER, add_products
from capgrade.schemas.compiled import njit
from capgrade.schemas.prefetch import prefetch
from capgrade.schemas.vectors import SIDE

LINE = 16  # floats that memory gives at a time
PART = 256  # captions of a part of a list, about


@njit(cache=True)
def _choose(rows, at, last, chosen):
    """Fill with the rows from `at` on, the last of them as often as there are no more."""
    for j in range(TOGETHER):
        chosen[j] = rows[min(at + j, last)]


@njit(cache=True)
def _multiply(panel, first, targets, flat, chosen, later, sums):
    """All coordinates of a group's products; and ask for the rows that are multiplied next. Memory gives a line of each
    while one is used."""
    d = targets.shape[1]
    sums[:] = 0
    for k in range(0, d, LINE):
        for row in later:
            prefetch(flat, row * d + k)
        add_products(panel, first, k, min(k + LINE, d), targets, chosen, sums)


@njit(cache=True)
def _largest(panel, count, first, last, targets, flat, rows, out):
    """The largest product of `count` vectors side by side with targets rows[first:last], into out[first:last]."""
    d = targets.shape[1]
    chosen, later = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    sums, best = np.empty((TOGETHER, SIDE), np.float32), np.empty(TOGETHER, np.float32)
    for at in range(first, last, TOGETHER):
        _choose(rows, at, last - 1, chosen)
        _choose(rows, at + TOGETHER, last - 1, later)
        best[:] = -1
        for group in range(panel.shape[0] // d):
            _multiply(panel, group * d, targets, flat, chosen, later, sums)
            for j in range(TOGETHER):
                for q in range(min(SIDE, count - group * SIDE)):
                    best[j] = max(best[j], sums[j, q])
        for j in range(min(TOGETHER, last - at)):
            out[at + j] = capped(best[j])


@njit(nogil=True, cache=True)
def listed(begin, end, vectors, start, targets, ptr, rows, out):
    """Images begin..end: `products.largest` of targets rows[ptr[image] : ptr[image + 1]] alone, -1..1, into
    out[ptr[image] :]. vectors float32 [any, d], those of an image from start[image] on; targets float32 [n, d].

    Lists are taken in parts, a part of all images' lists before the next: where they rise, a row that several images
    list is read while the cache still has it."""
    flat = targets.reshape(-1)
    parts = max(1, (ptr[end] - ptr[begin]) // (PART * max(1, end - begin)))
    for part in range(parts):
        for i in range(begin, end):
            panel, size = grouped(vectors[start[i] : start[i + 1]], SIDE), ptr[i + 1] - ptr[i]
            first, last = ptr[i] + part * size // parts, ptr[i] + (part + 1) * size // parts
            _largest(panel, start[i + 1] - start[i], first, last, targets, flat, rows, out)
