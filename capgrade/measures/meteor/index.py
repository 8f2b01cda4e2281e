"""Captions as METEOR reads them: words, phrases, and which of them match which.

A unit is a word or a phrase of several words. For every unit that a reference may hold, the units
of a caption that match it are listed, with the stage that matches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capgrade.measures.meteor.data import Lexicon, Word
from capgrade.measures.meteor.paraphrases import hash_runs, occurring_pairs, read_paraphrases
from capgrade.text.tokens import Words

# The stages in their order; the paraphrase table is read from the reference's side, then from the
# caption's.
_EXACT, STEM, SYNONYM, FORWARD, BACKWARD = range(5)
DELTA = 0.75  # what a content word weighs; a function word weighs the rest of 1
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


def index_words(sentences: Words, lexicon: Lexicon) -> MatchIndex:
    """Index captions of METEOR's words, each of at most LONGEST_CAPTION."""
    ptr, word, vocabulary = sentences
    entries = [lexicon.look_up(w) for w in vocabulary]
    key = np.array([entry.key for entry in entries], np.int64)
    at, pairs = occurring_pairs(read_paraphrases(lexicon.paraphrases), vocabulary, ptr, word)
    unit, n_units = _phrase_units(at, pairs, word, len(vocabulary))
    matches = [_word_matches(entries, key), *_paraphrase_matches(pairs, unit)]
    function = np.array([entry.is_function for entry in entries], np.uint8)[word]
    n_function = np.diff(np.concatenate([[0], np.cumsum(function)])[ptr])
    weight = DELTA * (np.diff(ptr) - n_function) + (1 - DELTA) * n_function
    words = CaptionWords(ptr, function, weight, _alike(key[word], ptr))
    return MatchIndex(
        words, _units(at, unit, word, ptr), _by_reference_unit(np.concatenate(matches), n_units)
    )


def _alike(keys: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """int32 [captions]: the same number for captions of the same words."""
    return np.unique(hash_runs(keys, ptr), return_inverse=True)[1].astype(np.int32)


def _phrase_units(
    at: np.ndarray, pairs: np.ndarray, word: np.ndarray, n_words: int
) -> tuple[np.ndarray, int]:
    """The unit of each phrase of the table, int32, -1 without a paraphrase; and how many units.

    A phrase of one word has the word's unit; those of several words follow.
    """
    unit = np.full(int(at.max(initial=-1)) + 2, -1, np.int32)  # the last, of phrase -1, stays -1
    has_pair = np.zeros(len(unit), bool)
    has_pair[pairs[:, :2]] = True
    paired = np.flatnonzero(has_pair)
    unit[paired] = n_words + np.arange(len(paired))
    single = np.flatnonzero(at[:, 0] >= 0) if len(at) else np.empty(0, np.int64)
    unit[at[single, 0]] = word[single]
    return unit, n_words + len(paired)


def _units(at: np.ndarray, unit: np.ndarray, word: np.ndarray, ptr: np.ndarray) -> Units:
    """Every word, and every phrase of several words that has a paraphrase here."""
    number = unit[at]
    number[:, 0] = word
    first, longer = np.nonzero(number >= 0)
    start = first - np.repeat(ptr[:-1], np.diff(ptr))[first]
    return Units(
        np.searchsorted(first, ptr),
        start.astype(np.int32),
        (longer + 1).astype(np.int32),
        number[first, longer],
    )


def _paraphrase_matches(pairs: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of (reference's unit, caption's unit, stage, rank), for both directions of the table."""
    first, second, rank = unit[pairs[:, 0]], unit[pairs[:, 1]], pairs[:, 2]
    forward = np.stack([first, second, np.full(len(rank), FORWARD), rank], axis=1)
    backward = np.stack([second, first, np.full(len(rank), BACKWARD), rank], axis=1)
    return forward, backward


def _word_matches(entries: Sequence[Word], key: np.ndarray) -> np.ndarray:
    """Rows of (reference's unit, caption's unit, stage, 0) of single words.

    They match exactly, by stem or by synonym.
    """
    every = np.arange(len(entries))
    synsets = np.array([s for entry in entries for s in entry.synsets], np.int64)
    stems = np.array([entry.stem_key for entry in entries], np.int64)
    owners = np.repeat(every, [len(entry.synsets) for entry in entries])
    pairs = [_pairs(key, every), _pairs(stems, every), _pairs(synsets, owners)]
    pairs[1:] = [p[key[p[:, 0]] != key[p[:, 1]]] for p in pairs[1:]]
    return np.concatenate(
        [np.pad(p, ((0, 0), (0, 2))) + [0, 0, stage, 0] for stage, p in enumerate(pairs)]
    )


def _pairs(group: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Every pair of members of one group, once: int64 [n, 2], ascending."""
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
    return np.stack([codes // n, codes % n], axis=1)


def _by_reference_unit(matches: np.ndarray, n_units: int) -> Matches:
    matches = matches[np.argsort(matches[:, 0], kind="stable")]
    columns = (np.ascontiguousarray(matches[:, k], dtype=np.int32) for k in (1, 2, 3))
    return Matches(np.searchsorted(matches[:, 0], np.arange(n_units + 1)), *columns)
