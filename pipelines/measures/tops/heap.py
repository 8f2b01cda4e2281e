"""The best captions so far: a heap of values and rows whose first is the worst. Equal values rank by `Ties`: the
hashes of an image and of all captions, and where `captions` is None by rising row."""

from __future__ import annotations

import numpy as np

from capgrade.schemas.compiled import njit
from capgrade.schemas.ties import sooner

BLOCK = 64  # captions compared together


@njit(cache=True, inline="always")
def _better(value, row, other, other_row, image, captions):
    if value != other:
        return value > other
    if captions is None:
        return row < other_row
    return sooner(row, other_row, image, captions)


@njit(cache=True)
def push(value, row, values, rows, size, image, captions):
    """Offer a caption to the heap `values`, `rows` [room], which holds `size`; the new size."""
    room = values.shape[0]
    if size < room:
        k = size
        while k and _better(values[(k - 1) // 2], rows[(k - 1) // 2], value, row, image, captions):
            values[k], rows[k] = values[(k - 1) // 2], rows[(k - 1) // 2]
            k = (k - 1) // 2
        values[k], rows[k] = value, row
        return size + 1
    if not room or not _better(value, row, values[0], rows[0], image, captions):
        return size
    k = 0
    while 2 * k + 1 < room:
        child = 2 * k + 1
        if child + 1 < room:
            child += int(_better(values[child], rows[child], values[child + 1], rows[child + 1], image, captions))
        if not _better(value, row, values[child], rows[child], image, captions):
            break
        values[k], rows[k] = values[child], rows[child]
        k = child
    values[k], rows[k] = value, row
    return size


@njit(nogil=True, cache=True)
def offer(begin, end, found, first, values, rows, sizes, images, captions):
    """Offer the captions from row `first` on, found float32 [images, captions], to the heaps values, rows [images,
    room] of images begin..end. Most are passed over by one comparison in vector code, before any heap is looked at."""
    for b in range(begin, end):
        one, room = found[b], values.shape[1]
        if not room:
            return
        for at in range(0, one.shape[0], BLOCK):
            some = one[at : at + BLOCK]
            hits = np.uint8(sizes[b] < room)
            gate = values[b, 0] if sizes[b] == room else np.float32(-np.inf)
            for j in range(some.shape[0]):
                hits |= np.uint8(some[j] >= gate)
            if hits:
                for j in range(some.shape[0]):
                    if sizes[b] < room or some[j] >= values[b, 0]:
                        row = first + at + j
                        sizes[b] = push(some[j], row, values[b], rows[b], sizes[b], images[b], captions)
