"""The hashes that draw: for each pair of an image and a caption a key of each random sample that may take the pair,
and one of the image's share of the captions.

A pair's seed, the sum of a hash of the image and one of the caption, starts a splitmix64 generator (Steele, Lea and
Flood 2014). Its numbers are words of four lanes, of 16 bits each. The highest 15 bits of key k are the low ones of
lane k % 4 of word k // 4; the others are a hash of the word and k. So one word shows of four samples at once that
they do not take a pair, as is so of nearly all pairs, and the rest of a key is computed for few. Between pairs of the
same relevance the hash of the seed itself decides, which is of no key (`schemas.ties`).
"""

from __future__ import annotations

import numpy as np

from capgrade.schemas.bits import GOLDEN, mix
from capgrade.schemas.compiled import njit

RULE = 4  # the number of this rule: shards drawn by another are not joined
UNIFORM, SHARE, WINDOWS = 0, 1, 2  # numbers of keys: of the uniform sample, the share, the first of windows
LANES, LANE_BITS = 4, 15  # of a word; the bit above those of a lane is of no key
REST = np.uint64(64 - LANE_BITS)  # bits of a key below those of its lane
GUARD = np.uint64(0x8000_8000_8000_8000)
ANY = np.uint64(2**64 - 1)  # the limit of a sample with room left


@njit(cache=True)
def word(seed, number):
    """uint64: word `number` of a pair, or of an image when a caption's hash is still to be added to `seed` first."""
    return mix(seed + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@njit(cache=True)
def lane(drawn, key):
    """uint64: the highest 15 bits of a key, from its word."""
    return (drawn >> (np.uint64(16) * (np.uint64(key) % np.uint64(LANES)))) & np.uint64(0x7FFF)


@njit(cache=True)
def key_below(drawn, key, limit):
    """uint64: a key of a pair, from its word, if the key is below the limit, ANY if not."""
    high = lane(drawn, key)
    if high > limit >> REST:
        return ANY
    found = (high << REST) | (mix(drawn + (np.uint64(key) + np.uint64(1)) * GOLDEN) >> np.uint64(LANE_BITS))
    return found if found < limit else ANY


@njit(cache=True)
def pack(limits, out):
    """Fill uint64 [words], from limits by key: a lane holds what the lane of a key below the limit is less than."""
    out[:] = 0
    for key in range(limits.shape[0]):
        if limits[key] > 0:
            bound = (limits[key] >> REST) + np.uint64(1)
            out[key // LANES] |= bound << np.uint64(16 * (key % LANES))
