"""Captions as numbers: which word stands where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

NO_TOKENIZER = "none"  # the captions are tokens with spaces between them


class Words(NamedTuple):
    """Sentences as word numbers: words of sentence s are `word[ptr[s]:ptr[s + 1]]`, numbers of
    `vocabulary`."""

    ptr: np.ndarray  # int64 [n_sentences + 1]
    word: np.ndarray  # int32 [words]
    vocabulary: list[str]

    def sentence(self, s: int) -> list[str]:
        return [self.vocabulary[w] for w in self.word[self.ptr[s] : self.ptr[s + 1]]]

    @property
    def sizes(self) -> np.ndarray:
        """int64 [n_sentences]: words of each sentence."""
        return np.diff(self.ptr)

    def sentences_with(self, some: np.ndarray) -> np.ndarray:
        """int64, ascending: the sentences that have one of `some` words, bool [vocabulary]."""
        before = np.concatenate([[0], np.cumsum(some[self.word])])
        return np.flatnonzero(np.diff(before[self.ptr]))


def split_at_spaces(lines: Sequence[str] | pa.Array) -> Words:
    """Words as `line.split(" ")` gives them: an empty line has one empty word. InputError for what
    is no Unicode."""
    try:
        pieces = pc.split_pattern(
            lines if isinstance(lines, pa.Array) else pa.array(lines, pa.large_string()), " "
        )
    except UnicodeEncodeError as error:
        problem = f"half a character in {error.object!r}"
        raise InputError(problem, remedy="give captions that can be written in UTF-8") from error
    codes = pieces.flatten().dictionary_encode()
    ptr = np.concatenate([[0], np.cumsum(pc.list_value_length(pieces).to_numpy())])
    return Words(ptr, _numbers(codes), codes.dictionary.to_pylist())


def _numbers(codes: pa.DictionaryArray) -> np.ndarray:
    """int32, a copy: kernels are compiled for writable arrays."""
    return codes.indices.to_numpy(zero_copy_only=False).astype(np.int32)


def words_of(tokens: Iterable[str]) -> list[str]:
    """The words whose n-grams CIDEr and BLEU count: tokens joined by a space, split at any white
    space.

    So does pycocoevalcap, and so a PTB token with no-break spaces inside (`3 1/2`) is several
    words. ROUGE-L, METEOR and scene graphs take tokens.
    """
    return " ".join(tokens).split()


def split_at_white_space(tokens: Words) -> Words:
    """`words_of` each sentence."""
    spelling = [words_of([token]) for token in tokens.vocabulary]
    whole = all(parts == [token] for parts, token in zip(spelling, tokens.vocabulary, strict=True))
    return tokens if whole else respelled(tokens, spelling)


def respelled(words: Words, spelling: Sequence[Sequence[str]]) -> Words:
    """Every word replaced by none, one or several: `spelling` has them for each of the
    vocabulary."""
    number: dict[str, int] = {}
    flat = np.array(
        [number.setdefault(w, len(number)) for parts in spelling for w in parts], np.int32
    )
    size = np.array([len(parts) for parts in spelling], np.int64)
    here = size[words.word]
    ends = np.concatenate([[0], np.cumsum(here)])
    start = (np.cumsum(size) - size)[words.word]
    at = np.arange(ends[-1]) + np.repeat(start - ends[:-1], here)
    return Words(ends[words.ptr], flat[at], list(number))


def tokens_of(captions: Captions) -> Words:
    """The tokens of a captions table, numbered as they come."""
    codes, start = captions.tokens()
    return Words(start, _numbers(codes), codes.dictionary.to_pylist())


def number_words(sentences: Iterable[Sequence[str]]) -> Words:
    """Sentences that are lists of words."""
    number: dict[str, int] = {}
    ptr, word = [0], []
    for sentence in sentences:
        word += [number.setdefault(w, len(number)) for w in sentence]
        ptr.append(len(word))
    return Words(np.array(ptr), np.array(word, np.int32), list(number))


def read_once(
    words: Words,
    alone: Callable[[str], Sequence[str] | None],
    sentence: Callable[[int], Sequence[str]],
) -> Words:
    """Each word replaced by what `alone` reads it as; sentences with a word that gives None by what
    they read as."""
    spelling = [alone(word) for word in words.vocabulary]
    rows = words.sentences_with(np.array([parts is None for parts in spelling], bool))
    read = [sentence(row) for row in rows.tolist()]
    return with_sentences(respelled(words, [parts or () for parts in spelling]), rows, read)


def with_sentences(words: Words, rows: np.ndarray, sentences: Sequence[Sequence[str]]) -> Words:
    """The sentences `rows` replaced by others."""
    if not len(rows):
        return words
    number = {w: k for k, w in enumerate(words.vocabulary)}
    new = np.array(
        [number.setdefault(w, len(number)) for sentence in sentences for w in sentence], np.int32
    )
    sizes, replaced = words.sizes, np.zeros(len(words.ptr) - 1, bool)
    replaced[rows] = True
    kept = words.word[~np.repeat(replaced, sizes)]
    sizes[rows] = [len(sentence) for sentence in sentences]
    is_new = np.repeat(replaced, sizes)
    word = np.empty(len(is_new), np.int32)
    word[is_new], word[~is_new] = new, kept
    return Words(np.concatenate([[0], np.cumsum(sizes)]), word, list(number))


def without_empty_sentences(words: Words) -> Words:
    """One empty word in each sentence that has none: as `"".split(" ")`."""
    rows = np.flatnonzero(words.sizes == 0)
    return with_sentences(words, rows, [[""]] * len(rows))
