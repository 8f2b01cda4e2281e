"""The largest product of each image's vectors with others: folded where it is made, in the processor's registers.

A product's bits depend on its two vectors alone (`tiles`), so it is the same whatever is multiplied beside it.
"""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.tiles import COLUMNS, ROWS, SIDE, multiply, transpose
from capgrade.schemas.compiled import njit

ONE = np.float32(1 - 4e-6)  # what is above is 1, but for rounding: own pairs came out as 0.999999..1


@njit(cache=True)
def grouped(vectors, size):
    """Side by side in groups of `size`, float32 [groups x d, size], from float32 [n, d]; zeros fill the last group up.
    `multiply` takes groups of ROWS."""
    n, d = vectors.shape
    out = np.zeros(((n + size - 1) // size * d, size), np.float32)
    for q in range(n):
        for k in range(d):
            out[q // size * d + k, q % size] = vectors[q, k]
    return out


@njit(cache=True)
def _pack(targets, first, panel):
    """Fill panel [d, COLUMNS] with COLUMNS rows from `first` on as columns, zeros where there are no more."""
    d, n = panel.shape[0], min(COLUMNS, targets.shape[0] - first)
    blocks, k_blocks = n // SIDE * SIDE, d // SIDE * SIDE
    for c in range(0, blocks, SIDE):
        for k in range(0, k_blocks, SIDE):
            transpose(targets, first + c, k, panel, c)
    for k in range(d):
        for c in range(blocks if k < k_blocks else 0, COLUMNS):
            panel[k, c] = targets[first + c, k] if c < n else np.float32(0)


@njit(cache=True)
def _multiply_all(vectors, panel, tile):
    """All groups with the panel."""
    for group in range(vectors.shape[0] // panel.shape[0]):
        multiply(vectors, group, panel, tile)


@njit(cache=True, forceinline=True)
def capped(value):
    """Without what rounding may carry beyond 1."""
    return np.float32(1) if value > ONE else value


@njit(nogil=True, cache=True)
def largest(begin, end, vectors, start, targets, out):
    """Targets begin..end, float32 [n, d]: the largest product, -1..1, with each image's vectors, those from
    start[image] on of the `grouped` ones, into out[image, target]."""
    d, rows = targets.shape[1], vectors.shape[0] // targets.shape[1] * ROWS
    panel, tile = np.empty((d, COLUMNS), np.float32), np.empty((rows, COLUMNS), np.float32)
    best = np.empty(COLUMNS, np.float32)
    for first in range(begin, end, COLUMNS):
        _pack(targets[:end], first, panel)
        _multiply_all(vectors, panel, tile)
        for i in range(out.shape[0]):
            best[:] = -1
            for row in range(start[i], start[i + 1]):
                for j in range(COLUMNS):
                    best[j] = max(tile[row, j], best[j])
            for j in range(min(COLUMNS, end - first)):
                out[i, first + j] = capped(best[j])
