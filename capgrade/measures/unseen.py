"""Relevance of a caption that is not among the fitted ones to every image's reference set.

What a fitted measure would say if the caption were one more row: document frequencies, words and references stay those
of the fitted captions. N-grams and words that they do not have match nothing and make the caption longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from capgrade.measures.base import Fitted, Measure
from capgrade.measures.cider import Cider, CiderPlain, FittedCider, corpus_frequencies
from capgrade.measures.cider_kernel import Weighted
from capgrade.measures.embeddings import encode, load_encoder
from capgrade.measures.mixture import FittedMixture, Mixture
from capgrade.measures.ngrams import MAX_ORDER, count_ngrams, sentences_of
from capgrade.measures.rouge import FittedRougeL, RougeL, WordRows
from capgrade.measures.sbert import FittedSbert, Sbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.text.tokens import tokenize
from capgrade.text.words import tokens_of, words_of

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
    """CIDEr-D or CIDEr. An n-gram that no image has counts as one that one image has, as in `Cider.fit`."""

    def __init__(self, measure: Cider | CiderPlain, fitted: FittedCider, captions: Captions) -> None:
        ngrams = count_ngrams(captions)
        frequencies = corpus_frequencies(captions, ngrams, measure.params.document_frequency)
        self.fitted, self.tokenizer = fitted, captions.tokenizer
        self._number = {text: k for k, text in enumerate(ngrams.text.to_pylist())}
        self._log_images = math.log(frequencies.n_images)
        elsewhere = measure.params.document_frequency is not None
        counted = zip(frequencies.ngram.to_pylist(), frequencies.images.tolist(), strict=True) if elsewhere else ()
        self._images_with = dict(counted)  # of n-grams that the fitted captions may not have

    def __call__(self, text: str) -> np.ndarray:
        words = words_of(_tokens(text, self.tokenizer))
        counts = Counter(" ".join(words[a : a + n]) for n in range(1, MAX_ORDER + 1) for a in range(len(words) - n + 1))
        squares, found = np.zeros(MAX_ORDER), []
        for gram, count in counts.items():
            squares[gram.count(" ")] += count**2 * self._gain(gram)
            if gram in self._number:
                found.append((self._number[gram], count))
        grams, times = np.array(sorted(found), np.int32).reshape(-1, 2).T.copy()
        runs = np.append(0, np.cumsum(np.bincount(self.fitted.weights.order[grams], minlength=MAX_ORDER)))
        inverse = np.divide(1, np.sqrt(squares), out=np.zeros(MAX_ORDER), where=squares > 0)
        caption = Weighted(sentences_of(runs, grams, times, np.array([len(words)])), inverse[None])
        images = np.arange(len(self.fitted.ref_ptr) - 1)
        return self.fitted.scores(images, np.zeros_like(images), caption).astype(np.float32)

    def _gain(self, gram: str) -> float:
        if gram in self._number:
            return float(self.fitted.weights.gain[self._number[gram]])
        return (self._log_images - math.log(max(self._images_with.get(gram, 1), 1))) ** 2


class UnseenRougeL:
    """ROUGE-L; a word that no caption has matches nothing."""

    def __init__(self, fitted: FittedRougeL, captions: Captions) -> None:
        self._number = {word: k for k, word in enumerate(tokens_of(captions).vocabulary)}
        self.fitted, self.tokenizer = fitted, captions.tokenizer

    def __call__(self, text: str) -> np.ndarray:
        numbers = np.array([self._number.get(token, -1) for token in _tokens(text, self.tokenizer)], np.int32)
        images = np.arange(len(self.fitted.ref_ptr) - 1)
        caption = WordRows(np.array([0, len(numbers)]), numbers)
        return self.fitted.scores(images, np.zeros_like(images), caption).astype(np.float32)


class UnseenSbert:
    """Sentence-BERT; its model is loaded once."""

    def __init__(self, measure: Sbert, fitted: FittedSbert) -> None:
        self.fitted, self._encoder = fitted, load_encoder(measure.params.model, measure.params.device)

    def __call__(self, text: str) -> np.ndarray:
        if not text.strip():
            raise InputError("no word in this caption", remedy="type a caption of one word or more")
        images = np.arange(len(self.fitted.ref_ptr) - 1)
        return self.fitted.scores(images, np.zeros_like(images), encode(self._encoder, [text]))
