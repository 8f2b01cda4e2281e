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
    caption_place,
    caption_words,
    module_of,
    packed_match,
    reference_place,
    reference_words,
    workspace,
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
SLACK = 1 + 2**-20  # more than rounding takes: of a bound, and of a value to float32
# Columns of the counts: words and function words of both sides, chunks, then by stage content and function words that
# match, of the caption and of the reference.
WORDS_1, WORDS_2, FUNCTION_1, FUNCTION_2, CHUNKS, MATCHED = range(6)
COUNTS = MATCHED + 16


class ReferenceMatches(NamedTuple):
    """The references of an image and what matches them."""

    refs: np.ndarray  # int64 [references]
    ptr: np.ndarray  # int64 [cells + 1]: matches of each cell, a unit of a caption and a reference
    entry: np.ndarray  # int64 [matches, 2], see `_possible_matches`
    bits: np.ndarray  # uint64 [units, references, 3]: words of the reference by class of weight, of each cell


class AlignmentRoom(NamedTuple):
    """Arrays to work in."""

    hits: np.ndarray  # int64 [7 * longest, 3]
    bounds: np.ndarray  # float64 [references]
    places: np.ndarray  # uint64 [longest + 1]
    bits: np.ndarray  # uint64 [2, 3]
    match: np.ndarray  # int64 [2, matches]
    work: tuple[np.ndarray, ...]  # of `align`
    counts: np.ndarray  # float64 [2, COUNTS]: of an alignment, of the best one


@njit(cache=True)
def _number_units(refs, index, local):
    """Number in `local` the units of captions that match something in the references: how many."""
    n = 0
    for ref in refs:
        for u in index.unit[index.unit_ptr[ref] : index.unit_ptr[ref + 1]]:
            for v in index.match_unit[index.match_ptr[u] : index.match_ptr[u + 1]]:
                if local[v] < 0:
                    local[v] = n
                    n += 1
    return n


@njit(cache=True)
def forget(refs, index, local):
    """Empty `local` again."""
    for ref in refs:
        for u in index.unit[index.unit_ptr[ref] : index.unit_ptr[ref + 1]]:
            for v in index.match_unit[index.match_ptr[u] : index.match_ptr[u + 1]]:
                local[v] = -1


@njit(cache=True)
def _cell_starts(refs, index, local, n_units):
    """Where the matches of each cell, a unit of a caption and a reference, start: int64 [cells + 1]."""
    width = refs.shape[0]
    ptr = np.zeros(n_units * width + 1, np.int64)
    for r in range(width):
        for u in index.unit[index.unit_ptr[refs[r]] : index.unit_ptr[refs[r] + 1]]:
            for v in index.match_unit[index.match_ptr[u] : index.match_ptr[u + 1]]:
                ptr[np.int64(local[v]) * width + r + 1] += 1
    for cell in range(n_units * width):
        ptr[cell + 1] += ptr[cell]
    return ptr


@njit(cache=True)
def _possible_matches(refs, index, local, ptr):
    """Match and order, both without the caption's place and words, int64 [n, 2], sorted by cell; and each cell's
    words of the reference by class of weight, uint64 [cells, 3]."""
    width, cursor = refs.shape[0], ptr.copy()
    entry, bits = np.empty((ptr[-1], 2), np.int64), np.zeros((ptr.shape[0] - 1, 3), np.uint64)
    for r in range(width):
        for o in range(index.unit_ptr[refs[r]], index.unit_ptr[refs[r] + 1]):
            place, size, u = np.int64(index.unit_start[o]), np.int64(index.unit_length[o]), index.unit[o]
            for m in range(index.match_ptr[u], index.match_ptr[u + 1]):
                cell = np.int64(local[index.match_unit[m]]) * width + r
                stage = np.int64(index.match_stage[m])
                module = stage if stage < 3 else 3
                rank = np.int64(index.match_rank[m]) << (AFTER_PLACE if stage == FORWARD else 0)
                entry[cursor[cell], 0] = packed_match(place, size, 0, 0, module)
                entry[cursor[cell], 1] = place << PLACE | stage << STAGE | rank
                cursor[cell] += 1
                if place + size <= BITS:
                    bits[cell, CLASS_OF[module]] |= run_of_bits(place, size)
    return entry, bits


