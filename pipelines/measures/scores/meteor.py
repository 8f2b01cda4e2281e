"""METEOR 1.5 of candidates with their references: the counts of the best alignment, and the score of their sums.

The jar scores a corpus by the sums of its sentences' counts, so the counts are what is kept. Of a candidate's
references the first with the highest score counts.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
from capgrade.pipelines.measures.meteor.bound import ALPHA, BETA, DELTA, GAMMA, WEIGHTS
from capgrade.pipelines.measures.meteor.data import Lexicon, kept_lexicon
from capgrade.pipelines.measures.meteor.index import BACKWARD, FORWARD, index_words
from capgrade.pipelines.measures.meteor.kernel import AFTER_PLACE, BEFORE_PLACE, PLACE, STAGE
from capgrade.pipelines.measures.meteor.text import meteor_words
from capgrade.pipelines.measures.scores.words import Words, respelled, with_sentences
from capgrade.schemas.compiled import njit
from capgrade.schemas.errors import InputError
from capgrade.schemas.threads import get_num_threads

# Columns of the counts: words and function words of both sides, chunks, then by stage content and function words that
# match, of the candidate and of the reference.
WORDS_1, WORDS_2, FUNCTION_1, FUNCTION_2, CHUNKS, MATCHES = 0, 1, 2, 3, 4, 5
COUNTS = MATCHES + 16
_ALONE = re.compile("[a-z0-9]+(?:['-][a-z0-9]+)*|'[a-z]+")  # what it reads alike beside others of these


@njit(cache=True)
def _metric(counts):
    """METEOR from counts or their sums."""
    lengths = (counts[WORDS_1] - counts[FUNCTION_1], counts[FUNCTION_1],
               counts[WORDS_2] - counts[FUNCTION_2], counts[FUNCTION_2])  # fmt: skip
    matched = np.zeros(4)
    total = np.zeros(2)
    for module in range(4):
        for k in range(4):
            found = counts[MATCHES + 4 * module + k]
            matched[k] += WEIGHTS[module] * found
            total[k // 2] += found
    weight_1, weight_2 = DELTA * matched[0] + (1 - DELTA) * matched[1], DELTA * matched[2] + (1 - DELTA) * matched[3]
    if weight_1 == 0 or weight_2 == 0:
        return 0.0
    precision = weight_1 / (DELTA * lengths[0] + (1 - DELTA) * lengths[1])
    recall = weight_2 / (DELTA * lengths[2] + (1 - DELTA) * lengths[3])
    penalty = 0.0
    if total[0] != counts[WORDS_1] or total[1] != counts[WORDS_2] or counts[CHUNKS] > 1:
        penalty = GAMMA * (counts[CHUNKS] / ((total[0] + total[1]) / 2)) ** BETA
    return max((1 / ((1 - ALPHA) / precision + ALPHA / recall)) * (1 - penalty), 0.0)


@njit(cache=True, forceinline=True)
def _matches(c, ref, index, local, following, only_exact, match, order):
    """The matches of a caption with a reference, sorted as the stages find them: how many, or how many there is no
    room for. `local` has the last place in the caption of each unit, `following` the one before."""
    n = 0
    for o in range(index.unit_ptr[ref], index.unit_ptr[ref + 1]):
        place, size, u = np.int64(index.unit_start[o]), np.int64(index.unit_length[o]), index.unit[o]
        for m in range(index.match_ptr[u], index.match_ptr[u + 1]):
            own = local[index.match_unit[m]]
            stage = np.int64(index.match_stage[m])
            module = stage if stage < 3 else 3
            if own < 0 or (only_exact and module):
                continue
            rank = np.int64(index.match_rank[m]) << (AFTER_PLACE if stage == FORWARD else 0)
            while own >= 0:
                j, width = np.int64(index.unit_start[own]), np.int64(index.unit_length[own])
                key = (place << PLACE | stage << STAGE | rank) + (j << (BEFORE_PLACE if stage == BACKWARD else 0))
                n += 1
                if n <= match.shape[0]:
                    at = n - 1
                    while at > 0 and order[at - 1] > key:
                        order[at], match[at] = order[at - 1], match[at - 1]
                        at -= 1
                    order[at], match[at] = key, packed_match(place, size, j, width, module)
                own = following[own - index.unit_ptr[c]]
    return n


@njit(cache=True, forceinline=True)
def _count(c, ref, node, chunks, nodes, index, out):
    """The counts of an alignment."""
    out[:] = 0
    start_1, start_2 = index.ptr[c], index.ptr[ref]
    out[WORDS_1], out[WORDS_2] = index.ptr[c + 1] - start_1, index.ptr[ref + 1] - start_2
    for k in range(start_1, index.ptr[c + 1]):
        out[FUNCTION_1] += index.function[k]
    for k in range(start_2, index.ptr[ref + 1]):
        out[FUNCTION_2] += index.function[k]
    out[CHUNKS] = chunks
    while node >= 0:
        match = nodes[node, 1]
        at, j, i = MATCHES + 4 * module_of(match), caption_place(match), reference_place(match)
        for k in range(start_1 + j, start_1 + j + caption_words(match)):
            out[at + index.function[k]] += 1
        for k in range(start_2 + i, start_2 + i + reference_words(match)):
            out[at + 2 + index.function[k]] += 1
        node = nodes[node, 0]


@njit(parallel=True, cache=True)
def _statistics(parts, owner, ref_ptr, first, index, longest, out):
    for part in prange(parts):
        local = np.full(index.match_ptr.shape[0] - 1, -1, np.int32)
        following = np.empty(7 * longest, np.int32)
        match, order, work = np.empty(64, np.int64), np.empty(64, np.int64), workspace(longest, 64)
        counts = np.empty(COUNTS)
        for c in range(part, owner.shape[0], parts):
            start, end = index.unit_ptr[c], index.unit_ptr[c + 1]
            for o in range(start, end):
                following[o - start] = local[index.unit[o]]
                local[index.unit[o]] = o
            best = -1.0
            for ref in range(first + ref_ptr[owner[c]], first + ref_ptr[owner[c] + 1]):
                alike = index.same[c] == index.same[ref]  # METEOR then asks no other stage
                n = _matches(c, ref, index, local, following, alike, match, order)
                if n > match.shape[0]:
                    match, order, work = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), workspace(longest, 2 * n)
                    n = _matches(c, ref, index, local, following, alike, match, order)
                ranks, slot, state, used, nodes, covered = work
                words = index.ptr[ref + 1] - index.ptr[ref]
                node, chunks = align(match[:n], words, ranks, slot, state, used, nodes, covered)
                _count(c, ref, node, chunks, nodes, index, counts)
                value = _metric(counts)
                if value > best:
                    best = value
                    out[c] = counts
            for o in range(start, end):
                local[index.unit[o]] = -1


@njit(cache=True)
def _metrics(counts, out):
    for k in range(counts.shape[0]):
        out[k] = _metric(counts[k])


def _meteor_words(tokens: Words, lexicon: Lexicon) -> Words:
    """METEOR's own words: most tokens are read alike everywhere, each once; a sentence with any other by itself."""
    spelling = [_alone(token) for token in tokens.vocabulary]
    rows = tokens.sentences_with(np.array([parts is None for parts in spelling], bool))
    read = [meteor_words(" ".join(tokens.sentence(r)), lexicon.abbreviations) for r in rows]
    return with_sentences(respelled(tokens, [parts or () for parts in spelling]), rows, read)


