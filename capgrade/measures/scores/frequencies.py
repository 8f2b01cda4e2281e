"""Document frequencies that are counted once and used for other captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from capgrade.measures.ngrams import (
    FREQUENCIES,
    DocumentFrequencies,
    Sentences,
    counted,
    images_with,
    look_up,
    number_ngrams,
    read_document_frequencies,
    texts_of,
)
from capgrade.measures.scores.given import Captions, are_ids, given, token_ids
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import arrow_of, refuse_file
from capgrade.text.words import (
    NO_TOKENIZER,
    Words,
    split_at_spaces,
    split_at_white_space,
    tokenized,
)


@dataclass(frozen=True)
class Frequencies:
    """In how many of `n_images` reference sets each n-gram of 1 to 4 words occurs, for CIDEr-D.

    `Frequencies.of(references)` counts them, `Frequencies.read(path)` reads what `capgrade captions --frequencies`
    wrote. An n-gram that no set has counts as one that one set has, as in pycocoevalcap.
    """

    number: Mapping[str, int]  # of each word
    keys: np.ndarray  # int64 [n_grams], as of `number_ngrams`
    images: np.ndarray  # int32 [n_grams]
    n_images: int
    tokenizer: str

    @classmethod
    def of(cls, references: Captions, tokenizer: str = "ptb_py", *, end: int | None = None) -> Frequencies:
        """Of reference sets, a dict (id -> captions) or a list of sets. `tokenizer` "none" takes words between spaces,
        or token ids, which end with the id `end` where it is given.

        Raises InputError for a set without captions, or an unknown tokenizer.

        >>> Frequencies.of([["a dog runs"], ["a cat", "cats"]]).n_images
        2
        """
        sets = list(references.values()) if isinstance(references, Mapping) else references
        if are_ids(sets):
            if tokenizer != NO_TOKENIZER:
                raise InputError(f"token ids with tokenizer {tokenizer}", remedy='give tokenizer="none"')
            counts = token_ids(sets, end, "references")
            words, sizes = counts.words, counts.sizes
        else:
            found = given(references, references)
            texts, sizes = found.texts[len(found.owner) :], np.diff(found.ref_ptr)
            words = split_at_white_space(tokenized(texts, tokenizer))
        numbers, keys = number_ngrams(words.ptr, words.word)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        images = images_with(counted(words.ptr, numbers), owner, len(keys))
        return cls({w: k for k, w in enumerate(words.vocabulary)}, keys, images, len(sizes), tokenizer)

    def write(self, path: str | Path) -> None:
        """To a file as `capgrade captions --frequencies` writes it. InputError where a file of another kind stands."""
        refuse_file(Path(path), "file of document frequencies", arrow_of(FREQUENCIES))
        corpus = f"{self.n_images} reference sets tokenizer {self.tokenizer}"
        texts = texts_of(self.keys, pa.array(list(self.number), pa.large_string()))
        DocumentFrequencies(texts, self.images, self.n_images, corpus).save(Path(path))

    @classmethod
    def read(cls, path: str | Path, tokenizer: str = "ptb_py") -> Frequencies:
        """From a file that `write` or `capgrade captions --frequencies` wrote, or a captions folder (FOLDER or
        FOLDER#split).

        Raises InputError when it is neither, or was counted with another tokenizer.
        """
        return cls.from_texts(read_document_frequencies(str(path), tokenizer), tokenizer)

    @classmethod
    def from_texts(cls, found: DocumentFrequencies, tokenizer: str) -> Frequencies:
        """From n-grams as texts: every n-gram's beginning is among them."""
        words = split_at_spaces(found.ngram)
        numbers, keys = number_ngrams(words.ptr, words.word)
        sizes = words.sizes
        images = np.zeros(len(keys), np.int32)
        images[numbers[sizes - 1, words.ptr[:-1]]] = found.images
        return cls({w: k for k, w in enumerate(words.vocabulary)}, keys, images, found.n_images, tokenizer)

    @cached_property
    def _idf(self) -> np.ndarray:
        """ln N - ln max(1, df) of each n-gram, float64 [n_grams + 1]; the last is of any other."""
        return np.log(float(self.n_images)) - np.log(np.maximum(np.append(self.images, 1), 1))

    def grams(self, words: Words) -> tuple[Sentences, np.ndarray]:
        """The n-grams of sentences, counted, and the inverse document frequency of each by its number, float64."""
        known = np.array([self.number.get(word, -1) for word in words.vocabulary] or [-1], np.int32)
        numbers, keys = number_ngrams(words.ptr, words.word)
        return counted(words.ptr, numbers), np.append(self._idf[look_up(keys, known, self.keys)], 0)


def own_grams(words: Words, ref_ptr: np.ndarray, first: int) -> tuple[Sentences, np.ndarray]:
    """As `Frequencies.grams`, with frequencies of the sentences from `first` on, split by `ref_ptr`."""
    numbers, keys = number_ngrams(words.ptr, words.word)
    sentences, n_images = counted(words.ptr, numbers), len(ref_ptr) - 1
    owner = np.append(np.full(first, -1), np.repeat(np.arange(n_images), np.diff(ref_ptr)))
    images = images_with(sentences, owner, max(len(keys), 1))
    return sentences, np.log(float(n_images)) - np.log(np.maximum(images, 1))