@njit(cache=True, forceinline=True)
def find_hits(c, index, local, room):
    """The caption's units that match something, as (unit in `local`, place, words): the first rows of `room`."""
    n = 0
    for o in range(index.unit_ptr[c], index.unit_ptr[c + 1]):
        k = local[index.unit[o]]
        if k >= 0:
            room[n, 0], room[n, 1], room[n, 2] = k, index.unit_start[o], index.unit_length[o]
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
def _count(c, ref, node, chunks, nodes, index, out):
    """The counts of an alignment, whose last match is `node`."""
    for k in range(MATCHED, COUNTS):
        out[k] = 0
    start_1, start_2 = index.ptr[c], index.ptr[ref]
    out[WORDS_1], out[WORDS_2] = index.ptr[c + 1] - start_1, index.ptr[ref + 1] - start_2
    out[FUNCTION_1] = (DELTA * out[WORDS_1] - index.weight[c]) / (2 * DELTA - 1)
    out[FUNCTION_2] = (DELTA * out[WORDS_2] - index.weight[ref]) / (2 * DELTA - 1)
    out[CHUNKS] = chunks
    while node >= 0:
        match = nodes[node, 1]
        at, j, i = MATCHED + 4 * module_of(match), caption_place(match), reference_place(match)
        for k in range(start_1 + j, start_1 + j + caption_words(match)):
            out[at + index.function[k]] += 1
        for k in range(start_2 + i, start_2 + i + reference_words(match)):
            out[at + 2 + index.function[k]] += 1
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


@njit(cache=True, forceinline=True)
def fold(refs, index, local):
    """The references of an image, whose matching units are numbered in `local` until `forget`."""
    n_units = _number_units(refs, index, local)
    ptr = _cell_starts(refs, index, local, n_units)
    entry, bits = _possible_matches(refs, index, local, ptr)
    return ReferenceMatches(refs, ptr, entry, bits.reshape(n_units, refs.shape[0], 3))


@njit(cache=True)
def new_room(width, longest):
    """For so many references and captions of at most `longest` words."""
    return AlignmentRoom(
        np.empty((7 * longest, 3), np.int64), np.empty(width), np.empty(longest + 1, np.uint64),
        np.empty((2, 3), np.uint64), np.empty((2, MATCHES), np.int64), workspace(longest, MATCHES),
        np.empty((2, COUNTS)),
    )  # fmt: skip


@njit(cache=True, forceinline=True)
def limit(c, r, hits, im, index, room):
    """What the score of a caption with reference r cannot exceed."""
    return SLACK * bound(c, r, hits, im, index, room)


@njit(cache=True)
def score_reference(c, r, hits, im, index, room):
    """METEOR of a caption with reference r, from the caption's hits; the counts are then room.counts[0]."""
    width, ref, match, work = im.refs.shape[0], im.refs[r], room.match, room.work
    n = _find_matches(hits, r, width, im.ptr, im.entry, match[0], match[1])
    if n > match.shape[1]:
        match, work = np.empty((2, n), np.int64), workspace(room.hits.shape[0] // 7, n)
        _find_matches(hits, r, width, im.ptr, im.entry, match[0], match[1])
    if index.same[c] == index.same[ref]:  # METEOR then asks no other stage
        n = _only_exact(match[0, :n])
    ranks, slot, state, used, nodes, covered = work
    words = index.ptr[ref + 1] - index.ptr[ref]
    node, chunks = align(match[0, :n], words, ranks, slot, state, used, nodes, covered)
    _count(c, ref, node, chunks, nodes, index, room.counts[0])
    return metric(room.counts[0])


@njit(cache=True)
def _best(c, leave_out, im, index, local, room):
    """The highest METEOR of a caption with a reference; the counts are then room.counts[1]."""
    best, of = -1.0, -1
    hits = find_hits(c, index, local, room.hits)
    for r in range(im.refs.shape[0]):
        room.bounds[r] = -1.0 if leave_out and im.refs[r] == c else limit(c, r, hits, im, index, room)
    for _ in range(im.refs.shape[0]):
        r = 0
        for other in range(1, im.refs.shape[0]):
            if room.bounds[other] > room.bounds[r]:
                r = other
        if room.bounds[r] <= best:
            break
        room.bounds[r] = -1
        value = score_reference(c, r, hits, im, index, room)
        if value > best or (value == best and r < of):
            best, of = value, r
            for k in range(COUNTS):
                room.counts[1, k] = room.counts[0, k]
    return max(best, 0.0)


@njit(nogil=True, cache=True)
def score(begin, end, order, pairs, index, longest, values, counts):
    """METEOR of pairs order[begin:end], in which those of an image follow each other, into values float64 [pairs]; and
    its counts into float64 [pairs, COUNTS], or none into [0, COUNTS]."""
    local, image = np.full(index.match_ptr.shape[0] - 1, -1, np.int32), np.int64(-1)
    own = pairs.refs[:0]
    for k in order[begin:end]:
        if pairs.images[k] != image:
            forget(own, index, local)
            image = pairs.images[k]
            own = pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]
            im, room = fold(own, index, local), new_room(own.shape[0], longest)
        values[k] = _best(pairs.captions[k], pairs.leave_out, im, index, local, room)
        for x in range(COUNTS if counts.shape[0] else 0):
            counts[k, x] = room.counts[1, x]
