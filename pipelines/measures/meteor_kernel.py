"""METEOR 1.5 of captions with reference sets, over the arrays of `meteor_index`."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from pipelines.measures.meteor_align import (
    BEAM,
    align,
    caption_place,
    caption_words,
    module_of,
    packed_match,
    reference_place,
    reference_words,
)
from pipelines.measures.meteor_index import BACKWARD, FORWARD

# The English task of METEOR 1.5 (Denkowski and Lavie 2014)
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the stages exact, stem, synonym, paraphrase
PLACE, STAGE, BEFORE_PLACE, AFTER_PLACE = 51, 48, 32, 12  # bits of a match's order


@njit(cache=True)
def _number_units(first, last, refs, unit_ptr, unit, match_ptr, match_unit, local):
    """Number in `local` the units of captions that match something in refs[first:last]: CSR starts of the matches."""
    n_units = 0
    count = np.zeros(64, np.int64)
    for q in range(first, last):
        for o in range(unit_ptr[refs[q]], unit_ptr[refs[q] + 1]):
            for m in range(match_ptr[unit[o]], match_ptr[unit[o] + 1]):
                k = local[match_unit[m]]
                if k < 0:
                    k = local[match_unit[m]] = n_units
                    n_units += 1
                    if n_units == count.shape[0]:
                        count = np.append(count, np.zeros_like(count))
                count[k + 1] += 1
    return np.cumsum(count[: n_units + 1])


@njit(cache=True)
def _possible_matches(
    first, last, refs, unit_ptr, unit_start, unit_length, unit, match_ptr, match_unit, match_stage, match_rank, local
):
    """What matches in refs[first:last], by unit of a caption as numbered in `local`: CSR starts and, int64 [n, 3],
    the reference, the match and its order; the caption's place and words are missing in both."""
    ptr = _number_units(first, last, refs, unit_ptr, unit, match_ptr, match_unit, local)
    entry, cursor = np.empty((ptr[-1], 3), np.int64), ptr.copy()
    for q in range(first, last):
        for o in range(unit_ptr[refs[q]], unit_ptr[refs[q] + 1]):
            place = np.int64(unit_start[o])
            for m in range(match_ptr[unit[o]], match_ptr[unit[o] + 1]):
                k = local[match_unit[m]]
                stage = np.int64(match_stage[m])
                rank = np.int64(match_rank[m]) << (AFTER_PLACE if stage == FORWARD else 0)
                entry[cursor[k], 0] = q - first
                entry[cursor[k], 1] = packed_match(place, unit_length[o], 0, 0, min(stage, 3))
                entry[cursor[k], 2] = place << PLACE | stage << STAGE | rank
                cursor[k] += 1
    return ptr, entry


@njit(cache=True)
def _find_matches(c, unit_ptr, unit_start, unit_length, unit, local, ptr, entry, end, match, order):
    """The matches of caption c with each reference, sorted, into match[r, :end[r]]. Where there is no room, how much
    is needed; else 0."""
    end[:] = 0
    room = match.shape[1]
    for o in range(unit_ptr[c], unit_ptr[c + 1]):
        k = local[unit[o]]
        if k < 0:
            continue
        j, width = np.int64(unit_start[o]), np.int64(unit_length[o])
        own = packed_match(0, 0, j, width, 0)
        for e in range(ptr[k], ptr[k + 1]):
            r, key = entry[e, 0], entry[e, 2]
            key += j << (BEFORE_PLACE if key >> STAGE & 7 == BACKWARD else 0)
            at = end[r]
            end[r] += 1
            if end[r] <= room:
                while at > 0 and order[r, at - 1] > key:
                    order[r, at], match[r, at] = order[r, at - 1], match[r, at - 1]
                    at -= 1
                order[r, at], match[r, at] = key, entry[e, 1] | own
    return 0 if end.max() <= room else end.max()


@njit(cache=True)
def _only_exact(match, n):
    """Keep the exact matches: all there are between captions that are alike word for word."""
    kept = 0
    for k in range(n):
        if module_of(match[k]) == 0:
            match[kept] = match[k]
            kept += 1
    return kept


@njit(cache=True)
def _weigh(node, node_before, node_match, function_1, function_2):
    """Weighted and counted words of an alignment, on the caption's side and on the reference's."""
    weight_1, weight_2, words_1, words_2 = 0.0, 0.0, 0, 0
    while node >= 0:
        match = node_match[node]
        weight = WEIGHTS[module_of(match)]
        j, i = caption_place(match), reference_place(match)
        for k in range(j, j + caption_words(match)):
            weight_1 += weight * ((1 - DELTA) if function_1[k] else DELTA)
        for k in range(i, i + reference_words(match)):
            weight_2 += weight * ((1 - DELTA) if function_2[k] else DELTA)
        words_1 += caption_words(match)
        words_2 += reference_words(match)
        node = node_before[node]
    return weight_1, weight_2, words_1, words_2


