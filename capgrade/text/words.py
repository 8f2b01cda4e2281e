"""Captions as word numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

NO_TOKENIZER = "none"  # for captions that are tokens with spaces between them


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

    def sentences_with(self, wanted: np.ndarray) -> np.ndarray:
        """int64, ascending: the sentences with a word of `wanted`, bool [vocabulary]."""
        counts_before = np.concatenate([[0], np.cumsum(wanted[self.word])])
        return np.flatnonzero(np.diff(counts_before[self.ptr]))


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
    """The codes as int32. It is a copy, because kernels are compiled for writable arrays."""
    return codes.indices.to_numpy(zero_copy_only=False).astype(np.int32)


def words_of(tokens: Iterable[str]) -> list[str]:
    """The words whose n-grams CIDEr and BLEU count: tokens joined by a space, split at any white
    space.

    pycocoevalcap does the same: a PTB token with no-break spaces inside (`3 1/2`) is several words
    to it. ROUGE-L, METEOR and scene graphs take tokens.
    """
    return " ".join(tokens).split()


def split_at_white_space(tokens: Words) -> Words:
    """`words_of` the tokens of each sentence."""
    spelling = [words_of([token]) for token in tokens.vocabulary]
    unchanged = all(
        parts == [token] for parts, token in zip(spelling, tokens.vocabulary, strict=True)
    )
    return tokens if unchanged else respell(tokens, spelling)


def respell(words: Words, spelling: Sequence[Sequence[str]]) -> Words:
    """Sentences with each word replaced by none, one or several: `spelling` has the new words for
    each word of the vocabulary."""
    number: dict[str, int] = {}
    flat = np.array(
        [number.setdefault(w, len(number)) for parts in spelling for w in parts], np.int32
    )
    n_parts = np.array([len(parts) for parts in spelling], np.int64)
    n_new = n_parts[words.word]
    ends = np.concatenate([[0], np.cumsum(n_new)])
    first = (np.cumsum(n_parts) - n_parts)[words.word]
    positions = np.arange(ends[-1]) + np.repeat(first - ends[:-1], n_new)
    return Words(ends[words.ptr], flat[positions], list(number))


def tokens_of(captions: Captions) -> Words:
    """The tokens of a captions table, numbered in order of first use."""
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


def retokenize(
    words: Words,
    tokens_of_word: Callable[[str], Sequence[str] | None],
    tokens_of_sentence: Callable[[int], Sequence[str]],
) -> Words:
    """Sentences with each word replaced by its tokens. `tokens_of_word` gives None for a word whose
    tokens depend on its neighbours: then `tokens_of_sentence` gives those of each sentence (by
    row) that has such a word."""
    spelling = [tokens_of_word(word) for word in words.vocabulary]
    rows = words.sentences_with(np.array([parts is None for parts in spelling], bool))
    sentences = [tokens_of_sentence(row) for row in rows.tolist()]
    return replace_sentences(respell(words, [parts or () for parts in spelling]), rows, sentences)


def replace_sentences(words: Words, rows: np.ndarray, sentences: Sequence[Sequence[str]]) -> Words:
    """The sentences `rows` replaced by others."""
    if not len(rows):
        return words
    number = {w: k for k, w in enumerate(words.vocabulary)}
    new_words = np.array(
        [number.setdefault(w, len(number)) for sentence in sentences for w in sentence], np.int32
    )
    sizes, replaced = words.sizes, np.zeros(len(words.ptr) - 1, bool)
    replaced[rows] = True
    old_words = words.word[~np.repeat(replaced, sizes)]
    sizes[rows] = [len(sentence) for sentence in sentences]
    is_new = np.repeat(replaced, sizes)
    word = np.empty(len(is_new), np.int32)
    word[is_new], word[~is_new] = new_words, old_words
    return Words(np.concatenate([[0], np.cumsum(sizes)]), word, list(number))


def fill_empty_sentences(words: Words) -> Words:
    """Sentences without words get one empty word, as `"".split(" ")` gives."""
    rows = np.flatnonzero(words.sizes == 0)
    return replace_sentences(words, rows, [[""]] * len(rows))
