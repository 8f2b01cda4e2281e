"""Captions as METEOR sees them: words, phrases, and which of them match which.

A unit is a word or a phrase of several words. For every unit that a reference may hold, the units of a caption that
match it are listed with the stage that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.meteor.bound import BITS, DELTA
from capgrade.pipelines.measures.meteor.data import Lexicon
from capgrade.pipelines.measures.meteor.phrases import hash_of, occurrences, phrase_pairs
from capgrade.pipelines.measures.meteor.stem import stem
from capgrade.pipelines.measures.meteor.text import meteor_words
from capgrade.schemas.errors import InputError

# The stages in their order; the paraphrase table is read from the reference's side, then from the caption's.
EXACT, STEM, SYNONYM, FORWARD, BACKWARD = range(5)
LONGEST_CAPTION = 2000  # words; the kernel's packed numbers hold twice that


class Index(NamedTuple):
    """Arrays of the captions and of what matches."""

    ptr: np.ndarray  # int64 [n_captions + 1]: words of each caption
    function: np.ndarray  # uint8 [words]: is a function word
    function_bits: np.ndarray  # uint64 [n_captions]: the same of the first 64 words, as bits
    weight: np.ndarray  # float64 [n_captions]: words, weighted
    same: np.ndarray  # int32 [n_captions]: alike where captions are, word for word
    unit_ptr: np.ndarray  # int64 [n_captions + 1]: units of each caption, by place, then length
    unit_start: np.ndarray  # int32 [units]
    unit_length: np.ndarray  # int32 [units]
    unit: np.ndarray  # int32 [units]
    match_ptr: np.ndarray  # int64 [n_units + 1]: for a unit of a reference, what matches it in a caption
    match_unit: np.ndarray  # int32 [matches]
    match_stage: np.ndarray  # int32 [matches]
    match_rank: np.ndarray  # int32 [matches]: order among the paraphrases of a place


def build_index(lines: Sequence[str], lexicon: Lexicon) -> Index:
    """Index captions, each a line of tokens."""
    split = [meteor_words(line, lexicon.abbreviations) for line in lines]
    vocabulary: dict[str, int] = {}
    word = np.array([vocabulary.setdefault(w, len(vocabulary)) for words in split for w in words], np.int32)
    ptr = np.concatenate([[0], np.cumsum([len(words) for words in split])]).astype(np.int64)
    longest = int(np.diff(ptr).max(initial=0))
    if longest > LONGEST_CAPTION:
        where = int(np.argmax(np.diff(ptr)))
        raise InputError(
            f"a caption of {longest} words; meteor takes {LONGEST_CAPTION} at most",
            row=f"captions[{where}]", remedy="shorten it",
        )  # fmt: skip
    words = list(vocabulary)
    key = np.array([java_hash(w) for w in words], np.int64)
    phrases, phrase_ranks, known, unit = _paraphrases(lexicon, words, ptr, word)
    unit_ptr, start, length, units = occurrences(ptr, word, known[unit >= len(words)], unit[unit >= len(words)])
    matches = [_word_matches(words, key, lexicon), *_paraphrase_matches(phrases, phrase_ranks)]
    function = np.array([w.lower() in lexicon.function_words for w in words], np.uint8)[word]
    n_function = np.diff(np.concatenate([[0], np.cumsum(function)])[ptr])
    n_units = max(int(unit.max(initial=-1)), len(words) - 1) + 1
    return Index(
        ptr=ptr,
        function=function,
        function_bits=_as_bits(function, ptr),
        weight=DELTA * (np.diff(ptr) - n_function) + (1 - DELTA) * n_function,
        same=_alike(key[word], ptr),
        unit_ptr=unit_ptr,
        unit_start=start,
        unit_length=length,
        unit=units,
        **_by_reference_unit(np.concatenate(matches), n_units),
    )


def java_hash(word: str) -> int:
    """Java's String.hashCode: METEOR takes words of one hash for one word."""
    h = 0
    units = np.frombuffer(word.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    for unit in units:
        h = (31 * h + unit) & 0xFFFFFFFF
    return h


def _as_bits(flags: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    place = np.arange(len(flags)) - np.repeat(ptr[:-1], np.diff(ptr))
    value = np.where(place < BITS, flags.astype(np.uint64) << (place % BITS).astype(np.uint64), np.uint64(0))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(value, dtype=np.uint64)])
    return total[ptr[1:]] - total[ptr[:-1]]


