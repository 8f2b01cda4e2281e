"""METEOR 1.5 of captions with reference sets, over the arrays of a `MatchIndex`.

A caption is aligned with each reference of the image. An alignment gives counts, and METEOR follows
from these: the jar scores a corpus by the sums of its sentences' counts. Of several references that
with the highest score counts, of equal ones the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import njit
from capgrade.measures.meteor.align import (
    align,
    alignment_buffers,
    caption_place,
    caption_words,
    match_stage,
    packed_match,
    reference_place,
    reference_words,
)
from capgrade.measures.meteor.paraphrases import LONGEST

# The English task of METEOR 1.5 (Denkowski and Lavie 2014). DELTA is what a content word weighs; a
# function word weighs the rest of 1.
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the stages exact, stem, synonym, paraphrase
# The stages in their order; the paraphrase table is read from the reference's side, then from the
# caption's.
EXACT, STEM, SYNONYM, FORWARD, BACKWARD = range(5)

PLACE, _STAGE, BEFORE_PLACE, AFTER_PLACE = 51, 48, 32, 12  # bits of a match's order
MATCHES = 64  # of a caption and a reference, that there is room for at first
# In `row_of`: a unit without a row yet, and one that no caption of the asked pairs has.
NO_ROW, UNASKED = -1, -2
# Columns of the counts: words and function words of both sides, chunks, then by stage content and
# function words that match, of the caption and of the reference.
WORDS_1, WORDS_2, FUNCTION_1, FUNCTION_2, CHUNKS, MATCHED = range(6)
COUNTS = MATCHED + 16


class _ReferenceMatches(NamedTuple):
    """The references of an image and what matches them.

    Units of captions have rows, by `row_of`; row x references + reference is a cell.
    """

    refs: np.ndarray  # int64 [references]
    ptr: np.ndarray  # int64 [cells + 2]: the entries of each cell
    entry: np.ndarray  # int64 [entries, 2]: match and order, without the caption's place and words


@njit(cache=True)
def _match_references(refs, units, matches, row_of):
    """The `_ReferenceMatches` of these references.

    Units with NO_ROW in `row_of`, int32 [units], get a row there if they match; UNASKED ones none.
    """
    n_rows, n, width = 0, 0, refs.shape[0]
    # Few of a unit's matches are asked for: of these reference, unit there, and place in `matches`.
    asked = np.empty((MATCHES, 3), np.int64)
    for r in range(width):
        for o in range(units.ptr[refs[r]], units.ptr[refs[r] + 1]):
            u = units.number[o]
            for m in range(matches.ptr[u], matches.ptr[u + 1]):
                v = matches.unit[m]
                if row_of[v] == UNASKED:
                    continue
                if row_of[v] == NO_ROW:
                    row_of[v] = n_rows
                    n_rows += 1
                if n == asked.shape[0]:
                    asked = np.concatenate((asked, np.empty_like(asked)))
                asked[n, 0], asked[n, 1], asked[n, 2] = r, o, m
                n += 1
    ptr, entry = np.zeros(n_rows * width + 2, np.int64), np.empty((n, 2), np.int64)
    for k in range(n):
        ptr[np.int64(row_of[matches.unit[asked[k, 2]]]) * width + asked[k, 0] + 2] += 1
    for cell in range(n_rows * width):
        ptr[cell + 2] += ptr[cell + 1]
    for k in range(n):
        r, o, m = asked[k]
        place, size = np.int64(units.start[o]), np.int64(units.length[o])
        found_by = np.int64(matches.stage[m])
        cell = np.int64(row_of[matches.unit[m]]) * width + r + 1
        stage = min(found_by, FORWARD)  # both ways are one stage
        rank = np.int64(matches.rank[m]) << (AFTER_PLACE if found_by == FORWARD else 0)
        entry[ptr[cell], 0] = packed_match(place, size, 0, 0, stage)
        entry[ptr[cell], 1] = place << PLACE | found_by << _STAGE | rank
        ptr[cell] += 1  # in the end where the next cell starts
    return _ReferenceMatches(refs, ptr, entry)


@njit(cache=True, forceinline=True)
def mark(numbers, row_of, value):
    """Put one value into `row_of` for each of these units."""
    for u in numbers:
        row_of[u] = value


@njit(cache=True, forceinline=True)
def _find_hits(c, units, row_of, buffer):
    """The caption's units that match something, as (row, place, words): the first of `buffer`."""
    n = 0
    for o in range(units.ptr[c], units.ptr[c + 1]):
        row = row_of[units.number[o]]
        if row >= 0:
            buffer[n, 0], buffer[n, 1], buffer[n, 2] = row, units.start[o], units.length[o]
            n += 1
    return buffer[:n]


@njit(cache=True, forceinline=True)
def _find_matches(hits, r, width, ptr, entry, match, order):
    """Put the matches of a caption's hits with reference r into `match`, by rising `order`.

    Returns how many there are, which may be more than there is room for.
    """
    n = 0
    for h in range(hits.shape[0]):
        j, cell = hits[h, 1], hits[h, 0] * width + r
        own = packed_match(0, 0, j, hits[h, 2], 0)
        for e in range(ptr[cell], ptr[cell + 1]):
            key = entry[e, 1]
            key += j << (BEFORE_PLACE if key >> _STAGE & 7 == BACKWARD else 0)
            at = n
            n += 1
            if n <= match.shape[0]:
                while at > 0 and order[at - 1] > key:
                    order[at], match[at] = order[at - 1], match[at - 1]
                    at -= 1
                order[at], match[at] = key, entry[e, 0] | own
    return n


