"""What METEOR of a caption with a reference cannot exceed, from which of their words match something at all.

Words are bits of one 64-bit number. An alignment has at most the weight of all words that match, each by its best
stage; and its chunks are no fewer than its words less the neighbours among them, which match neighbours or are words of
one match. References whose bound is below
the best score so far need no alignment, which is most of them.
"""

from __future__ import annotations

import numpy as np

from capgrade.bits import ones
from capgrade.kernels import njit

BITS = 64  # longer captions have no bound
# The English task of METEOR 1.5 (Denkowski and Lavie 2014)
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the stages exact, stem, synonym, paraphrase
CLASSES = (1.0, 0.8, 0.6)
CLASS_OF = (0, 2, 1, 2)  # of a stage's weight
# Least penalty by twice the number of neighbours
PENALTY = GAMMA * (1 / (1 + np.arange(2 * BITS) / 2)) ** BETA


@njit(cache=True, forceinline=True)
def count(bits):
    """Number of set bits, int64."""
    return np.int64(ones(np.uint64(bits)))


@njit(cache=True, forceinline=True)
def run_of_bits(start, size):
    """`size` set bits from bit `start` on, uint64."""
    return ((np.uint64(1) << np.uint64(size)) - np.uint64(1)) << np.uint64(start)


@njit(cache=True, forceinline=True)
def f_score(precision, recall):
    """METEOR's weighted harmonic mean (Denkowski and Lavie 2014)."""
    return 1 / ((1 - ALPHA) / precision + ALPHA / recall)


@njit(cache=True, forceinline=True)
def _weight(bits, function):
    """Weight of words by class, uint64 [3], each word in its best one."""
    seen, total = np.uint64(0), 0.0
    for k in range(3):
        new = bits[k] & ~seen
        n, n_function = count(new), count(new & function)
        total += CLASSES[k] * (DELTA * (n - n_function) + (1 - DELTA) * n_function)
        seen |= new
    return total


@njit(cache=True, forceinline=True)
def _look(hits, r, cells, places, bits_1, bits_2):
    """Fill the matching words by class, and for each of the caption's the reference's that it matches, `places`; the
    words, as bits, that may have their neighbour on the right in their own match."""
    for k in range(3):
        bits_1[k], bits_2[k] = 0, 0
    inner_1, inner_2 = np.uint64(0), np.uint64(0)
    for h in range(hits.shape[0]):
        every = np.uint64(0)
        for k in range(3):
            bits = cells[hits[h, 0], r, k]
            every |= bits
            bits_2[k] |= bits
            bits_1[k] |= run_of_bits(hits[h, 1], hits[h, 2]) if bits else np.uint64(0)
        if every:
            inner_2 |= every & every >> np.uint64(1)
            inner_1 |= run_of_bits(hits[h, 1], hits[h, 2] - 1)
            for j in range(hits[h, 1], hits[h, 1] + hits[h, 2]):
                places[j] |= every
    return inner_1, inner_2


@njit(cache=True, forceinline=True)
def bound(c, r, hits, im, index, room):
    """At least METEOR of a caption with reference r of an image, `hits` being the caption's with any of them."""
    ref, places, bits_1, bits_2 = im.refs[r], room.places, room.bits[0], room.bits[1]
    words_1, words_2 = index.ptr[c + 1] - index.ptr[c], index.ptr[ref + 1] - index.ptr[ref]
    if words_1 > BITS or words_2 > BITS:
        return 1.0
    for j in range(words_1 + 1):
        places[j] = 0
    inner_1, inner_2 = _look(hits, r, im.bits, places, bits_1, bits_2)
    weight_1, weight_2 = _weight(bits_1, index.function_bits[c]), _weight(bits_2, index.function_bits[ref])
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    for j in range(words_1):
        both = places[j] & places[j + 1] >> np.uint64(1)
        inner_2 |= both
        inner_1 |= np.uint64(both != 0) << np.uint64(j)
    neighbours = count(inner_1) + count(inner_2)
    penalty = 0.0 if neighbours == words_1 + words_2 - 2 else PENALTY[neighbours]
    return f_score(weight_1 / index.weight[c], weight_2 / index.weight[ref]) * (1 - penalty)
