"""The largest product of each image's vectors with others: folded where it is made, in the processor's registers.

A product's bits depend on its two vectors alone (`schemas.tiles`), so it is the same whatever is multiplied beside it.
"""

from __future__ import annotations

import numpy as np

from capgrade.schemas.compiled import njit
from capgrade.schemas.prefetch import prefetch
from capgrade.schemas.tiles import COLUMNS, ROWS, SIDE, fold, multiply, transpose

ONE = np.float32(1 - 4e-6)  # what is above is 1, but for rounding: own pairs came out as 0.999999..1
LINE = 16  # floats that memory gives at a time


@njit(cache=True)
def grouped(vectors):
    """As `multiply` takes them, float32 [groups x d, ROWS], from float32 [n, d]; zeros fill the last group up."""
    n, d = vectors.shape
    out = np.zeros(((n + ROWS - 1) // ROWS * d, ROWS), np.float32)
    for q in range(n):
        for k in range(d):
            out[q // ROWS * d + k, q % ROWS] = vectors[q, k]
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
def _capped(value):
    """What rounding may carry beyond 1."""
    return np.float32(1) if value > ONE else value


@njit(nogil=True, cache=True)
def largest(begin, end, vectors, start, targets, out):
    """Targets begin..end, float32 [n, d]: the largest product, -1..1, with each image's vectors, those from
    start[image] on of the `grouped` ones, into out[image, target]."""
    d, rows = targets.shape[1], vectors.shape[0] // targets.shape[1] * ROWS
    panel, tile = np.empty((d, COLUMNS), np.float32), np.empty((rows, COLUMNS), np.float32)
    for first in range(begin, end, COLUMNS):
        _pack(targets[:end], first, panel)
        _multiply_all(vectors, panel, tile)
        for i in range(out.shape[0]):
            fold(tile, start[i], start[i + 1], np.float32(-1))
            for j in range(min(COLUMNS, end - first)):
                out[i, first + j] = _capped(tile[start[i], j])


@njit(cache=True)
def _ask_for(flat, rows, d):
    """Ask for these rows of d floats."""
    for row in rows:
        for p in range(row * d, (row + 1) * d, LINE):
            prefetch(flat, p)


@njit(nogil=True, cache=True)
def listed(begin, end, vectors, start, targets, ptr, rows, out):
    """Images begin..end: the same of targets rows[ptr[image] : ptr[image + 1]] alone, into out[ptr[image] :]. vectors
    float32 [any, d], not grouped."""
    d, flat = targets.shape[1], targets.reshape(-1)
    panel, some = np.empty((d, COLUMNS), np.float32), np.empty((COLUMNS, d), np.float32)
    for i in range(begin, end):
        mine = grouped(vectors[start[i] : start[i + 1]])
        tile = np.empty((mine.shape[0] // d * ROWS, COLUMNS), np.float32)
        for at in range(ptr[i], ptr[i + 1], COLUMNS):
            n = min(COLUMNS, ptr[i + 1] - at)
            _ask_for(flat, rows[at + n : min(at + n + COLUMNS, ptr[i + 1])], d)
            for j in range(n):
                some[j] = targets[rows[at + j]]
            _pack(some[:n], 0, panel)
            _multiply_all(mine, panel, tile)
            fold(tile, 0, start[i + 1] - start[i], np.float32(-1))
            for j in range(n):
                out[at + j] = _capped(tile[0, j])
