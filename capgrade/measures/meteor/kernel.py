"""METEOR 1.5 of captions with reference sets, over the arrays of `index`: the counts of the best alignment.

The jar scores a corpus by the sums of its sentences' counts, so counts are what an alignment gives; METEOR follows from
them. Of several references the first with the highest score counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import njit
from capgrade.measures.meteor.align import (
    align,
    alignment_room,
    caption_place,
    caption_words,
    module_of,
    packed_match,
    reference_place,
    reference_words,
)
from capgrade.measures.meteor.bound import (
    BETA,
    BITS,
    CLASS_OF,
    DELTA,
    GAMMA,
    WEIGHTS,
    bound,
    f_score,
    run_of_bits,
)
from capgrade.measures.meteor.index import BACKWARD, FORWARD

PLACE, STAGE, BEFORE_PLACE, AFTER_PLACE = 51, 48, 32, 12  # bits of a match's order
MATCHES = 64  # of a caption and a reference, that there is room for at first
FREE, UNASKED = -1, -2  # of a unit in `local`: without a number; of no caption that is asked for
# Columns of the counts: words and function words of both sides, chunks, then by stage content and function words that
# match, of the caption and of the reference.
WORDS_1, WORDS_2, FUNCTION_1, FUNCTION_2, CHUNKS, MATCHED = range(6)
COUNTS = MATCHED + 16


class ReferenceMatches(NamedTuple):
    """The references of an image and what matches them."""

    refs: np.ndarray  # int64 [references]
    units: np.ndarray  # int64 [units]: those of captions that match something, by their number in `local`
    ptr: np.ndarray  # int64 [cells + 2]: matches of each cell, a unit of a caption and a reference
    entry: np.ndarray  # int64 [matches, 2]: match and order, both without the caption's place and words
    bits: np.ndarray  # uint64 [units, references, 3]: words of the reference by class of weight, of each cell


@njit(cache=True)
def fold(refs, units, matches, local):
    """The references of an image; units that match one and are FREE in `local` are numbered there."""
    n, width = 0, refs.shape[0]
    for ref in refs:
        for u in units.number[units.ptr[ref] : units.ptr[ref + 1]]:
            for v in matches.unit[matches.ptr[u] : matches.ptr[u + 1]]:
                if local[v] == FREE:
                    local[v] = n
                    n += 1
    some, ptr, bits = np.empty(n, np.int64), np.zeros(n * width + 2, np.int64), np.zeros((n, width, 3), np.uint64)
    for r in range(width):
        for u in units.number[units.ptr[refs[r]] : units.ptr[refs[r] + 1]]:
            for v in matches.unit[matches.ptr[u] : matches.ptr[u + 1]]:
                if local[v] >= 0:
                    some[local[v]] = v
                    ptr[np.int64(local[v]) * width + r + 2] += 1
    for cell in range(n * width):
        ptr[cell + 2] += ptr[cell + 1]
    entry = np.empty((ptr[-1], 2), np.int64)
    for r in range(width):
        for o in range(units.ptr[refs[r]], units.ptr[refs[r] + 1]):
            place, size, u = np.int64(units.start[o]), np.int64(units.length[o]), units.number[o]
            for m in range(matches.ptr[u], matches.ptr[u + 1]):
                unit, stage = np.int64(local[matches.unit[m]]), np.int64(matches.stage[m])
                if unit < 0:
                    continue
                cell, module = unit * width + r + 1, stage if stage < 3 else 3
                rank = np.int64(matches.rank[m]) << (AFTER_PLACE if stage == FORWARD else 0)
                entry[ptr[cell], 0] = packed_match(place, size, 0, 0, module)
                entry[ptr[cell], 1] = place << PLACE | stage << STAGE | rank
                ptr[cell] += 1  # in the end where the next cell starts
                if place + size <= BITS:
                    bits[unit, r, CLASS_OF[module]] |= run_of_bits(place, size)
    return ReferenceMatches(refs, some, ptr, entry, bits)


@njit(cache=True, forceinline=True)
def mark(units, local, value):
    """What stands in `local` for each of these units."""
    for u in units:
        local[u] = value


@njit(cache=True, forceinline=True)
def find_hits(c, units, local, room):
    """The caption's units that match something, as (unit in `local`, place, words): the first rows of `room`."""
    n = 0
    for o in range(units.ptr[c], units.ptr[c + 1]):
        k = local[units.number[o]]
        if k >= 0:
            room[n, 0], room[n, 1], room[n, 2] = k, units.start[o], units.length[o]
            n += 1
    return room[:n]


@njit(cache=True, forceinline=True)
def _find_matches(hits, r, width, ptr, entry, match, order):
    """The matches of a caption's hits with reference r, sorted, into match: how many, or how many it lacks room for."""
    n = 0
    for h in range(hits.shape[0]):
        j, cell = hits[h, 1], hits[h, 0] * width + r
        own = packed_match(0, 0, j, hits[h, 2], 0)
        for e in range(ptr[cell], ptr[cell + 1]):
            key = entry[e, 1]
            key += j << (BEFORE_PLACE if key >> STAGE & 7 == BACKWARD else 0)
            at = n
            n += 1
            if n <= match.shape[0]:
                while at > 0 and order[at - 1] > key:
                    order[at], match[at] = order[at - 1], match[at - 1]
                    at -= 1
                order[at], match[at] = key, entry[e, 0] | own
    return n


@njit(cache=True, forceinline=True)
def _only_exact(match):
    """Keep the exact matches: how many."""
    kept = 0
    for k in range(match.shape[0]):
        if module_of(match[k]) == 0:
            match[kept] = match[k]
            kept += 1
    return kept


