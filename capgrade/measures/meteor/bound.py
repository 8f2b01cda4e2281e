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
SLACK = 1 + 2**-20  # more than rounding takes: of a bound, and of a value to float32
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
    """Weight of words by class, three uint64, each word in its best one."""
    seen, total = np.uint64(0), 0.0
    for k in range(3):
        new = bits[k] & ~seen
        n, n_function = count(new), count(new & function)
        total += CLASSES[k] * (DELTA * (n - n_function) + (1 - DELTA) * n_function)
        seen |= new
    return total


@njit(cache=True)
def bound(c, r, hits, im, words, places):
    """At least METEOR of a caption with reference r of an image, `hits` being the caption's with any of them. `places`
    uint64 is room for one more than the caption's words: what each matches in the reference."""
    ref, function = im.refs[r], words.function_bits
    words_1, words_2 = words.ptr[c + 1] - words.ptr[c], words.ptr[ref + 1] - words.ptr[ref]
    if words_1 > BITS or words_2 > BITS:
        return SLACK
    for j in range(words_1 + 1):
        places[j] = 0
    none = np.uint64(0)
    a_1, b_1, c_1, a_2, b_2, c_2 = none, none, none, none, none, none  # words that match, by class, of both
    inner_1, inner_2 = none, none  # that may have their neighbour on the right in their own match
    for h in range(hits.shape[0]):
        unit, start, size = hits[h, 0], hits[h, 1], hits[h, 2]
        a, b, c_ = im.bits[unit, r, 0], im.bits[unit, r, 1], im.bits[unit, r, 2]
        every = a | b | c_
        if every:
            mine = run_of_bits(start, size)
            a_1, b_1, c_1 = a_1 | (mine if a else none), b_1 | (mine if b else none), c_1 | (mine if c_ else none)
            a_2, b_2, c_2 = a_2 | a, b_2 | b, c_2 | c_
            inner_2 |= every & every >> np.uint64(1)
            inner_1 |= run_of_bits(start, size - 1)
            for j in range(start, start + size):
                places[j] |= every
    weight_1, weight_2 = _weight((a_1, b_1, c_1), function[c]), _weight((a_2, b_2, c_2), function[ref])
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    for j in range(words_1):
        both = places[j] & places[j + 1] >> np.uint64(1)
        inner_2 |= both
        inner_1 |= np.uint64(both != 0) << np.uint64(j)
    neighbours = count(inner_1) + count(inner_2)
    penalty = 0.0 if neighbours == words_1 + words_2 - 2 else PENALTY[neighbours]
    return SLACK * (f_score(weight_1 / words.weight[c], weight_2 / words.weight[ref]) * (1 - penalty))
