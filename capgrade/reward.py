"""`capgrade.CiderReward`: CIDEr-D of sampled captions, the reward of self-critical training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from capgrade.pipelines.measures.scores.cider import cider_scores
from capgrade.pipelines.measures.scores.corpus import Corpus
from capgrade.pipelines.measures.scores.frequencies import Frequencies
from capgrade.pipelines.measures.scores.given import given
from capgrade.pipelines.measures.scores.measures import SIGMA
from capgrade.schemas.errors import InputError


class CiderReward:
    """CIDEr-D, 0..10, of several candidates of each image, with document frequencies fixed beforehand.

    frequencies: `Frequencies.of(training references)`, or the path of what `capgrade frequencies` wrote, counted with
    `tokenizer`. tokenizer: `ptb_py`, or `none` for captions that are tokens with spaces between them, which is faster;
    a model's end mark is a word like any other there (Rennie et al. 2017 reward it).

    >>> references = [["a dog runs", "the dog is running"], ["two men talk", "men talking"]]
    >>> reward = CiderReward(Frequencies.of(references))
    >>> reward([["a dog runs", "a cat"], ["two men", "two dogs"]], references).round(3)
    array([[4.106, 0.503],
           [2.503, 0.503]])
    """

    def __init__(
        self, frequencies: Frequencies | str | Path, *, tokenizer: str = "ptb_py", sigma: float = SIGMA
    ) -> None:
        if not isinstance(frequencies, Frequencies):
            frequencies = Frequencies.read(frequencies, tokenizer)
        self.frequencies, self.tokenizer, self.sigma = frequencies, frequencies.tokenizer, sigma

    def __call__(self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> np.ndarray:
        """float64 [images, candidates of an image]. InputError where images have different numbers of candidates, or
        the lists different numbers of images."""
        found = given(candidates, references)
        sizes = np.bincount(found.owner)
        if (sizes != sizes[0]).any():
            odd = int(np.flatnonzero(sizes != sizes[0])[0])
            problem = f"{sizes[odd]} candidates, {sizes[0]} of the first image"
            raise InputError(problem, row=f"candidates[{odd}]", remedy="sample as many for each image")
        corpus = Corpus(found, self.tokenizer, self.frequencies)
        values = cider_scores(corpus.grams, found.owner, found.ref_ptr, corpus.idf, self.sigma)
        return values.reshape(len(sizes), sizes[0])
