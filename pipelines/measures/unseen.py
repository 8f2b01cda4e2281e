"""Relevance of a caption that is not among the fitted ones to every image's reference set.

What a fitted measure would say if the caption were one more row: document frequencies, words and references stay those
of the fitted captions. N-grams and words that they do not have match nothing and make the caption longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from capgrade.pipelines.measures.base import Fitted, Measure
from capgrade.pipelines.measures.cider import Cider, CiderPlain, FittedCider, corpus_frequencies, numbered
from capgrade.pipelines.measures.embeddings import encode, load_encoder
from capgrade.pipelines.measures.mixture import FittedMixture, Mixture
from capgrade.pipelines.measures.ngrams import MAX_ORDER
from capgrade.pipelines.measures.rouge import FittedRougeL, RougeL, score_caption
from capgrade.pipelines.measures.sbert import FittedSbert, Sbert, cosine_range
from capgrade.pipelines.measures.scores.words import tokens_of, words_of
from capgrade.pipelines.measures.tokens import tokenize
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

Scorer = Callable[[str], np.ndarray]


def scorer_of_unseen(measure: Measure, fitted: Fitted, captions: Captions) -> Scorer | None:
    """What gives the relevance of any caption to every image, float32 [n_images]; None for measures that score the
    fitted captions only (those but CIDEr, ROUGE-L, Sentence-BERT and mixtures of these).

    It equals `fitted.score` on a fitted caption, within 1e-6 of the measure's range, where `self_reference` is
    `included`. It raises InputError for a caption without words.
    """
    if isinstance(measure, Cider | CiderPlain) and isinstance(fitted, FittedCider):
        return UnseenCider(measure, fitted, captions)
    if isinstance(measure, RougeL) and isinstance(fitted, FittedRougeL):
        return UnseenRougeL(fitted, captions)
    if isinstance(measure, Sbert) and isinstance(fitted, FittedSbert):
        return UnseenSbert(measure, fitted)
    if isinstance(measure, Mixture) and isinstance(fitted, FittedMixture):
        return _mixture(measure, fitted, captions)
    return None


def _mixture(measure: Mixture, fitted: FittedMixture, captions: Captions) -> Scorer | None:
    parts = {name: scorer_of_unseen(part, fitted.parts[name], captions) for name, part in measure.parts.items()}
    known = [(np.float32(measure.weights[name]), part) for name, part in parts.items() if part is not None]
    if len(known) < len(parts):
        return None
    return lambda text: np.stack([weight * part(text) for weight, part in known]).sum(axis=0)


def _tokens(text: str, tokenizer: str) -> list[str]:
    """The tokens of a caption; `ptb_py` stands for `ptb`, as it gives the same without a Java process for each."""
    found = tokenize("ptb_py" if tokenizer == "ptb" else tokenizer, [text])[0]
    if not found:
        raise InputError("no word in this caption", remedy="type a caption of one word or more")
    return found


class UnseenCider:
    """CIDEr-D or CIDEr by an index from each n-gram to the captions that have it; double precision throughout.

    An n-gram that no image has counts as one that one image has, as in `Cider.fit`.
    """

    def __init__(self, measure: Cider | CiderPlain, fitted: FittedCider, captions: Captions) -> None:
        ngrams = numbered(captions, measure.params.document_frequency)
        frequencies = corpus_frequencies(captions, ngrams, measure.params.document_frequency)
        self.fitted, self.tokenizer = fitted, captions.tokenizer
        self.sigma = measure.params.sigma if isinstance(measure, Cider) else None
        self.owner, self.words = captions.owner, ngrams.words
        self._number = {text: k for k, text in enumerate(ngrams.text.to_pylist())}
        self._log_images = math.log(frequencies.n_images)
        elsewhere = measure.params.document_frequency is not None
        counted = zip(frequencies.ngram.to_pylist(), frequencies.images.tolist(), strict=True) if elsewhere else ()
        self._images_with = dict(counted)  # of n-grams that the fitted captions may not have
        by_gram = np.argsort(ngrams.gram, kind="stable")
        self._start = np.searchsorted(ngrams.gram[by_gram], np.arange(len(ngrams.text) + 1))
        self._row = np.repeat(np.arange(captions.n_captions), np.diff(ngrams.ptr))[by_gram].astype(np.int32)
        self._count = ngrams.count[by_gram]

    def __call__(self, text: str) -> np.ndarray:
        words = words_of(_tokens(text, self.tokenizer))
        counts = Counter(" ".join(words[a : a + n]) for n in range(1, MAX_ORDER + 1) for a in range(len(words) - n + 1))
        inverse = self._inverse_norms(counts)
        total = np.zeros(len(self.words))
        for gram, count in counts.items():
            if gram in self._number:
                self._add(self._number[gram], count, inverse, total)
        if self.sigma is not None:
            longer = np.maximum(self.words - 1, 0) - max(len(words) - 1, 0)
            total *= np.exp(-(longer.astype(np.float64) ** 2) / (2 * self.sigma**2))
        of_image = np.bincount(self.owner, total, len(self.fitted.ref_ptr) - 1)
        return (self.fitted.scale * of_image / np.diff(self.fitted.ref_ptr)).astype(np.float32)

    def _add(self, gram: int, count: int, inverse: np.ndarray, total: np.ndarray) -> None:
        """What one n-gram of the caption adds to each caption that has it."""
        found = slice(self._start[gram], self._start[gram + 1])
        row, times, order = self._row[found], self._count[found], self.fitted.order[gram]
        gain = self.fitted.gain[gram] * inverse[order]
        shared = np.minimum(times, count) if self.fitted.clip else count
        total[row] += shared * times * gain * self.fitted.inv_norm[row, order]

    def _inverse_norms(self, counts: Counter[str]) -> np.ndarray:
        squares = np.zeros(MAX_ORDER)
        for gram, count in counts.items():
            squares[gram.count(" ")] += count**2 * self._gain(gram)
        return np.divide(1, np.sqrt(squares), out=np.zeros(MAX_ORDER), where=squares > 0)

    def _gain(self, gram: str) -> float:
        if gram in self._number:
            return float(self.fitted.gain[self._number[gram]])
        return (self._log_images - math.log(max(self._images_with.get(gram, 1), 1))) ** 2


class UnseenRougeL:
    """ROUGE-L, one subsequence after the other: few as they are, bit-parallel lanes would not pay."""

    def __init__(self, fitted: FittedRougeL, captions: Captions) -> None:
        self._number = {word: k for k, word in enumerate(tokens_of(captions).vocabulary)}
        self.fitted, self.tokenizer = fitted, captions.tokenizer

    def __call__(self, text: str) -> np.ndarray:
        fitted = self.fitted
        numbers = [self._number.get(token, -1) for token in _tokens(text, self.tokenizer)]
        out = np.empty(len(fitted.ref_ptr) - 1, np.float32)
        score_caption(
            np.array(numbers, np.int32), fitted.ref_ptr, fitted.refs, fitted.ptr, fitted.word, fitted.beta**2,
            fitted.mean, out,
        )  # fmt: skip
        return out


class UnseenSbert:
    """Sentence-BERT; its model is loaded once."""

    def __init__(self, measure: Sbert, fitted: FittedSbert) -> None:
        self.fitted, self._encoder = fitted, load_encoder(measure.params.model, measure.params.device)
        firsts = fitted.refs[fitted.ref_ptr[:-1]]
        self._vectors = fitted.embeddings[firsts if fitted.references == "first" else fitted.refs]

    def __call__(self, text: str) -> np.ndarray:
        if not text.strip():
            raise InputError("no word in this caption", remedy="type a caption of one word or more")
        cosine = self._vectors @ encode(self._encoder, [text])[0]
        start = self.fitted.ref_ptr[:-1]
        if self.fitted.references == "max":
            cosine = np.maximum.reduceat(cosine, start)
        elif self.fitted.references == "mean":
            cosine = (np.add.reduceat(cosine, start) / np.diff(self.fitted.ref_ptr)).astype(np.float32)
        return cosine_range(cosine)
