"""Which captions may be among an image's most relevant, by values that have an error."""

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import Error

BLOCK = 64  # captions compared together


@njit(nogil=True, cache=True)
def _group_maxima(begin, end, values, highest):
    groups = highest.shape[1]
    for b in range(begin, end):
        most = highest[b]
        for at in range(0, values.shape[1], groups):
            some = values[b, at : at + groups]
            for j in range(some.shape[0]):
                most[j] = some[j] if at == 0 or some[j] > most[j] else most[j]


@njit(nogil=True, cache=True)
def _reaching(begin, end, values, least, rows, sizes):
    for b in range(begin, end):
        row, size = values[b], 0
        for at in range(0, row.shape[0], BLOCK):
            some, high = row[at : at + BLOCK], np.uint8(0)
            for j in range(some.shape[0]):
                high |= np.uint8(some[j] >= least[b])
            if high:
                for j in range(some.shape[0]):
                    if some[j] >= least[b]:
                        rows[b, size] = at + j
                        size += 1
        sizes[b] = size


def _least(values: np.ndarray, k: int, error: Error) -> np.ndarray:
    """float32: the least value that may be among the k highest of the last axis: v + error(v) reaches t - error(t) of
    the k-th highest t. Of values that others surpass it is a lower bound."""
    kth: np.ndarray = np.partition(values, -k, axis=-1)[..., -k]
    if not any(error):
        return kth
    least = kth.astype(np.float64) - error.relative * np.abs(kth.astype(np.float64)) - 2 * error.absolute
    below = (least / (1 + error.relative * np.sign(least))).astype(np.float32)
    return np.nextafter(below, np.float32(-np.inf))


def candidates(values: np.ndarray, k: int, error: Error) -> np.ndarray:
    """The pairs that may be among the k highest of their image: int64, rising, image x captions + caption each.

    values float32 [images, captions] without NaN, within `error` of the true ones.
    """
    n = values.shape[1]
    if n <= k or not k:
        return np.arange(values.size if k else 0)
    groups = min(n, max(4 * k, n // BLOCK))  # each has one value in so many
    highest = np.empty((len(values), groups), np.float32)
    in_threads(_group_maxima, len(values), values, highest)
    rows, sizes = np.empty(values.shape, np.int32), np.empty(len(values), np.int64)  # few pages are touched
    in_threads(_reaching, len(values), values, _least(highest, k, error), rows, sizes)
    found = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    best = [row[one[row] >= _least(one[row], k, error)] for row, one in zip(found, values, strict=True)]
    return np.concatenate([row + b * np.int64(n) for b, row in enumerate(best)])
