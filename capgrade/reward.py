"""Scores of sampled captions as a reward: `CiderReward` for self-critical training, `CaptionReward`
for any measure of single captions, and `RewardFunction`, which hands either to trl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.measures import MeasuresParams
from capgrade.measures.base import ImagePairs
from capgrade.measures.cider import SIGMA
from capgrade.measures.cider.fitted import score_sentences
from capgrade.measures.corpus import Corpus, are_ids, pair_candidates, token_ids
from capgrade.measures.frequencies import Frequencies, warn_of_one_image
from capgrade.measures.ngrams import ngrams_of
from capgrade.schemas.errors import InputError
from capgrade.scoring import choose_scoring
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import (
    NO_TOKENIZER,
    Words,
    remove_line_breaks,
    split_at_white_space,
    tokenize_as_words,
)


class CiderReward:
    """CIDEr-D, 0..10, of several candidates of each image, with document frequencies fixed
    beforehand.

    frequencies: `Frequencies.of(training references)`, or the path of what `capgrade
    frequencies` or `Frequencies.write` wrote, counted with `tokenizer`. tokenizer: `ptb_py`, or
    `none` for captions that are tokens with spaces between them, or token ids; a model's end mark
    is a word like any other there (Rennie et al. 2017 reward it). end: the id of the end mark,
    behind which a caption is padding.

    >>> references = [["a dog runs", "the dog is running"], ["two men talk", "men talking"]]
    >>> reward = CiderReward(Frequencies.of(references))
    >>> reward([["a dog runs", "a cat"], ["two men", "two dogs"]], references).round(3)
    array([[4.106, 0.503],
           [2.503, 0.503]])

    Token ids, here 0 the end mark:

    >>> references = [[[5, 6, 7, 0], [8, 6, 7, 0]], [[9, 4, 0]]]
    >>> reward = CiderReward(Frequencies.of(references, "none"), end=0)
    >>> sampled = np.array([[[5, 6, 7, 0, 0], [6, 6, 6, 6, 6]], [[9, 4, 0, 0, 0], [0, 0, 0, 0, 0]]])
    >>> reward(sampled, references).round(3)
    array([[7.292, 0.285],
           [7.5  , 0.   ]])
    """

    def __init__(
        self,
        frequencies: Frequencies | str | Path,
        *,
        tokenizer: str = "ptb_py",
        sigma: float = SIGMA,
        end: int | None = None,
    ) -> None:
        if not isinstance(frequencies, Frequencies):
            frequencies = Frequencies.read(frequencies, tokenizer)
        warn_of_one_image(frequencies.n_images)
        self.frequencies, self.tokenizer = frequencies, frequencies.tokenizer
        self.sigma, self.end = sigma, end
        self.name = "cider"

    def __call__(self, candidates: Sequence[Any], references: Sequence[Any]) -> np.ndarray:
        """float64 [images, candidates of an image].

        Candidates: a list for each image, or an array or tensor of token ids [images, candidates,
        length]; references likewise. InputError where images have different numbers of candidates,
        or the lists different numbers of images, or one has ids and the other texts.
        """
        return _of_images(*self.each(candidates, references))

    def each(
        self, candidates: Sequence[Any], references: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """float64 [candidates of all images], and how many each image has, int64 [images]: these
        may differ."""
        if are_ids(candidates) or are_ids(references):
            words, sizes, ref_ptr = self._ids(candidates, references)
        else:
            paired = pair_candidates(candidates, references)
            warn_of_scripts(paired.texts, self.tokenizer)
            # A model may write half a character, which must not stop a run.
            texts = remove_line_breaks(paired.texts)
            words = split_at_white_space(tokenize_as_words(texts, self.tokenizer))
            ref_ptr = paired.pairs.ref_ptr
            sizes = np.bincount(paired.pairs.images)
        ngrams, n = ngrams_of(words), int(sizes.sum())
        rows = np.arange(len(words.sizes))
        pairs = ImagePairs(np.repeat(np.arange(len(sizes)), sizes), rows[:n], ref_ptr, rows[n:])
        return score_sentences(
            pairs, ngrams.sentences, self.frequencies.idf(ngrams), self.sigma
        ), sizes

    def _ids(
        self, candidates: Sequence, references: Sequence
    ) -> tuple[Words, np.ndarray, np.ndarray]:
        if self.tokenizer != NO_TOKENIZER:
            remedy = 'count them on ids: Frequencies.of(ids, "none")'
            raise InputError(
                f"token ids, but frequencies with tokenizer {self.tokenizer}", remedy=remedy
            )
        if len(candidates) != len(references):
            problem = f"{len(candidates)} candidates, but {len(references)} reference sets"
            raise InputError(problem, remedy="give one set of references for each image")
        words, sizes = token_ids(self.end, candidates=candidates, references=references)
        n_candidates, n_references = np.split(sizes, 2)  # of each image
        return words, n_candidates, np.append(0, np.cumsum(n_references))


class CaptionReward:
    """A measure or mixture of `capgrade.score`, such as `people`, of several candidates of each
    image. Candidates and references are texts.

    `params` are the block `measures` of params.yaml, `tokenizer` as of `capgrade.score`. InputError
    for an unknown measure, and for one whose values would depend on the other captions of a batch:
    give `cider.document_frequency`, or `sbert.shared_from`.

    >>> reward = CaptionReward("scene_graph")
    >>> reward([["a red dog runs", "a cat"]], [["a red dog", "the dog is running"]]).round(3)
    array([[1.   , 0.321]])
    """

    def __init__(
        self, measure: str, *, params: MeasuresParams | None = None, tokenizer: str = "ptb_py"
    ) -> None:
        self.name, self.tokenizer = measure, tokenizer
        self._measure = choose_scoring([measure], params)[measure]
        if self._measure.depends_on_corpus:
            keys = "measures.cider.document_frequency or measures.sbert.shared_from"
            problem = f"values of {measure} would depend on the other captions of a batch"
            raise InputError(problem, remedy=f"set {keys} to captions that are always the same")

    def __call__(self, candidates: Sequence[Any], references: Sequence[Any]) -> np.ndarray:
        """float64 [images, candidates of an image].

        InputError where images have different numbers of candidates, or the lists different numbers
        of images.
        """
        return _of_images(*self.each(candidates, references))

    def each(
        self, candidates: Sequence[Any], references: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `CiderReward.each`: float64 [candidates of all images], and int64 [images]."""
        paired = pair_candidates(candidates, references)
        # A model may write half a character, which must not stop a run.
        corpus = Corpus(replace(paired, texts=[*remove_line_breaks(paired.texts)]), self.tokenizer)
        return self._measure.of_candidates(corpus), np.bincount(paired.pairs.images)


