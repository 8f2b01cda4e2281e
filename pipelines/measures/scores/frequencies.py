"""Document frequencies that are counted once and used for other captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from capgrade.pipelines.measures.ngrams import DocumentFrequencies, read_document_frequencies
from capgrade.pipelines.measures.scores.given import Captions, given
from capgrade.pipelines.measures.scores.grams import (
    Grams,
    Table,
    count_grams,
    document_frequencies,
    look_up,
    number_grams,
)
from capgrade.pipelines.measures.scores.words import (
    Words,
    number_words,
    split_at_spaces,
    split_at_white_space,
    tokenized,
)


@dataclass(frozen=True)
class Frequencies:
    """In how many of `n_images` reference sets each n-gram of 1 to 4 words occurs, for CIDEr-D.

    `Frequencies.of(references)` counts them, `Frequencies.read(path)` reads what `capgrade frequencies` wrote. An
    n-gram that no set has counts as one that one set has, as in pycocoevalcap.
    """

    number: Mapping[str, int]  # of each word
    table: Table
    images: np.ndarray  # int32 [n_grams]
    n_images: int
    tokenizer: str

    @classmethod
    def of(cls, references: Captions, tokenizer: str = "ptb_py") -> Frequencies:
        """Of reference sets, a dict (id -> captions) or a list of sets. `tokenizer` "none" takes words between spaces.

        Raises InputError for a set without captions, or an unknown tokenizer.
        """
        sets = given(references, references)
        n = len(sets.owner)
        texts = sets.texts[n:]
        words = split_at_white_space(split_at_spaces(texts) if tokenizer == "none" else tokenized(texts, tokenizer))
        numbers, table = number_grams(words)
        images = document_frequencies(count_grams(words.ptr, numbers), sets.ref_ptr, 0, table.n_grams)
        return cls({w: k for k, w in enumerate(words.vocabulary)}, table, images, sets.n_images, tokenizer)

    @classmethod
    def read(cls, path: str | Path, tokenizer: str = "ptb_py") -> Frequencies:
        """From a file that `capgrade frequencies` wrote, or a captions folder (FOLDER or FOLDER#split).

        Raises InputError when it is neither, or was counted with another tokenizer.
        """
        return cls.from_texts(read_document_frequencies(str(path), tokenizer), tokenizer)

    @classmethod
    def from_texts(cls, counted: DocumentFrequencies, tokenizer: str) -> Frequencies:
        """From n-grams as texts: every n-gram's beginning is among them."""
        words = number_words([text.split(" ") for text in counted.ngram.to_pylist()])
        numbers, table = number_grams(words)
        sizes = words.sizes
        images = np.zeros(table.n_grams, np.int32)
        images[numbers[sizes - 1, words.ptr[:-1]]] = counted.images
        return cls({w: k for k, w in enumerate(words.vocabulary)}, table, images, counted.n_images, tokenizer)

    @cached_property
    def _idf(self) -> np.ndarray:
        """ln N - ln max(1, df) of each n-gram, float64 [n_grams + 1]; the last is of any other."""
        return np.log(float(self.n_images)) - np.log(np.maximum(np.append(self.images, 1), 1))

    def grams(self, words: Words) -> tuple[Grams, np.ndarray]:
        """The n-grams of sentences, counted, and the inverse document frequency of each that is listed, float64."""
        numbers, table = number_grams(words)
        grams = count_grams(words.ptr, numbers)
        known = np.array([self.number.get(word, -1) for word in words.vocabulary] or [-1], np.int32)
        return grams, np.append(self._idf[look_up(table, known, self.table)], 0)[grams.gram]


def own_grams(words: Words, ref_ptr: np.ndarray, first: int) -> tuple[Grams, np.ndarray]:
    """As `Frequencies.grams`, with frequencies of the sentences from `first` on, split by `ref_ptr`."""
    numbers, table = number_grams(words)
    grams = count_grams(words.ptr, numbers)
    images = document_frequencies(grams, ref_ptr, first, max(table.n_grams, 1))
    return grams, (np.log(float(len(ref_ptr) - 1)) - np.log(np.maximum(images, 1)))[grams.gram]
