"""Which captions may be among an image's most relevant, by values that have an error."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.base import Error
from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import in_threads

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
def _candidates(begin, end, values, n, k, absolute, relative, least, rows, sizes):
    groups = min(n, max(4 * k, n // BLOCK))  # each has one value in so many
    highest = np.empty(groups, np.float32)
    for b in range(begin, end):
        row, out, size, found = values[b, :n], rows[b], 0, 0
        if n > k:
            highest[:] = row[:groups]
            for at in range(groups, n, groups):
                some = row[at : at + groups]
                for j in range(some.shape[0]):
                    highest[j] = some[j] if some[j] > highest[j] else highest[j]
            least[b] = max(least[b], _least(highest, k, absolute, relative))
        for at in range(0, n, BLOCK):
            some, high = row[at : at + BLOCK], np.uint8(0)
            for j in range(some.shape[0]):
                high |= np.uint8(some[j] >= least[b])
            if high:
                for j in range(some.shape[0]):
                    if some[j] >= least[b]:
                        out[size] = at + j
                        size += 1
        if size > k:
            least[b] = max(least[b], _least(row[out[:size]], k, absolute, relative))
        for j in range(size):
            out[found] = out[j]
            found += row[out[j]] >= least[b]
        sizes[b] = found


def candidates(values: np.ndarray, n: int, k: int, error: Error, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Image and column int64 of the first n columns' pairs that may be among the k highest of their image.

    values float32 [images, columns] without NaN, within `error` of the true ones. `least`, float32 [images], is what
    such a pair reaches; it is raised by these.
    """
    rows, sizes = np.empty((len(values), n), np.int32), np.zeros(len(values), np.int64)  # few pages are touched
    if k:
        in_threads(_candidates, len(values), values, n, k, *error, least, rows, sizes)
    columns = np.concatenate([one[:size] for one, size in zip(rows, sizes, strict=True)])
    return np.repeat(np.arange(len(values)), sizes), columns.astype(np.int64)
