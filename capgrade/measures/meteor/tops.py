"""An image's best captions by METEOR, in three steps, the first of them for all captions and each for fewer.

First what a caption cannot exceed with any reference: each of its words counts the most that a match on it weighs, on
its own side and, as a share of the reference, on the other. Captions are taken from the highest such bound down, and
bounded with each reference by its own (`bound`). What may still be among the best is aligned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.bits import sooner
from capgrade.kernels import njit
from capgrade.measures.meteor.align import alignment_room, module_of, reference_place, reference_words
from capgrade.measures.meteor.bound import BETA, DELTA, GAMMA, SLACK, WEIGHTS, f_score
from capgrade.measures.meteor.kernel import (
    COUNTS,
    FREE,
    MATCHES,
    align_best,
    bound_references,
    find_hits,
    fold,
    mark,
)

LEAST = 0.599  # less than the least weight of a stage
STEP = np.float32(0.9)  # from one level of bounds to the next
LOWEST = np.float32(0.01)  # the last level but 0


class MostOfImage(NamedTuple):
    """The most that matches with an image's references weigh."""

    own: np.ndarray  # float64 [units]: by stage, the best of a caption's unit
    share: np.ndarray  # float64 [units]: of a reference's weight, by what a unit matches there
    left: np.ndarray  # float64 [longest + 1]: of F by the least penalty, for a caption of so many words


@njit(cache=True)
def _most_of(im, words, longest):
    width, longest_ref = im.refs.shape[0], 0
    own, share = np.zeros(im.units.shape[0]), np.zeros(im.units.shape[0])
    for r in range(width):
        ref = im.refs[r]
        longest_ref = max(longest_ref, words.ptr[ref + 1] - words.ptr[ref])
        for x in range(im.units.shape[0]):
            for e in range(im.ptr[x * width + r], im.ptr[x * width + r + 1]):
                match, weight = im.entry[e, 0], 0.0
                first = words.ptr[ref] + reference_place(match)
                for k in range(first, first + reference_words(match)):
                    weight += 1 - DELTA if words.function[k] else DELTA
                of_stage = WEIGHTS[module_of(match)]
                own[x], share[x] = max(own[x], of_stage), max(share[x], of_stage * weight / words.weight[ref])
    left = np.empty(longest + 1)
    for n in range(longest + 1):
        left[n] = 1 - GAMMA * (2 / max(n + longest_ref, 2)) ** BETA
    return MostOfImage(own, share, left)


@njit(cache=True)
def _bound_any(c, units, local, words, most, room):
    """At least METEOR of a caption with any reference; `room` float64 [2, words] is to work in. A unit of several words
    is spread over them, so that the units of an alignment, which share no word, bring no more than their words do."""
    first, n = words.ptr[c], words.ptr[c + 1] - words.ptr[c]
    own, share = room[0, :n], room[1, :n]
    own[:], share[:] = 0, 0
    for o in range(units.ptr[c], units.ptr[c + 1]):
        x = local[units.number[o]]
        if x >= 0:
            size = units.length[o]
            for k in range(units.start[o], units.start[o] + size):
                own[k], share[k] = max(own[k], most.own[x]), max(share[k], most.share[x] / size)
    weight, recall, every = 0.0, 0.0, True
    for k in range(n):
        weight += own[k] * (1 - DELTA if words.function[first + k] else DELTA)
        recall += share[k]
        every &= own[k] > 0
    if weight == 0:
        return 0.0
    f = SLACK * f_score(weight / words.weight[c], min(recall, 1.0))
    return f if every and recall >= LEAST else f * most.left[n]  # without a penalty where all words may match


@njit(cache=True, inline="always")
def _better(value, row, other, other_row, image, captions):
    return value > other or (value == other and sooner(row, other_row, image, captions))


@njit(cache=True)
def _offer(value, row, values, rows, size, image, captions):
    """Offer a caption to the best ones so far, the best first: `values`, `rows` [room], of which `size` are used. Equal
    values rank by the hashes of the image and of all captions. The new size."""
    k = min(size, values.shape[0] - 1)
    if k < size and not _better(value, row, values[k], rows[k], image, captions):
        return size
    while k and _better(value, row, values[k - 1], rows[k - 1], image, captions):
        values[k], rows[k] = values[k - 1], rows[k - 1]
        k -= 1
    values[k], rows[k] = value, row
    return min(size + 1, values.shape[0])


@njit(nogil=True, cache=True)
def tops(begin, end, pairs, index, longest, ties, best, scored):
    """The best captions of pairs.images[begin:end], equal ones by `Ties`, into `best` int64 [images, k]; and how
    many were aligned with a reference or more, int64 [images]."""
    words, units, matches = index
    n_captions, k = words.ptr.shape[0] - 1, best.shape[1]
    local, room = np.full(matches.ptr.shape[0] - 1, FREE, np.int32), alignment_room(longest, MATCHES)
    hits, places = np.empty((7 * longest, 3), np.int64), np.empty(longest + 1, np.uint64)
    by_word, none = np.empty((2, longest)), np.empty((0, COUNTS))
    bounds, values = np.empty(n_captions, np.float32), np.empty(k, np.float32)
    for b in range(begin, end):
        image, rows, size, level = pairs.images[b], best[b], 0, np.float32(1)
        im = fold(pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]], units, matches, local)
        most, of_reference = _most_of(im, words, longest), np.empty(im.refs.shape[0])
        for c in range(n_captions):
            bounds[c] = _bound_any(c, units, local, words, most, by_word)
        while size < k or values[k - 1] < level:
            level = level * STEP if level > LOWEST else np.float32(0)
            for c in range(n_captions):
                least = values[k - 1] if size == k else np.float32(0)
                if bounds[c] < max(level, least):
                    continue
                some = find_hits(c, units, local, hits)
                close = bound_references(c, some, im, pairs.leave_out, words, places, of_reference)
                bounds[c] = min(bounds[c], np.float32(close))
                if bounds[c] >= max(level, least):
                    value = align_best(c, some, im, words, of_reference, least, room, none, 0)
                    value = np.float32(max(value, 0.0))
                    size = _offer(value, c, values, rows, size, ties.images[image], ties.captions)
                    bounds[c] = -1
                    scored[b] += 1
            if level == 0:
                break
        mark(im.units, local, FREE)
