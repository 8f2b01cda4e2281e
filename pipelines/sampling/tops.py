"""Which captions may be among an image's most relevant, by values that have an error."""

from __future__ import annotations

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import Error

BLOCK = 64  # captions compared together


@njit(cache=True)
def _least(values, k, absolute, relative):
    """The least value that may be among the k highest of some: v + error(v) reaches t - error(t) of the k-th highest t.
    Of values that others surpass it is a lower bound."""
    kth = np.partition(values, values.shape[0] - k)[values.shape[0] - k]
    if absolute == 0 and relative == 0:
        return kth
    least = np.float64(kth) - relative * abs(np.float64(kth)) - 2 * absolute
    return np.nextafter(np.float32(least / (1 + relative * np.sign(least))), np.float32(-np.inf))


@njit(nogil=True, cache=True)
def _candidates(begin, end, values, k, absolute, relative, rows, sizes):
    n = values.shape[1]
    groups = min(n, max(4 * k, n // BLOCK))  # each has one value in so many
    highest = np.empty(groups, np.float32)
    for b in range(begin, end):
        row, out, size, least = values[b], rows[b], 0, np.float32(-np.inf)
        if n > k:
            highest[:] = row[:groups]
            for at in range(groups, n, groups):
                some = row[at : at + groups]
                for j in range(some.shape[0]):
                    highest[j] = some[j] if some[j] > highest[j] else highest[j]
            least = _least(highest, k, absolute, relative)
        for at in range(0, n, BLOCK):
            some, high = row[at : at + BLOCK], np.uint8(0)
            for j in range(some.shape[0]):
                high |= np.uint8(some[j] >= least)
            if high:
                for j in range(some.shape[0]):
                    if some[j] >= least:
                        out[size] = at + j
                        size += 1
        if size > k:
            least = _least(row[out[:size]], k, absolute, relative)
            for j in range(size):
                if row[out[j]] >= least:
                    out[sizes[b]] = out[j]
                    sizes[b] += 1
        else:
            sizes[b] = size


def candidates(values: np.ndarray, k: int, error: Error) -> np.ndarray:
    """The pairs that may be among the k highest of their image: int64, rising, image x captions + caption each.

    values float32 [images, captions] without NaN, within `error` of the true ones.
    """
    rows, sizes = np.empty(values.shape, np.int32), np.zeros(len(values), np.int64)  # few pages are touched
    if k:
        in_threads(_candidates, len(values), values, k, *error, rows, sizes)
    found = zip(rows, sizes, strict=True)
    return np.concatenate([one[:size] + b * np.int64(values.shape[1]) for b, (one, size) in enumerate(found)])
