"""Vector passes over a slice of captions: which of them may enter a sample.

Nearly every caption is beaten by all samples. What costs is to see that: a hash for each sample that may take the
caption. So the passes are loops without branches or tables, which LLVM makes vector code of. They mark a few captions
too many, never one too few; those are then looked at one by one. Each loop is short: more constants than a processor
has registers would cost more than another pass over the first-level cache.
"""

from __future__ import annotations

import numpy as np

from capgrade.schemas.bits import GOLDEN, mix, mix_high
from capgrade.schemas.compiled import njit

STEP = GOLDEN  # between the salts of two samples
ANY = np.uint64(2**64 - 1)  # the limit of a sample with room left
WORDS = 2.0**64
SECOND = 0.02  # what a second hash costs of all captions, in captions that are marked
EXACT = np.uint64(33)  # the bits from this one on are left as they are by the hash's last step


@njit(cache=True)
def hash_pairs(base, caption_keys, pair):
    """Fill uint64 [captions]: the hash of an image, `base`, with each caption."""
    for c in range(caption_keys.shape[0]):
        pair[c] = mix(base + caption_keys[c])


@njit(cache=True)
def mark_low(pair, salt, most, bit, hit):
    """Mark the captions whose key in the sample of this salt is at most `most`, or equal to it in 31 bits."""
    high = np.int64(most >> EXACT)
    for c in range(pair.shape[0]):
        hit[c] |= bit if np.int64(mix_high(pair[c] + salt) >> EXACT) <= high else np.int64(0)


@njit(cache=True)
def mark_outside(values, low, high, top, bit, hit):
    """Mark the values below `low`, not below `high`, or above `top`."""
    for c in range(values.shape[0]):
        v = values[c]
        hit[c] |= bit if (v < low) | (v >= high) | (v > top) else np.int64(0)


@njit(cache=True)
def salted(pair, ended, sample, out):
    """Fill uint64 [captions]: each pair's hash with the salt of sample `sample` + its number in `ended`."""
    for c in range(pair.shape[0]):
        out[c] = pair[c] + (np.uint64(ended[c]) + sample) * STEP


@njit(cache=True)
def common_windows(limit, at, n_windows, begun, ended):
    """The first and last of the run of windows, and their highest limit, that leave the fewest captions marked: those
    outside the run, and those that pass the limit. None: the last before the first. limit[at] is the first window's."""
    a, seen = 0, begun[0]
    for w in range(n_windows):
        seen += begun[w + 1]
        if limit[at + w] < limit[at + a]:
            a = w
    b, most, elsewhere = a, limit[at + a], 0
    for w in range(n_windows + 1):
        elsewhere += begun[w] * (w > a + 1) + ended[w] * (w < a)
    chance, best = seen / WORDS, seen * 1.0
    found = (0, -1, most)
    while True:
        cost = elsewhere + chance * most * (1 if a == b else 2) + seen * (0 if a == b else SECOND)
        if cost < best:
            best, found = cost, (a, b, most)
        left = limit[at + a - 1] if a > 0 else ANY
        right = limit[at + b + 1] if b < n_windows - 1 else ANY
        if min(left, right) == ANY:
            return found
        if left < right:
            a -= 1
            elsewhere -= ended[a]
        else:
            b += 1
            elsewhere -= begun[b + 1]
        most = max(most, min(left, right))
