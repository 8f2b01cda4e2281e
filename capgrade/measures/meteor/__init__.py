"""METEOR 1.5 of every caption with every image's reference set, without Java.

What the jar that pycocoevalcap carries computes with `-l en -norm`: stages exact, stem, synonym and
paraphrase, the aligner's beam search, and the best score over the references. Words, stems, synonym
sets and paraphrases are looked up once for all captions; what matches an image's references is then
a table by unit of a caption, so that a pair costs what its common words cost. Words are the
caption's tokens, normalised once more as METEOR does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.kernels import in_threads
from capgrade.measures.base import OVER_REFERENCES, Measure, OfReferences, reference_sets
from capgrade.measures.meteor import kernel
from capgrade.measures.meteor.data import JAR, PARAPHRASES, meteor_files, read_lexicon
from capgrade.measures.meteor.index import (
    LONGEST_CAPTION,
    CaptionWords,
    Matches,
    MatchIndex,
    Units,
    index_words,
)
from capgrade.measures.meteor.text import as_meteor_reads
from capgrade.measures.scores.corpus import Corpus, Scored
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import ParamsBlock, SelfReference
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import Words, tokens_of


@dataclass(frozen=True)
class FittedMeteor(OfReferences):
    """The captions as words and phrases, and which of them match."""

    words: CaptionWords
    units: Units
    matches: Matches

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self._score(images, captions, np.empty((0, kernel.COUNTS))).astype(np.float32)

    def with_counts(
        self, images: np.ndarray, captions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores, float64 [pairs], and counts, float64 [pairs, COUNTS].

        The counts are of the alignment with the reference that gives the score.
        """
        counts = np.empty((len(captions), kernel.COUNTS))
        return self._score(images, captions, counts), counts

    def _score(self, images: np.ndarray, captions: np.ndarray, counts: np.ndarray) -> np.ndarray:
        pairs, values = self.image_pairs(images, captions, self.leave_out), np.empty(len(captions))
        in_threads(
            kernel.score, len(values), pairs.order, pairs, self.index, self.longest, values, counts
        )
        return values

    @property
    def longest(self) -> int:
        """Words of the longest caption, 1 at least."""
        return int(np.diff(self.words.ptr).max(initial=1))

    @property
    def index(self) -> MatchIndex:
        """What the kernels take."""
        return MatchIndex(self.words, self.units, self.matches)


class MeteorParams(ParamsBlock):
    """METEOR 1.5: the best score over the references."""

    self_reference: SelfReference = "included"


class Meteor(Measure[MeteorParams]):
    """METEOR 1.5, 0..1, English, as pycocoevalcap `meteor/meteor.py`.

    F = P R / (α P + (1 - α) R) less a penalty for fragmentation, the best over the references.
    Source: Denkowski and Lavie 2014.
    """

    name, parameters, modules = "meteor", MeteorParams, ("pycocoevalcap",)
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedMeteor:
        """Look up the captions' words and phrases.

        InputError when `left_out` leaves an image without references, or METEOR's data is missing.
        """
        sets = reference_sets(self.params.self_reference, captions)
        tokens = tokens_of(captions)
        warn_unless_english("meteor", tokens)
        index = index_captions(tokens, captions.caption_ids)
        return FittedMeteor(*sets, *index)

    def meaning(self) -> str:
        return f"METEOR 1.5, 0..1: {OVER_REFERENCES['max']}"

    def files(self) -> dict[str, str]:
        return meteor_files(JAR, PARAPHRASES)

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """METEOR 1.5, 0..1, as its jar; the corpus score is of summed statistics."""
        warn_unless_english(self.name, corpus.tokens)
        pairs = corpus.candidates.pairs
        index = index_captions(corpus.tokens, corpus.candidates.texts)
        fitted = FittedMeteor(pairs.ref_ptr, pairs.refs, False, *index)
        values, counts = fitted.with_counts(pairs.images, pairs.captions)
        return {self.name: Scored(values, counts_to_add(counts), score_counts)}


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
    return index_words(words, lexicon)


def refuse_bars(tokens: Words, ids: Sequence[str]) -> None:
    """InputError for a caption with '|||'.

    It separates captions in the protocols of METEOR's jar and of SPICE's.
    """
    rows = tokens.sentences_with(np.array(["|||" in token for token in tokens.vocabulary], bool))
    if len(rows):
        problem = f"caption '{ids[rows[0]]}' has '|||', which separates METEOR's captions"
        raise InputError(problem, remedy="remove it from the caption")


def score_counts(counts: np.ndarray) -> np.ndarray:
    """METEOR, 0..1, from counts or sums of `counts_to_add` [n, COUNTS], float64 [n].

    Source: Denkowski and Lavie 2014; METEOR 1.5, English task, as pycocoevalcap `meteor/meteor.py`
    calls it (`MeteorScorer.computeMetrics`).
    """
    return np.array([kernel.metric(row) for row in np.ascontiguousarray(counts, np.float64)])


def counts_to_add(counts: np.ndarray) -> np.ndarray:
    """The counts of captions as the jar adds them up for a corpus.

    A caption that equals its reference adds no chunk (`MeteorStats.addStats`).
    """
    # Words that match, [captions, 2]: of the caption, and of the reference.
    matches = counts[:, kernel.MATCHED :].reshape(-1, 4, 2, 2).sum(axis=(1, 3))
    equal = (matches == counts[:, [kernel.WORDS_1, kernel.WORDS_2]]).all(axis=1) & (
        counts[:, kernel.CHUNKS] == 1
    )
    counts = counts.copy()
    counts[equal, kernel.CHUNKS] = 0
    return counts