@njit(cache=True, forceinline=True)
def _keep_exact(match):
    """Move the exact matches to the front: how many there are."""
    kept = 0
    for k in range(match.shape[0]):
        if match_stage(match[k]) == 0:
            match[kept] = match[k]
            kept += 1
    return kept


@njit(cache=True, forceinline=True)
def _count(c, ref, node, chunks, nodes, words, out):
    """Put the counts of an alignment, whose last match is `node`, into `out`."""
    for k in range(MATCHED, COUNTS):
        out[k] = 0
    start_1, start_2 = words.ptr[c], words.ptr[ref]
    out[WORDS_1], out[WORDS_2] = words.ptr[c + 1] - start_1, words.ptr[ref + 1] - start_2
    out[FUNCTION_1] = (DELTA * out[WORDS_1] - words.weight[c]) / (2 * DELTA - 1)
    out[FUNCTION_2] = (DELTA * out[WORDS_2] - words.weight[ref]) / (2 * DELTA - 1)
    out[CHUNKS] = chunks
    while node >= 0:
        match = nodes[node, 1]
        at, j, i = MATCHED + 4 * match_stage(match), caption_place(match), reference_place(match)
        for k in range(start_1 + j, start_1 + j + caption_words(match)):
            out[at + words.function[k]] += 1
        for k in range(start_2 + i, start_2 + i + reference_words(match)):
            out[at + 2 + words.function[k]] += 1
        node = nodes[node, 0]


@njit(cache=True)
def metric(counts):
    """METEOR from counts or their sums.

    It is the weighted harmonic mean of precision and recall, less the penalty for fragmentation.
    """
    weight_1, weight_2, words = 0.0, 0.0, 0.0
    for stage in range(4):
        at = MATCHED + 4 * stage
        weight_1 += WEIGHTS[stage] * (DELTA * counts[at] + (1 - DELTA) * counts[at + 1])
        weight_2 += WEIGHTS[stage] * (DELTA * counts[at + 2] + (1 - DELTA) * counts[at + 3])
        words += counts[at] + counts[at + 1] + counts[at + 2] + counts[at + 3]
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    function_1, function_2 = counts[FUNCTION_1], counts[FUNCTION_2]
    precision = weight_1 / (DELTA * (counts[WORDS_1] - function_1) + (1 - DELTA) * function_1)
    recall = weight_2 / (DELTA * (counts[WORDS_2] - function_2) + (1 - DELTA) * function_2)
    whole = words == counts[WORDS_1] + counts[WORDS_2] and counts[CHUNKS] <= 1
    penalty = 0.0 if whole else GAMMA * (counts[CHUNKS] / (words / 2)) ** BETA
    return max(1 / ((1 - ALPHA) / precision + ALPHA / recall) * (1 - penalty), 0.0)


@njit(cache=True)
def _score_reference(c, r, hits, image, words, buffers, counts):
    """METEOR of a caption with reference r, from the caption's hits; its counts into `counts`."""
    width, ref = image.refs.shape[0], image.refs[r]
    n = _find_matches(hits, r, width, image.ptr, image.entry, buffers.match[0], buffers.match[1])
    if n > buffers.match.shape[1]:
        buffers = alignment_buffers(buffers.covered.shape[1], n)
        _find_matches(hits, r, width, image.ptr, image.entry, buffers.match[0], buffers.match[1])
    if words.same[c] == words.same[ref]:  # METEOR then asks no other stage
        n = _keep_exact(buffers.match[0, :n])
    node, chunks = align(buffers.match[0, :n], words.ptr[ref + 1] - words.ptr[ref], buffers)
    _count(c, ref, node, chunks, buffers.nodes, words, counts)
    return metric(counts)


@njit(cache=True)
def _score_best(c, hits, image, leave_out, words, buffers, counts):
    """METEOR of a caption with the best reference; its counts into `counts`, [1 or 0, COUNTS]."""
    best, found = -1.0, np.empty(COUNTS)
    for r in range(image.refs.shape[0]):
        if leave_out and image.refs[r] == c:
            continue
        value = _score_reference(c, r, hits, image, words, buffers, found)
        if value > best:
            best = value
            counts[:] = found
    return best


@njit(nogil=True, cache=True)
def score(begin, end, order, pairs, index, longest, values, counts):
    """METEOR of pairs order[begin:end] into `values`, float64 [pairs].

    Pairs of an image follow each other. Their counts go into float64 [pairs, COUNTS], or none into
    [0, COUNTS].
    """
    words, units, matches = index
    row_of = np.full(matches.ptr.shape[0] - 1, UNASKED, np.int32)
    buffers, hits = alignment_buffers(longest, MATCHES), np.empty((LONGEST * longest, 3), np.int64)
    first = begin
    while first < end:
        i, last = pairs.images[order[first]], first
        while last < end and pairs.images[order[last]] == i:
            c = pairs.captions[order[last]]
            mark(units.number[units.ptr[c] : units.ptr[c + 1]], row_of, NO_ROW)
            last += 1
        refs = pairs.refs[pairs.ref_ptr[i] : pairs.ref_ptr[i + 1]]
        image = _match_references(refs, units, matches, row_of)
        for pair in order[first:last]:
            c, mine = pairs.captions[pair], counts[pair : pair + 1]
            some = _find_hits(c, units, row_of, hits)
            values[pair] = _score_best(c, some, image, pairs.leave_out, words, buffers, mine)
        for pair in order[first:last]:
            c = pairs.captions[pair]
            mark(units.number[units.ptr[c] : units.ptr[c + 1]], row_of, UNASKED)
        first = last
