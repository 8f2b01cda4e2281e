"""METEOR 1.5 fitted on captions.

What the jar that pycocoevalcap carries computes with `-l en -norm`: stages exact, stem, synonym and
paraphrase, the aligner's beam search, and the best score over the references. Words, stems, synonym
sets and paraphrases are looked up once for all captions; what matches an image's references is then
a table by unit of a caption, so that a pair costs what its common words cost. A unit is a word or a
phrase of several words. For every unit that a reference may hold, the units of a caption that match
it are listed, with the stage that matches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from capgrade.kernels import in_threads
from capgrade.measures.bars import refuse_bars
from capgrade.measures.base import ImagePairs, OfReferences, Scored, reference_sets
from capgrade.measures.corpus import Corpus
from capgrade.measures.meteor import kernel
from capgrade.measures.meteor.english import (
    Lexicon,
    Word,
    as_meteor_reads,
    read_lexicon,
)
from capgrade.measures.meteor.paraphrases import (
    find_phrases,
    hash_runs,
    paraphrases_among,
    read_paraphrases,
)
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import Words, tokens_of

if TYPE_CHECKING:
    from capgrade.measures.meteor import MeteorParams

LONGEST_CAPTION = 2000  # words; the kernel's packed numbers hold twice that


class CaptionWords(NamedTuple):
    """The captions as METEOR's words."""

    ptr: np.ndarray  # int64 [n_captions + 1]: words of each caption
    function: np.ndarray  # uint8 [words]: is a function word
    weight: np.ndarray  # float64 [n_captions]: words, weighted
    same: np.ndarray  # int32 [n_captions]: alike where captions are, word for word


class Units(NamedTuple):
    """The units of each caption, by place, then length."""

    ptr: np.ndarray  # int64 [n_captions + 1]
    start: np.ndarray  # int32 [units]
    length: np.ndarray  # int32 [units]
    number: np.ndarray  # int32 [units]


class Matches(NamedTuple):
    """For a unit of a reference, what matches it in a caption."""

    ptr: np.ndarray  # int64 [n_units + 1]
    unit: np.ndarray  # int32 [matches]
    stage: np.ndarray  # int32 [matches]
    rank: np.ndarray  # int32 [matches]: order among the paraphrases of a place


class MatchIndex(NamedTuple):
    """The captions, and what matches."""

    words: CaptionWords
    units: Units
    matches: Matches


@dataclass(frozen=True)
class FittedMeteor(OfReferences):
    """The captions as words and phrases, and which of them match: the fields of a `MatchIndex`."""

    words: CaptionWords
    units: Units
    matches: Matches

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        pairs = ImagePairs(images, captions, self.ref_ptr, self.refs, self.leave_out)
        index = MatchIndex(self.words, self.units, self.matches)
        return score_pairs(pairs, index, np.empty((0, kernel.COUNTS))).astype(np.float32)


def fit(captions: Captions, params: MeteorParams) -> FittedMeteor:
    """As `Meteor.fit`."""
    sets = reference_sets(params.self_reference, captions)
    tokens = tokens_of(captions)
    warn_unless_english("meteor", tokens)
    return FittedMeteor(*sets, *index_captions(tokens, captions.caption_ids))


def score_candidates(corpus: Corpus) -> Scored:
    """METEOR 1.5, 0..1, as its jar; the corpus score is of summed statistics."""
    warn_unless_english("meteor", corpus.tokens)
    pairs = corpus.candidates.pairs
    counts = np.empty((len(pairs.captions), kernel.COUNTS))
    index = index_captions(corpus.tokens, corpus.candidates.texts)
    values = score_pairs(pairs, index, counts)
    # The jar adds up no chunk of a caption that equals its reference (`MeteorStats.addStats`).
    # Words that match, [captions, 2]: of the caption, and of the reference.
    matches = counts[:, kernel.MATCHED :].reshape(-1, 4, 2, 2).sum(axis=(1, 3))
    equal = (matches == counts[:, [kernel.WORDS_1, kernel.WORDS_2]]).all(axis=1)
    counts[equal & (counts[:, kernel.CHUNKS] == 1), kernel.CHUNKS] = 0
    return Scored(values, counts, _score_counts)


def score_pairs(pairs: ImagePairs, index: MatchIndex, counts: np.ndarray) -> np.ndarray:
    """METEOR of pairs, float64 [pairs].

    The counts of the alignment with the reference that gives the score go into `counts`, float64
    [pairs, COUNTS], or nowhere if it is [0, COUNTS].
    """
    values, longest = np.empty(len(pairs.captions)), int(np.diff(index.words.ptr).max(initial=1))
    order = np.argsort(pairs.images, kind="stable")  # the pairs of an image after each other
    in_threads(kernel.score, len(values), order, pairs, index, longest, values, counts)
    return values


def _score_counts(counts: np.ndarray) -> np.ndarray:
    """METEOR, 0..1, from counts of captions or their sums [n, COUNTS], float64 [n].

    Source: Denkowski and Lavie 2014; METEOR 1.5, English task, as pycocoevalcap `meteor/meteor.py`
    calls it (`MeteorScorer.computeMetrics`).
    """
    return np.array([kernel.metric(row) for row in np.ascontiguousarray(counts, np.float64)])