@lru_cache(maxsize=1 << 16)
def _alone(token: str) -> tuple[str, ...] | None:
    """The words of a token that is read alike everywhere; None for any other."""
    return tuple(meteor_words(token, {})) if _ALONE.fullmatch(token) else None


def meteor_statistics(tokens: Words, owner: np.ndarray, ref_ptr: np.ndarray) -> np.ndarray:
    """Counts of each candidate's best alignment, float64 [candidates, COUNTS].

    Candidates are the first sentences, `owner` int64 has the image of each; references follow, split by `ref_ptr`.
    InputError when METEOR's data is missing, or a token holds '|||', which separates sentences in METEOR's protocol.
    """
    for token in tokens.vocabulary:
        if "|||" in token:
            raise InputError(f"a caption has '|||' ({token!r}), which separates METEOR's captions", remedy="remove it")
    lexicon = kept_lexicon()
    words = _meteor_words(tokens, lexicon)
    index = index_words(words.ptr, words.word, words.vocabulary, lexicon)
    out = np.zeros((len(owner), COUNTS))
    longest = max(int(np.diff(index.ptr).max(initial=0)), 1)
    _statistics(get_num_threads(), owner, ref_ptr, len(owner), index, longest, out)
    return out


def added_up(counts: np.ndarray) -> np.ndarray:
    """The same counts as the jar adds them up for a corpus: a candidate that is its reference adds no chunk
    (`MeteorStats.addStats`)."""
    matches = counts[:, MATCHES:].reshape(-1, 4, 2, 2).sum(axis=(1, 3))  # of the candidate, of the reference
    whole = (matches == counts[:, [WORDS_1, WORDS_2]]).all(axis=1) & (counts[:, CHUNKS] == 1)
    counts = counts.copy()
    counts[whole, CHUNKS] = 0
    return counts


def meteor_of(counts: np.ndarray) -> np.ndarray:
    """METEOR, 0..1, from counts or sums of `added_up` counts [n, COUNTS], float64 [n].

    Source: Denkowski and Lavie 2014; METEOR 1.5, English task, as pycocoevalcap `meteor/meteor.py` calls it
    (`MeteorScorer.computeMetrics`).
    """
    out = np.empty(len(counts))
    _metrics(np.ascontiguousarray(counts, np.float64), out)
    return out
