"""METEOR 1.5 of captions with reference sets, over the arrays of `index`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.meteor.align import (
    align,
    caption_place,
    caption_words,
    module_of,
    packed_match,
    reference_place,
    reference_words,
    workspace,
)
from capgrade.pipelines.measures.meteor.bound import (
    BETA,
    BITS,
    CLASS_OF,
    DELTA,
    GAMMA,
    WEIGHTS,
    bound,
    closer_bound,
    f_score,
    run_of_bits,
)
from capgrade.pipelines.measures.meteor.index import BACKWARD, FORWARD
from capgrade.schemas.compiled import njit

PLACE, STAGE, BEFORE_PLACE, AFTER_PLACE = 51, 48, 32, 12  # bits of a match's order
MATCHES = 64  # of a caption and a reference, that there is room for at first
SLACK = 1 + 2**-20  # more than rounding takes: of a bound, and of a value to float32


class Folded(NamedTuple):
    """The references of an image and what matches them."""

    refs: np.ndarray  # int64 [references]
    ptr: np.ndarray  # int64 [cells + 1]: matches of each cell, a unit of a caption and a reference
    entry: np.ndarray  # int64 [matches, 2], see `_possible_matches`
    bits: np.ndarray  # uint64 [units, references, 3]: words of the reference by class of weight, of each cell


class Room(NamedTuple):
    """Arrays to work in."""

    hits: np.ndarray  # int64 [7 * longest, 3]
    bounds: np.ndarray  # float64 [references]
    places: np.ndarray  # uint64 [longest + 1]
    bits: np.ndarray  # uint64 [2, references, 3]
    match: np.ndarray  # int64 [2, matches]
    work: tuple[np.ndarray, ...]  # of `align`


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
    return np.cumsum(ptr)


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
def _bounds(c, refs, hits, index, cell_bits, bits_1, bits_2, out):
    """What the score with each reference cannot exceed."""
    width, n_words = refs.shape[0], index.ptr[c + 1] - index.ptr[c]
    if n_words > BITS:
        out[:] = 1
        return
    bits_1[:], bits_2[:] = 0, 0
    for h in range(hits.shape[0]):
        own = run_of_bits(hits[h, 1], hits[h, 2])
        for r in range(width):
            for k in range(3):
                places = cell_bits[hits[h, 0], r, k]
                bits_2[r, k] |= places
                bits_1[r, k] |= own if places else np.uint64(0)
    for r in range(width):
        ref = refs[r]
        ref_words = index.ptr[ref + 1] - index.ptr[ref]
        out[r] = 1.0
        if ref_words <= BITS:
            out[r] = bound(
                bits_1[r], bits_2[r], index.function_bits[c], index.function_bits[ref], index.weight[c],
                index.weight[ref], n_words, ref_words,
            )  # fmt: skip


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
def _weigh(node, nodes, function_1, function_2):
    """Weighted and counted words of an alignment, on the caption's side and on the reference's."""
    weight_1, weight_2, words_1, words_2 = 0.0, 0.0, 0, 0
    while node >= 0:
        match = nodes[node, 1]
        weight = WEIGHTS[module_of(match)]
        j, i = caption_place(match), reference_place(match)
        for k in range(j, j + caption_words(match)):
            weight_1 += weight * ((1 - DELTA) if function_1[k] else DELTA)
        for k in range(i, i + reference_words(match)):
            weight_2 += weight * ((1 - DELTA) if function_2[k] else DELTA)
        words_1 += caption_words(match)
        words_2 += reference_words(match)
        node = nodes[node, 0]
    return weight_1, weight_2, words_1, words_2


@njit(cache=True, forceinline=True)
def _score_pair(c, ref, matches, index, work):
    """METEOR of a caption with one reference: F of precision and recall, less the penalty for fragmentation."""
    function_1 = index.function[index.ptr[c] : index.ptr[c + 1]]
    function_2 = index.function[index.ptr[ref] : index.ptr[ref + 1]]
    ranks, slot, state, used, nodes, covered = work
    node, chunks = align(matches, function_2.shape[0], ranks, slot, state, used, nodes, covered)
    weight_1, weight_2, words_1, words_2 = _weigh(node, nodes, function_1, function_2)
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    whole = words_1 == function_1.shape[0] and words_2 == function_2.shape[0] and chunks == 1
    penalty = 0.0 if whole else GAMMA * (chunks / ((words_1 + words_2) / 2)) ** BETA
    return max(f_score(weight_1 / index.weight[c], weight_2 / index.weight[ref]) * (1 - penalty), 0.0)


@njit(cache=True, forceinline=True)
def fold(refs, index, local):
    """The references of an image, whose matching units are numbered in `local` until `forget`."""
    n_units = _number_units(refs, index, local)
    ptr = _cell_starts(refs, index, local, n_units)
    entry, bits = _possible_matches(refs, index, local, ptr)
    return Folded(refs, ptr, entry, bits.reshape(n_units, refs.shape[0], 3))


@njit(cache=True)
def new_room(width, longest):
    """For so many references and captions of at most `longest` words."""
    return Room(
        np.empty((7 * longest, 3), np.int64), np.empty(width), np.empty(longest + 1, np.uint64),
        np.empty((2, width, 3), np.uint64), np.empty((2, MATCHES), np.int64), workspace(longest, MATCHES),
    )  # fmt: skip


@njit(cache=True, forceinline=True)
def limit(c, r, hits, im, index, room):
    """What the score of a caption with reference r cannot exceed."""
    ref = im.refs[r]
    words_1, words_2 = index.ptr[c + 1] - index.ptr[c], index.ptr[ref + 1] - index.ptr[ref]
    if words_1 > BITS or words_2 > BITS:
        return 1.0 * SLACK
    return SLACK * closer_bound(
        hits, r, im.bits, room.places, room.bits[0, r], room.bits[1, r], index.function_bits[c],
        index.function_bits[ref], index.weight[c], index.weight[ref], words_1, words_2,
    )  # fmt: skip


@njit(cache=True, forceinline=True)
def score_reference(c, r, hits, im, index, room):
    """METEOR of a caption with reference r, from the caption's hits."""
    width, ref, match, work = im.refs.shape[0], im.refs[r], room.match, room.work
    n = _find_matches(hits, r, width, im.ptr, im.entry, match[0], match[1])
    if n > match.shape[1]:
        match, work = np.empty((2, n), np.int64), workspace(room.hits.shape[0] // 7, n)
        _find_matches(hits, r, width, im.ptr, im.entry, match[0], match[1])
    if index.same[c] == index.same[ref]:  # METEOR then asks no other stage
        n = _only_exact(match[0, :n])
    return _score_pair(c, ref, match[0, :n], index, work) if n else 0.0


@njit(cache=True)
def _score_image(refs, captions, leave_out, index, longest, local, out):
    """METEOR of each caption with the references, the best of them, into out."""
    im, room = fold(refs, index, local), new_room(refs.shape[0], longest)
    for column in range(captions.shape[0]):
        c, best = captions[column], 0.0
        found = find_hits(c, index, local, room.hits)
        _bounds(c, im.refs, found, index, im.bits, room.bits[0], room.bits[1], room.bounds)
        for _ in range(refs.shape[0]):
            r = room.bounds.argmax()
            if room.bounds[r] * SLACK <= best:
                break
            room.bounds[r] = -1
            if not (leave_out and refs[r] == c):
                best = max(best, score_reference(c, r, found, im, index, room))
        out[column] = best
    forget(refs, index, local)


@njit(parallel=True, cache=True)
def score(images, ptr, rows, ref_ptr, refs, leave_out, index, longest, out):
    """METEOR of captions rows[ptr[b] : ptr[b + 1]] with image images[b], into out float32 [len(rows)]."""
    for b in prange(images.shape[0]):
        local = np.full(index.match_ptr.shape[0] - 1, -1, np.int32)
        own, some = refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]], slice(ptr[b], ptr[b + 1])
        _score_image(own, rows[some], leave_out, index, longest, local, out[some])
