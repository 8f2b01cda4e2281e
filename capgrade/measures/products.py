"""The largest product of each image's vectors with others, folded while it is in the cache.

Each product is a chain of multiply-adds, each rounded once, from the first coordinate to the last.
So its bits depend on the two vectors alone: not on the processor, nor on what else is multiplied
beside it.
"""

from __future__ import annotations

import numpy as np

from capgrade.kernels import njit

_COLUMNS = 128  # targets that are multiplied together
_STEP = 4  # vectors, and coordinates of theirs, that are multiplied while they are in registers
NEAR = 32  # coordinates of all targets that stay in a core's nearest cache
LINE = 16  # floats of a line of the cache
# A value above is 1 but for rounding: own pairs came out as 0.999999 to 1.
ONE = np.float32(1 - 4e-6)


def padded(vectors: np.ndarray) -> np.ndarray:
    """Vectors with zeros behind and below, so that both sizes are multiples of STEP."""
    return np.pad(vectors, [(0, -size % _STEP) for size in vectors.shape])


@njit(cache=True, fastmath={"contract"})  # fused, in the order that is written
def _multiply(vectors, panel, tile):
    """Multiply vectors, float32 [n, d], with a panel of targets, [d * COLUMNS].

    The products go into tile [n * COLUMNS].
    """
    n, d = vectors.shape
    tile[:] = 0
    for begin in range(0, d, NEAR):
        for row in range(0, n, _STEP):
            v, sums = vectors[row : row + _STEP], tile[row * _COLUMNS : (row + _STEP) * _COLUMNS]
            for k in range(begin, min(begin + NEAR, d), _STEP):
                a0, a1, a2, a3 = v[0, k], v[0, k + 1], v[0, k + 2], v[0, k + 3]
                b0, b1, b2, b3 = v[1, k], v[1, k + 1], v[1, k + 2], v[1, k + 3]
                c0, c1, c2, c3 = v[2, k], v[2, k + 1], v[2, k + 2], v[2, k + 3]
                d0, d1, d2, d3 = v[3, k], v[3, k + 1], v[3, k + 2], v[3, k + 3]
                some = panel[k * _COLUMNS : (k + _STEP) * _COLUMNS]
                for j in range(_COLUMNS):
                    p0 = some[j]
                    p1 = some[j + _COLUMNS]
                    p2 = some[j + 2 * _COLUMNS]
                    p3 = some[j + 3 * _COLUMNS]
                    sums[j] = a3 * p3 + (a2 * p2 + (a1 * p1 + (a0 * p0 + sums[j])))
                    at = j + _COLUMNS
                    sums[at] = b3 * p3 + (b2 * p2 + (b1 * p1 + (b0 * p0 + sums[at])))
                    at += _COLUMNS
                    sums[at] = c3 * p3 + (c2 * p2 + (c1 * p1 + (c0 * p0 + sums[at])))
                    at += _COLUMNS
                    sums[at] = d3 * p3 + (d2 * p2 + (d1 * p1 + (d0 * p0 + sums[at])))


@njit(nogil=True, cache=True)
def largest(begin, end, vectors, start, targets, out):
    """The largest product of targets begin..end with each image's vectors, into out[image, target].

    Those of an image are the `padded` vectors from start[image] on; products are -1..1.
    """
    panel = np.zeros(vectors.shape[1] * _COLUMNS, np.float32)
    tile, best = np.empty(vectors.shape[0] * _COLUMNS, np.float32), np.empty(_COLUMNS, np.float32)
    for first in range(begin, end, _COLUMNS):
        n = min(_COLUMNS, end - first)
        for some in range(0, n, LINE):
            for k in range(targets.shape[1]):
                for j in range(some, min(some + LINE, n)):
                    panel[k * _COLUMNS + j] = targets[first + j, k]
        _multiply(vectors, panel, tile)
        for i in range(out.shape[0]):
            best[:] = -1
            for row in range(start[i], start[i + 1]):
                products = tile[row * _COLUMNS : (row + 1) * _COLUMNS]
                for j in range(_COLUMNS):
                    best[j] = max(products[j], best[j])
            for j in range(n):
                out[i, first + j] = np.float32(1) if best[j] > ONE else best[j]
