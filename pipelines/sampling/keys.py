"""The hashes that draw: for each pair of an image and a caption a key of each random sample that may take the pair,
and one of the image's share of the captions.

A pair's seed, the sum of a hash of the image and one of the caption, starts a splitmix64 generator (Steele, Lea and
Flood 2014). Its numbers are words of four lanes, of 16 bits each. The highest 15 bits of key k are the low ones of
lane k % 4 of word k // 4; the others are a hash of the word and k. So one word shows of four samples at once that
they do not take a pair, as is so of nearly all pairs, and the rest of a key is computed for few. Between pairs of the
same relevance the hash of the seed itself decides, which is of no key (`capgrade.bits`).
"""

import numpy as np

from capgrade.bits import GOLDEN, mix
from capgrade.kernels import in_threads, njit

RULE = 5  # the number of this rule: shards drawn by another are not joined
UNIFORM, SHARE, WINDOWS = 0, 1, 2  # numbers of keys: of the uniform sample, the share, the first of windows
LANES, LANE_BITS = 4, 15  # of a word; the bit above those of a lane is of no key
REST = np.uint64(64 - LANE_BITS)  # bits of a key below those of its lane
GUARD = np.uint64(0x8000_8000_8000_8000)
ANY = np.uint64(2**64 - 1)  # the limit that every key is below
TILE = 256  # pairs looked at together
SIGMAS = 4  # of the number drawn: so many more keys are let through than are needed, or once in a while too few


@njit(cache=True)
def word(seed, number):
    """uint64: word `number` of a pair."""
    return mix(seed + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@njit(cache=True)
def key_of(drawn, key):
    """uint64: a key of a pair, from its word."""
    lane = (drawn >> (np.uint64(16) * (np.uint64(key) % np.uint64(LANES)))) & np.uint64(0x7FFF)
    return (lane << REST) | (mix(drawn + (np.uint64(key) + np.uint64(1)) * GOLDEN) >> np.uint64(LANE_BITS))


@njit(cache=True)
def bound_of(limit, key):
    """uint64: the lane of a key, in its word, of what the lanes of keys below a limit are less than; 0 for limit 0."""
    if limit == 0:
        return np.uint64(0)
    return ((limit >> REST) + np.uint64(1)) << (np.uint64(16) * (np.uint64(key) % np.uint64(LANES)))


@njit(cache=True)
def mark(seed, caption_keys, number, bounds, marks):
    """Mark those of some captions whose word `number` has a lane less than that of its bound, uint64 [captions]: others
    have no key below a limit."""
    start = seed + (np.uint64(number) + np.uint64(1)) * GOLDEN
    for j in range(caption_keys.shape[0]):
        marks[j] |= ~((mix(start + caption_keys[j]) | GUARD) - bounds[j]) & GUARD


@njit(cache=True)
def limit_for(wanted, captions):
    """uint64: a limit that so many keys of so many captions are below, nearly always."""
    share = (wanted + SIGMAS * np.sqrt(wanted + 1.0) + SIGMAS) / max(captions, 1)
    return ANY if share >= 1 else np.uint64(share * 2.0**64)


@njit(nogil=True, cache=True)
def _below(begin, end, seeds, caption_keys, limits, rows, sizes):
    bounds, marks = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    bounds[:] = bound_of(limits[UNIFORM], UNIFORM) | bound_of(limits[SHARE], SHARE)
    for b in range(begin, end):
        size = 0
        for at in range(0, caption_keys.shape[0], TILE):
            some = caption_keys[at : at + TILE]
            marks[:] = 0
            mark(seeds[b], some, 0, bounds, marks)
            for j in range(some.shape[0]):
                if marks[j]:
                    rows[b, size] = at + j
                    size += 1
        sizes[b] = size


@njit(cache=True)
def keys_of(pairs, number):
    """uint64 [pairs]: key `number` of each, from their seeds."""
    out = np.empty_like(pairs)
    for k in range(pairs.shape[0]):
        out[k] = key_of(word(pairs[k], number // LANES), number)
    return out


def drawn(seeds: np.ndarray, caption_keys: np.ndarray, uniform: int, among: float) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of the uniform samples of some images, and of their shares of the captions: int64, rising, image x
    captions + caption each. `among`: how large a share is, 0 for none."""
    n, share = len(caption_keys), np.uint64(min(int(among * 2**64), 2**64 - 1))
    limits = np.array([limit_for(uniform, n) if uniform else 0, share], np.uint64)
    while True:
        rows, sizes = np.empty((len(seeds), n), np.int32), np.empty(len(seeds), np.int64)  # few pages are touched
        in_threads(_below, len(seeds), seeds, caption_keys, limits, rows, sizes)
        image = np.repeat(np.arange(len(seeds)), sizes)
        caption = np.concatenate([one[:size] for one, size in zip(rows, sizes, strict=True)]).astype(np.int64)
        pairs = seeds[image] + caption_keys[caption]
        keys = keys_of(pairs, UNIFORM)
        low = np.flatnonzero((keys <= limits[UNIFORM]) & (limits[UNIFORM] > 0))
        low = low[np.lexsort((keys[low], image[low]))]
        rank = np.arange(len(low)) - np.searchsorted(image[low], image[low])
        if limits[UNIFORM] == ANY or (np.bincount(image[low], minlength=len(seeds)) >= min(uniform, n)).all():
            break
        limits[UNIFORM] = min(2 * int(limits[UNIFORM]), int(ANY))
    low = np.sort(low[rank < uniform])
    inside = np.flatnonzero(keys_of(pairs, SHARE) <= share) if among else low[:0]
    return (image * n + caption)[low], (image * n + caption)[inside]
