"""METEOR 1.5 of captions with reference sets, over the arrays of `index`."""

from __future__ import annotations

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
    f_score,
    run_of_bits,
)
from capgrade.pipelines.measures.meteor.index import BACKWARD, FORWARD
from capgrade.schemas.compiled import njit

PLACE, STAGE, BEFORE_PLACE, AFTER_PLACE = 51, 48, 32, 12  # bits of a match's order


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
def _forget_units(refs, index, local):
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
def _hits(c, index, local, hits):
    """The caption's units that match something, as (unit in `local`, place, words), into hits: how many."""
    n = 0
    for o in range(index.unit_ptr[c], index.unit_ptr[c + 1]):
        k = local[index.unit[o]]
        if k >= 0:
            hits[n, 0], hits[n, 1], hits[n, 2] = k, index.unit_start[o], index.unit_length[o]
            n += 1
    return n


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
            cell = hits[h, 0] * width + r
            for k in range(3):
                bits_2[r, k] |= cell_bits[cell, k]
                bits_1[r, k] |= own if cell_bits[cell, k] else np.uint64(0)
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


@njit(cache=True)
def _score_image(refs, captions, leave_out, index, longest, local, out):
    """METEOR of each caption with the references, the best of them, into out."""
    n_units, width = _number_units(refs, index, local), refs.shape[0]
    ptr = _cell_starts(refs, index, local, n_units)
    entry, cell_bits = _possible_matches(refs, index, local, ptr)
    hits, bounds = np.empty((7 * longest, 3), np.int64), np.empty(width)
    bits = np.empty((2, width, 3), np.uint64)
    match, work = np.empty((2, 64), np.int64), workspace(longest, 64)
    for column in range(captions.shape[0]):
        c, best = captions[column], 0.0
        found = hits[: _hits(c, index, local, hits)]
        _bounds(c, refs, found, index, cell_bits, bits[0], bits[1], bounds)
        for _ in range(width):
            r = bounds.argmax()
            ref = refs[r]
            if bounds[r] <= best:
                break
            bounds[r] = -1
            if leave_out and ref == c:
                continue
            n = _find_matches(found, r, width, ptr, entry, match[0], match[1])
            if n > match.shape[1]:
                match, work = np.empty((2, 2 * n), np.int64), workspace(longest, 2 * n)
                _find_matches(found, r, width, ptr, entry, match[0], match[1])
            if index.same[c] == index.same[ref]:  # METEOR then asks no other stage
                n = _only_exact(match[0, :n])
            if n:
                best = max(best, _score_pair(c, ref, match[0, :n], index, work))
        out[column] = best
    _forget_units(refs, index, local)


@njit(parallel=True, cache=True)
def score(images, captions, ref_ptr, refs, leave_out, index, longest, out):
    """METEOR of every caption with every image's reference set, into out float32 [images, captions]."""
    for b in prange(images.shape[0]):
        local = np.full(index.match_ptr.shape[0] - 1, -1, np.int32)
        own = refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]]
        _score_image(own, captions, leave_out, index, longest, local, out[b])