def _alike(keys: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    numbers: dict[bytes, int] = {}
    each = [keys[a:b].tobytes() for a, b in zip(ptr[:-1], ptr[1:], strict=True)]
    return np.array([numbers.setdefault(k, len(numbers)) for k in each], np.int32)


def _paraphrases(
    lexicon: Lexicon, words: list[str], ptr: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Paraphrase pairs as units int32 [n, 2], their ranks int32 [n] by the phrase's size and place in the table; the
    sorted hashes of all phrases and the unit of each."""
    try:
        hashes, sizes, rows = phrase_pairs(lexicon.table, words, ptr, word)
    except ValueError as error:
        raise InputError(str(error), file=lexicon.paraphrases, remedy="install pycocoevalcap again") from error
    known = np.unique(hashes)
    unit = np.full(len(known), -1, np.int32)
    of_words = np.array([hash_of(w) for w in range(len(words))], np.uint64)
    single = np.minimum(np.searchsorted(known, of_words), max(len(known) - 1, 0))
    for w in range(len(words) if len(known) else 0):
        if known[single[w]] == of_words[w]:
            unit[single[w]] = w
    longer = unit < 0
    unit[longer] = len(words) + np.arange(longer.sum())
    rank = np.empty(len(rows), np.int32)
    rank[np.lexsort((rows, sizes[:, 0]))] = np.arange(len(rows))
    return unit[np.searchsorted(known, hashes)], rank, known, unit


def _paraphrase_matches(pairs: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of (reference's unit, caption's unit, stage, rank), the table read in both directions."""
    forward = np.stack([pairs[:, 0], pairs[:, 1], np.full(len(rank), FORWARD), rank], axis=1)
    backward = np.stack([pairs[:, 1], pairs[:, 0], np.full(len(rank), BACKWARD), rank], axis=1)
    return forward, backward


def _word_matches(words: list[str], key: np.ndarray, lexicon: Lexicon) -> np.ndarray:
    """Rows of (reference's unit, caption's unit, stage, 0) of single words that match exactly, by stem or synonym."""
    stems: dict[int, list[int]] = {}
    synsets: dict[int, list[int]] = {}
    exact: dict[int, list[int]] = {}
    for w, text in enumerate(words):
        exact.setdefault(int(key[w]), []).append(w)
        stems.setdefault(java_hash(stem(text)), []).append(w)
        for synset in lexicon.synsets_of(text):
            synsets.setdefault(synset, []).append(w)
    pairs = [_pairs(exact.values()), _pairs(stems.values()), _pairs(synsets.values())]
    pairs[1:] = [p[key[p[:, 0]] != key[p[:, 1]]] for p in pairs[1:]]
    return np.concatenate(
        [
            np.pad(p, ((0, 0), (0, 2)), constant_values=((0, 0), (0, 0))) + [0, 0, stage, 0]
            for stage, p in enumerate(pairs)
        ]
    )


def _pairs(groups: Iterable[list[int]]) -> np.ndarray:
    """Every pair of members of one group, once: int64 [n, 2]."""
    grids = [np.stack(np.meshgrid(g, g, indexing="ij"), axis=-1).reshape(-1, 2) for g in groups]
    return np.unique(np.concatenate(grids), axis=0) if grids else np.empty((0, 2), np.int64)


def _by_reference_unit(matches: np.ndarray, n_units: int) -> dict[str, np.ndarray]:
    matches = matches[np.argsort(matches[:, 0], kind="stable")]
    columns = [np.ascontiguousarray(matches[:, k], dtype=np.int32) for k in (1, 2, 3)]
    ptr = np.searchsorted(matches[:, 0], np.arange(n_units + 1))
    return {"match_ptr": ptr, "match_unit": columns[0], "match_stage": columns[1], "match_rank": columns[2]}