@njit(cache=True)
def _weighted_length(function):
    n_function = 0
    for flag in function:
        n_function += flag
    return DELTA * (function.shape[0] - n_function) + (1 - DELTA) * n_function


@njit(cache=True)
def _score_of(weight_1, weight_2, words_1, words_2, chunks, function_1, function_2):
    """The parametrised F of precision and recall, less the penalty for fragmentation."""
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    precision, recall = weight_1 / _weighted_length(function_1), weight_2 / _weighted_length(function_2)
    f = 1 / ((1 - ALPHA) / precision + ALPHA / recall)
    whole = words_1 == function_1.shape[0] and words_2 == function_2.shape[0] and chunks == 1
    fragmentation = 0.0 if whole else chunks / ((words_1 + words_2) / 2)
    return max(f * (1 - GAMMA * fragmentation**BETA), 0.0)


@njit(cache=True)
def _score_image(
    first, last, refs, captions, leave_out, ptr, function, same, unit_ptr, unit_start, unit_length, unit, match_ptr,
    match_unit, match_stage, match_rank, longest, local, out,
):  # fmt: skip
    """METEOR of each caption with refs[first:last], the best over the references, into out."""
    start, entry = _possible_matches(
        first, last, refs, unit_ptr, unit_start, unit_length, unit, match_ptr, match_unit, match_stage, match_rank,
        local,
    )  # fmt: skip
    end = np.zeros(last - first, np.int64)
    match, order = np.empty((2, last - first, 64), np.int64)
    nodes = np.empty((2, BEAM * 64), np.int64)
    paths, orders = np.empty((2, BEAM, 4), np.int64), np.empty((2, BEAM), np.int64)
    useds = np.zeros((2, BEAM, (longest + 63) // 64), np.uint64)
    covered = np.zeros((2, longest), np.int32)
    for column in range(captions.shape[0]):
        c = captions[column]
        args = (c, unit_ptr, unit_start, unit_length, unit, local, start, entry, end)
        room = _find_matches(*args, match, order)
        if room:
            match, order = np.empty((2, last - first, 2 * room), np.int64)
            nodes = np.empty((2, 2 * BEAM * room), np.int64)
            _find_matches(*args, match, order)
        best = 0.0
        function_1 = function[ptr[c] : ptr[c + 1]]
        for r in range(last - first):
            ref = refs[first + r]
            if end[r] and not (leave_out and ref == c):
                n = _only_exact(match[r], end[r]) if same[c] == same[ref] else end[r]
                function_2 = function[ptr[ref] : ptr[ref + 1]]
                node, chunks = align(
                    match[r, :n], function_2.shape[0], paths, useds, orders, nodes[0], nodes[1], covered[0], covered[1]
                )  # fmt: skip
                weights = _weigh(node, nodes[0], nodes[1], function_1, function_2)
                best = max(best, _score_of(*weights, chunks, function_1, function_2))
        out[column] = best
    _forget(first, last, refs, unit_ptr, unit, match_ptr, match_unit, local)


@njit(cache=True)
def _forget(first, last, refs, unit_ptr, unit, match_ptr, match_unit, local):
    for q in range(first, last):
        for o in range(unit_ptr[refs[q]], unit_ptr[refs[q] + 1]):
            for m in range(match_ptr[unit[o]], match_ptr[unit[o] + 1]):
                local[match_unit[m]] = -1


@njit(parallel=True, cache=True)
def score(
    images, captions, ref_ptr, refs, leave_out, ptr, function, same, unit_ptr, unit_start, unit_length, unit, match_ptr,
    match_unit, match_stage, match_rank, longest, out,
):  # fmt: skip
    """METEOR of every caption with every image's reference set, into out float32 [images, captions]."""
    for b in prange(images.shape[0]):
        local = np.full(match_ptr.shape[0] - 1, -1, np.int32)
        _score_image(
            ref_ptr[images[b]], ref_ptr[images[b] + 1], refs, captions, leave_out, ptr, function, same, unit_ptr,
            unit_start, unit_length, unit, match_ptr, match_unit, match_stage, match_rank, longest, local, out[b],
        )  # fmt: skip
