"""The captions of the highest values of an image."""

import numpy as np

from capgrade.kernels import in_threads, mix_all, njit

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


def _pairs_from_the_kth(values: np.ndarray, k: int) -> np.ndarray:
    """The pairs whose value reaches the k-th highest of their image, with ties: int64, rising."""
    n = values.shape[1]
    if n <= k:
        return np.arange(values.size)
    # The k-th highest of the maxima of groups of captions is a lower bound of the k-th highest
    # value: k groups each have a value as high. Few values reach it, and only these are sorted.
    groups = min(n, max(4 * k, n // _BLOCK))
    highest = np.empty((len(values), groups), np.float32)
    in_threads(_group_maxima, len(values), values, highest)
    rows = np.empty(values.shape, np.int32)  # little of it is written to, so little is memory
    sizes = np.empty(len(values), np.int64)
    in_threads(_reaching, len(values), values, np.partition(highest, -k)[:, -k], rows, sizes)
    pairs = []
    for b, (own, size) in enumerate(zip(values, sizes, strict=True)):
        row = rows[b, :size]
        kth = np.partition(own[row], -k)[-k]
        pairs.append(row[own[row] >= kth] + b * np.int64(n))
    return np.concatenate(pairs)


def highest_pairs(
    values: np.ndarray, k: int, seeds: np.ndarray, caption_keys: np.ndarray
) -> np.ndarray:
    """The pairs of the k highest values of each image: int64, rising, image x captions + caption.

    values float32 [images, captions], without NaN. Of equal ones those of the lowest hashes.
    """
    if not k:
        return np.empty(0, np.int64)
    pairs, n = _pairs_from_the_kth(values, k), values.shape[1]
    image = pairs // n
    hashes = mix_all(seeds[image] + caption_keys[pairs % n])
    order = np.lexsort((hashes, -values.ravel()[pairs], image))
    place = np.arange(len(order)) - np.searchsorted(image, image)  # within the image
    return np.sort(pairs[order[place < k]])