@njit(cache=True, forceinline=True)
def _count(c, ref, node, chunks, nodes, words, out):
    """The counts of an alignment, whose last match is `node`."""
    for k in range(MATCHED, COUNTS):
        out[k] = 0
    start_1, start_2 = words.ptr[c], words.ptr[ref]
    out[WORDS_1], out[WORDS_2] = words.ptr[c + 1] - start_1, words.ptr[ref + 1] - start_2
    out[FUNCTION_1] = (DELTA * out[WORDS_1] - words.weight[c]) / (2 * DELTA - 1)
    out[FUNCTION_2] = (DELTA * out[WORDS_2] - words.weight[ref]) / (2 * DELTA - 1)
    out[CHUNKS] = chunks
    while node >= 0:
        match = nodes[node, 1]
        at, j, i = MATCHED + 4 * module_of(match), caption_place(match), reference_place(match)
        for k in range(start_1 + j, start_1 + j + caption_words(match)):
            out[at + words.function[k]] += 1
        for k in range(start_2 + i, start_2 + i + reference_words(match)):
            out[at + 2 + words.function[k]] += 1
        node = nodes[node, 0]


@njit(cache=True)
def metric(counts):
    """METEOR from counts or their sums: F of precision and recall, less the penalty for fragmentation."""
    weight_1, weight_2, words = 0.0, 0.0, 0.0
    for stage in range(4):
        at = MATCHED + 4 * stage
        weight_1 += WEIGHTS[stage] * (DELTA * counts[at] + (1 - DELTA) * counts[at + 1])
        weight_2 += WEIGHTS[stage] * (DELTA * counts[at + 2] + (1 - DELTA) * counts[at + 3])
        words += counts[at] + counts[at + 1] + counts[at + 2] + counts[at + 3]
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    length_1 = DELTA * (counts[WORDS_1] - counts[FUNCTION_1]) + (1 - DELTA) * counts[FUNCTION_1]
    length_2 = DELTA * (counts[WORDS_2] - counts[FUNCTION_2]) + (1 - DELTA) * counts[FUNCTION_2]
    whole = words == counts[WORDS_1] + counts[WORDS_2] and counts[CHUNKS] <= 1
    penalty = 0.0 if whole else GAMMA * (counts[CHUNKS] / (words / 2)) ** BETA
    return max(f_score(weight_1 / length_1, weight_2 / length_2) * (1 - penalty), 0.0)


@njit(cache=True)
def score_reference(c, r, hits, im, words, room, counts):
    """METEOR of a caption with reference r, from the caption's hits, and its counts."""
    width, ref = im.refs.shape[0], im.refs[r]
    n = _find_matches(hits, r, width, im.ptr, im.entry, room.match[0], room.match[1])
    if n > room.match.shape[1]:
        room = alignment_room(room.covered.shape[1], n)
        _find_matches(hits, r, width, im.ptr, im.entry, room.match[0], room.match[1])
    if words.same[c] == words.same[ref]:  # METEOR then asks no other stage
        n = _only_exact(room.match[0, :n])
    node, chunks = align(room.match[0, :n], words.ptr[ref + 1] - words.ptr[ref], room)
    _count(c, ref, node, chunks, room.nodes, words, counts)
    return metric(counts)


@njit(cache=True)
def bound_references(c, hits, im, leave_out, words, places, bounds):
    """`bound` with each reference into `bounds`, -1 for the caption itself where it is left out. The largest."""
    most = -1.0
    for r in range(bounds.shape[0]):
        bounds[r] = -1.0 if leave_out and im.refs[r] == c else bound(c, r, hits, im, words, places)
        most = max(most, bounds[r])
    return most


@njit(cache=True)
def align_best(c, hits, im, words, bounds, least, room, counts, row):
    """METEOR with the best reference, of equal ones with the first, and its counts into counts[row] where there are
    rows; from the highest of `bounds` down, which are used up. A number below `least` where it is below, -1 of none."""
    best, of, found = -1.0, -1, np.empty(COUNTS)
    for _ in range(bounds.shape[0]):
        r = int(np.argmax(bounds))
        if bounds[r] < max(best, least) or (bounds[r] == best and r > of):
            break
        bounds[r] = -1
        value = score_reference(c, r, hits, im, words, room, found)
        if value > best or (value == best and r < of):
            best, of = value, r
            if counts.shape[0]:
                counts[row] = found
    return best


@njit(nogil=True, cache=True)
def score(begin, end, order, pairs, index, longest, values, counts):
    """METEOR of pairs order[begin:end], in which those of an image follow each other, into values float64 [pairs]; and
    its counts into float64 [pairs, COUNTS], or none into [0, COUNTS]. Of equal references the first counts."""
    words, units, matches = index
    local, room = np.full(matches.ptr.shape[0] - 1, UNASKED, np.int32), alignment_room(longest, MATCHES)
    hits, places = np.empty((7 * longest, 3), np.int64), np.empty(longest + 1, np.uint64)
    k = begin
    while k < end:
        image, last = pairs.images[order[k]], k
        while last < end and pairs.images[order[last]] == image:
            c = pairs.captions[order[last]]
            mark(units.number[units.ptr[c] : units.ptr[c + 1]], local, FREE)
            last += 1
        im = fold(pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]], units, matches, local)
        bounds = np.empty(im.refs.shape[0])
        for pair in order[k:last]:
            c = pairs.captions[pair]
            some = find_hits(c, units, local, hits)
            bound_references(c, some, im, pairs.leave_out, words, places, bounds)
            values[pair] = max(align_best(c, some, im, words, bounds, 0.0, room, counts, pair), 0.0)
        for pair in order[k:last]:
            c = pairs.captions[pair]
            mark(units.number[units.ptr[c] : units.ptr[c + 1]], local, UNASKED)
        k = last
