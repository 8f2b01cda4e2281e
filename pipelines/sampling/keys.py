"""Keys of pairs: a sample takes the captions of the lowest keys of an image.

A pair's seed, the sum of a hash of the image and one of the caption, starts a splitmix64 generator
(Steele, Lea and Flood 2014). Key k is its number k, of 64 bits: each random sample has a key of its
own, and so has the image's share of the captions. Between pairs of the same relevance a hash of the
seed decides, which is no key (`capgrade.kernels`).
"""

import numpy as np

from capgrade.kernels import GOLDEN, in_threads, mix, njit

# The number of this rule. Parts drawn by another are not joined; docs/shards.md has its history.
RULE = 6
# Numbers of keys: of the uniform sample, of the share, and the first of the windows'.
UNIFORM_KEY, SHARE_KEY, WINDOW_KEYS = 0, 1, 2
TILE = 256  # pairs looked at together


@njit(cache=True)
def key_of(seed, number):
    """uint64: a key of a pair, from its seed."""
    return mix(seed + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@njit(cache=True)
def take(key, row, keys, rows, size):
    """Put a caption into a sample of the lowest keys. Returns the sample's new size.

    `keys` and `rows`, which are as long as a sample may be, are a heap with the largest key first:
    that is the one to go.
    """
    if size < keys.shape[0]:
        at = size
        size += 1
        while at and keys[(at - 1) // 2] < key:
            keys[at], rows[at] = keys[(at - 1) // 2], rows[(at - 1) // 2]
            at = (at - 1) // 2
    elif key < keys[0]:
        at, child = 0, 1
        while child < size:
            if child + 1 < size and keys[child + 1] > keys[child]:
                child += 1
            if keys[child] <= key:
                break
            keys[at], rows[at] = keys[child], rows[child]
            at, child = child, 2 * child + 1
    else:
        return size
    keys[at], rows[at] = key, row
    return size


@njit(nogil=True, cache=True)
def _lowest(begin, end, seeds, caption_keys, rows):
    keys, tile = np.empty(rows.shape[1], np.uint64), np.empty(TILE, np.uint64)
    for b in range(begin, end):
        size = 0
        for at in range(0, caption_keys.shape[0], TILE):
            some = caption_keys[at : at + TILE]
            for j in range(some.shape[0]):  # a loop of its own, so that it becomes vectors
                tile[j] = key_of(seeds[b] + some[j], UNIFORM_KEY)
            for j in range(some.shape[0]):
                if size < keys.shape[0] or tile[j] < keys[0]:
                    size = take(tile[j], at + j, keys, rows[b], size)


@njit(nogil=True, cache=True)
def _inside(begin, end, seeds, caption_keys, share, rows, sizes):
    for b in range(begin, end):
        size = 0
        for c in range(caption_keys.shape[0]):
            if key_of(seeds[b] + caption_keys[c], SHARE_KEY) <= share:
                rows[b, size] = c
                size += 1
        sizes[b] = size


def uniform_sample(seeds: np.ndarray, caption_keys: np.ndarray, size: int) -> np.ndarray:
    """Up to `size` captions of each image: int64 pairs, rising, image x captions + caption."""
    n = len(caption_keys)
    rows = np.empty((len(seeds), min(size, n)), np.int64)
    if rows.size:
        in_threads(_lowest, len(seeds), seeds, caption_keys, rows)
    return np.sort((rows + np.arange(len(seeds))[:, None] * n).ravel())


def share_of_captions(seeds: np.ndarray, caption_keys: np.ndarray, among: float) -> np.ndarray:
    """The captions of each image's share of all, `among` in size: pairs as of `uniform_sample`."""
    n, share = len(caption_keys), np.uint64(min(int(among * 2**64), 2**64 - 1))
    rows = np.empty((len(seeds), n), np.int32)  # little of it is written to, so little is memory
    sizes = np.empty(len(seeds), np.int64)
    in_threads(_inside, len(seeds), seeds, caption_keys, share, rows, sizes)
    return np.concatenate([rows[b, :size] + b * np.int64(n) for b, size in enumerate(sizes)])
