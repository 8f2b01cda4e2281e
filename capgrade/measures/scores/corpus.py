"""A corpus to score: candidates and references, prepared when a score first asks; and a score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from capgrade.measures.frequencies import Frequencies
from capgrade.measures.ngrams import Ngrams, Sentences, ngrams_of
from capgrade.measures.scores.candidates import Candidates
from capgrade.schemas.captions import SCHEMA, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import (
    Words,
    fill_empty_sentences,
    split_at_white_space,
    tokenize_as_words,
)


def warn_of_one_image(n_images: int) -> None:
    """Say that document frequencies of one image weigh nothing."""
    if n_images == 1:
        warn(
            "document frequencies of one image make every CIDEr-D 0 -> "
            "give frequencies counted on a corpus, as capgrade.Frequencies.of(references), "
            "or --frequencies FILE of `capgrade score`"
        )


@dataclass(frozen=True)
class Corpus:
    """Candidates (the first sentences), references, and how they are tokenised."""

    candidates: Candidates
    tokenizer: str = "ptb_py"
    frequencies: Frequencies | None = None

    def __post_init__(self) -> None:
        if self.frequencies is not None and self.frequencies.tokenizer != self.tokenizer:
            problem = f"document frequencies with tokenizer {self.frequencies.tokenizer}, "
            problem += f"captions with {self.tokenizer}"
            raise InputError(problem, remedy="tokenise both alike")

    @cached_property
    def tokens(self) -> Words:
        """Tokens; a sentence without any has one empty word, as pycocoevalcap's ROUGE-L sees it."""
        warn_of_scripts(self.candidates.texts, self.tokenizer)
        # pycocoevalcap hands candidates, then references to the tokenizer's jar.
        lists = (0, len(self.candidates.owner))
        return fill_empty_sentences(tokenize_as_words(self.candidates.texts, self.tokenizer, lists))

    @cached_property
    def words(self) -> Words:
        """Words as BLEU and CIDEr-D count them (`words_of`)."""
        return split_at_white_space(self.tokens)

    @cached_property
    def ngrams(self) -> Ngrams:
        """Of every sentence, counted."""
        return ngrams_of(self.words)

    @property
    def grams(self) -> Sentences:
        return self.ngrams.sentences

    @cached_property
    def idf(self) -> np.ndarray:
        """ln N - ln max(1, df), float64, of each n-gram by its number.

        Warns where a single image makes it 0.
        """
        frequencies = self.frequencies
        if frequencies is None:
            n_images, sizes = self.candidates.n_images, np.diff(self.candidates.ref_ptr)
            owner = np.append(
                np.full(len(self.candidates.owner), -1), np.repeat(np.arange(n_images), sizes)
            )
            frequencies = Frequencies.count(
                self.ngrams, owner, n_images, self.tokenizer, "these references"
            )
        warn_of_one_image(frequencies.n_images)
        return frequencies.idf(self.ngrams)

    def warn_of_empty(self) -> None:
        """Say how many captions have no words: their scores are 0."""
        n, sizes = len(self.candidates.owner), self.words.sizes
        for what, empty in (("candidate", sizes[:n] == 0), ("reference", sizes[n:] == 0)):
            if empty.any():
                warn(
                    f"{int(empty.sum())} {what}(s) have no words, so measures of common words give"
                    " 0 with them"
                )

    @cached_property
    def table(self) -> Captions:
        """The sentences as a captions table, each an image of its own."""
        rows = pa.array([str(k) for k in range(len(self.candidates.texts))])
        tokens = pa.ListArray.from_arrays(
            pa.array(self.tokens.ptr, pa.int32()),
            pa.DictionaryArray.from_arrays(self.tokens.word, pa.array(self.tokens.vocabulary)).cast(
                pa.string()
            ),
        )
        split = pa.array([""] * len(rows))
        columns = [
            rows,
            rows,
            split,
            pa.array(self.candidates.texts),
            tokens,
            pa.nulls(len(rows), pa.string()),
        ]
        return Captions(pa.Table.from_arrays(columns, schema=SCHEMA), "", self.tokenizer, "")


@dataclass(frozen=True)
class Scored:
    """One score of candidates: `sentences`, float64 [candidates].

    `statistics`, float64 [candidates, k], are summed, and `of` makes corpus scores [n] of sums [n,
    k].
    """

    sentences: np.ndarray
    statistics: np.ndarray
    of: Callable[[np.ndarray], np.ndarray]

    @property
    def corpus(self) -> float:
        """The score of all candidates together."""
        return float(self.of(self.statistics.sum(axis=0, keepdims=True))[0])


def mean_of(sums: np.ndarray) -> np.ndarray:
    """Means from sums float64 [n, 2]: of values, and of ones."""
    return sums[:, 0] / sums[:, 1]


def mean_score(values: np.ndarray) -> Scored:
    """Scores of candidates, whose mean is the score of the corpus."""
    values = np.asarray(values, np.float64)
    return Scored(values, np.stack([values, np.ones_like(values)], axis=1), mean_of)