def _of_images(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Values of all candidates as [images, candidates]. InputError for different numbers."""
    if (sizes != sizes[0]).any():
        odd = int(np.flatnonzero(sizes != sizes[0])[0])
        problem = f"{sizes[odd]} candidates, {sizes[0]} of the first image"
        raise InputError(problem, row=f"candidates[{odd}]", remedy="sample as many for each image")
    return values.reshape(len(sizes), sizes[0])


class RewardFunction:
    """A `CiderReward` or `CaptionReward` as one of the `reward_funcs` of trl, which logs it by the
    measure's name.

    The dataset has a column `references`, a list of captions in each row; other columns are not
    read. Completions are texts, or lists of messages, of which the last one counts. InputError for
    a completion that is neither.

    >>> references = [["a dog runs", "the dog is running"], ["two men talk", "men talking"]]
    >>> reward = RewardFunction(CiderReward(Frequencies.of(references)))
    >>> found = reward(completions=["a dog runs", "two men"], references=references)
    >>> [round(value, 3) for value in found]
    [4.106, 2.503]
    """

    def __init__(self, reward: CiderReward | CaptionReward) -> None:
        self._reward, self.__name__ = reward, reward.name

    def __call__(
        self, completions: Sequence[Any], references: Sequence[Sequence[str]], **columns: Any
    ) -> list[float]:
        texts = [_text(completion, k) for k, completion in enumerate(completions)]
        if len(references) != len(texts):
            problem = f"{len(texts)} completions, but {len(references)} reference sets"
            raise InputError(problem, remedy="give a set of references for each completion")
        # Lists, because `groupby` compares sets, and arrays compare cell by cell.
        sets = [own.tolist() if hasattr(own, "tolist") else own for own in references]
        # The completions of a prompt follow each other and have the same references.
        by_references = groupby(zip(sets, texts, strict=True), key=itemgetter(0))
        groups = [(own, [text for _, text in captions]) for own, captions in by_references]
        return self._reward.each([captions for _, captions in groups], [own for own, _ in groups])[
            0
        ].tolist()


def _text(completion: Any, k: int) -> str:
    """The text of a completion, or of the last of its messages, whose content may be parts."""
    if isinstance(completion, str):
        return completion
    try:
        content = completion[-1]["content"]
        return (
            content
            if isinstance(content, str)
            else "".join(part.get("text", "") for part in content)
        )
    except (TypeError, KeyError, IndexError, AttributeError):
        remedy = 'give texts, or lists of messages {"role": .., "content": ..}'
        raise InputError(
            "neither a text nor messages", row=f"completions[{k}]", remedy=remedy
        ) from None
