"""The captions of the highest values of an image."""

import numpy as np

from capgrade.bits import mix_all
from capgrade.kernels import in_threads, njit

_BLOCK = 64  # captions compared together


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
        for at in range(0, row.shape[0], _BLOCK):
            some, high = row[at : at + _BLOCK], np.uint8(0)
            for j in range(some.shape[0]):
                high |= np.uint8(some[j] >= least[b])
            if high:
                for j in range(some.shape[0]):
                    if some[j] >= least[b]:
                        rows[b, size] = at + j
                        size += 1
        sizes[b] = size


def _reach_the_kth(values: np.ndarray, k: int) -> np.ndarray:
    """The pairs whose value is among the k highest of their image, equal ones all: int64, rising."""
    n = values.shape[1]
    if n <= k:
        return np.arange(values.size)
    groups = min(n, max(4 * k, n // _BLOCK))  # k groups have a value from the kth of their maxima on
    highest = np.empty((len(values), groups), np.float32)
    in_threads(_group_maxima, len(values), values, highest)
    rows, sizes = np.empty(values.shape, np.int32), np.empty(len(values), np.int64)  # few pages are touched
    in_threads(_reaching, len(values), values, np.partition(highest, -k)[:, -k], rows, sizes)
    found = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    best = [row[one[row] >= np.partition(one[row], -k)[-k]] for row, one in zip(found, values, strict=True)]
    return np.concatenate([row + b * np.int64(n) for b, row in enumerate(best)])


def highest_pairs(values: np.ndarray, k: int, seeds: np.ndarray, caption_keys: np.ndarray) -> np.ndarray:
    """The pairs of the k highest values of each image, of equal ones those of the lowest hashes: int64, rising, image x
    captions + caption each; values float32 [images, captions] without NaN."""
    if not k:
        return np.empty(0, np.int64)
    pairs, n = _reach_the_kth(values, k), values.shape[1]
    image = pairs // n
    order = np.lexsort((mix_all(seeds[image] + caption_keys[pairs % n]), -values.ravel()[pairs], image))
    return np.sort(pairs[order[np.arange(len(order)) - np.searchsorted(image, image) < k]])