def index_captions(tokens: Words, ids: Sequence[str]) -> MatchIndex:
    """Index captions, which are tokens.

    InputError for one that METEOR's protocol would take for several, and for one of more words than
    the kernels can count.
    """
    refuse_bars(tokens, ids)
    lexicon = read_lexicon()
    words = as_meteor_reads(tokens, lexicon.abbreviations)
    longest = int(words.sizes.argmax())
    if (size := words.sizes[longest]) > LONGEST_CAPTION:
        problem = (
            f"caption '{ids[longest]:.60}' has {size} words, meteor takes {LONGEST_CAPTION} at most"
        )
        raise InputError(problem, remedy="shorten it")
    return _index_words(words, lexicon)


def _index_words(sentences: Words, lexicon: Lexicon) -> MatchIndex:
    """Index captions of METEOR's words, each of at most LONGEST_CAPTION."""
    ptr, word, vocabulary = sentences
    entries = [lexicon.look_up(w) for w in vocabulary]
    key, stem, is_function = np.array([entry[:3] for entry in entries], np.int64).reshape(-1, 3).T
    function = is_function[word].astype(np.uint8)
    n_function = np.diff(np.concatenate([[0], np.cumsum(function)])[ptr])
    weight = kernel.DELTA * (np.diff(ptr) - n_function) + (1 - kernel.DELTA) * n_function
    same = np.unique(hash_runs(key[word], ptr), return_inverse=True)[1].astype(np.int32)

    table = read_paraphrases(lexicon.paraphrases)
    single, longer = find_phrases(table, vocabulary, ptr, word)
    pairs = paraphrases_among(table, np.concatenate([single[single >= 0], longer[2]]))
    # A phrase of one word has the word's unit; those of several words with a paraphrase follow.
    unit, paired = np.full(len(table.keys), -1, np.int32), np.unique(pairs[:, :2])
    unit[paired] = len(entries) + np.arange(len(paired))
    unit[single[single >= 0]] = np.flatnonzero(single >= 0)
    longer[2] = unit[longer[2]]

    units = unit[pairs[:, :2]].T
    matches = np.concatenate(
        [
            *_word_matches(entries, key, stem),
            _match_columns(units, kernel.FORWARD, pairs[:, 2]),
            _match_columns(units[::-1], kernel.BACKWARD, pairs[:, 2]),
        ],
        axis=1,
    )
    matches = np.take(matches, np.argsort(matches[0], kind="stable"), axis=1)  # rows in one piece
    starts = np.searchsorted(matches[0], np.arange(len(entries) + len(paired) + 1))
    return MatchIndex(
        CaptionWords(ptr, function, weight, same),
        _units(ptr, word, longer[:, longer[2] >= 0]),
        Matches(starts, *matches[1:]),
    )


def _units(ptr: np.ndarray, word: np.ndarray, longer: np.ndarray) -> Units:
    """Every word, and `longer`, int64 [3, n]: place of the first word, number of words, unit."""
    place = np.concatenate([np.arange(len(word)), longer[0]])
    order = np.argsort(place, kind="stable")
    place = place[order]
    start = place - np.repeat(ptr[:-1], np.diff(ptr))[place]
    length = np.concatenate([np.ones(len(word), np.int64), longer[1]])[order]
    number = np.concatenate([word, longer[2]])[order]
    return Units(np.searchsorted(place, ptr), *np.stack([start, length, number]).astype(np.int32))


def _word_matches(entries: Sequence[Word], key: np.ndarray, stem: np.ndarray) -> list[np.ndarray]:
    """The `_match_columns` of single words, which match exactly, by stem or by synonym."""
    every = np.arange(len(entries))
    owner = np.repeat(every, [len(entry.synsets) for entry in entries])
    synset = np.array([s for entry in entries for s in entry.synsets], np.int64)
    stems, synonyms = _pairs(stem, every), _pairs(synset, owner)
    return [
        _match_columns(_pairs(key, every), kernel.EXACT),
        _match_columns(stems[:, key[stems[0]] != key[stems[1]]], kernel.STEM),
        _match_columns(synonyms[:, key[synonyms[0]] != key[synonyms[1]]], kernel.SYNONYM),
    ]


def _match_columns(pairs: np.ndarray, stage: int, rank: np.ndarray | int = 0) -> np.ndarray:
    """int32 [4, n]: unit of a reference, unit of a caption that matches it, stage, rank.

    `pairs`, [2, n], are the units.
    """
    return np.stack(np.broadcast_arrays(*pairs, stage, rank)).astype(np.int32)


def _pairs(group: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Every pair of members of one group, once: int64 [2, n], ascending."""
    order = np.argsort(group)
    ends = np.flatnonzero(np.append(np.diff(group[order]) != 0, True)[: len(group)]) + 1
    size = np.diff(ends, prepend=0)
    left = np.repeat(np.arange(len(order)), np.repeat(size, size))
    start, width = np.repeat(ends - size, size**2), np.repeat(size, size**2)
    right = (
        start + (np.arange(len(left)) - np.repeat(np.cumsum(size**2) - size**2, size**2)) % width
    )
    n = int(member.max(initial=0)) + 1
    codes = np.sort(member[order][left] * n + member[order][right])
    codes = codes[np.diff(codes, prepend=-1) != 0]
    return np.stack([codes // n, codes % n])
