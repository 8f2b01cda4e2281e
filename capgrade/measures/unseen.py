"""Relevance of a caption that is not among the fitted ones to every image's reference set.

What a fitted measure would say if the caption were one more row: document frequencies, words and references stay those
of the fitted captions. N-grams and words that they do not have match nothing and make the caption longer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from capgrade.measures.base import Fitted, Measure
from capgrade.measures.cider import Cider, CiderPlain, FittedCider, corpus_frequencies, inverse_norms
from capgrade.measures.cider_kernel import Weighted
from capgrade.measures.embeddings import encode, load_encoder
from capgrade.measures.mixture import FittedMixture, Mixture
from capgrade.measures.ngrams import alphabetical, count_ngrams, look_up, sentences_of
from capgrade.measures.rouge import FittedRougeL, RougeL, WordRows
from capgrade.measures.sbert import FittedSbert, Sbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.text.tokens import tokenize
from capgrade.text.words import number_words, tokens_of, words_of

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
        self._ngrams = count_ngrams(captions)
        self._frequencies = corpus_frequencies(captions, self._ngrams, measure.params.document_frequency)
        self._number = {word: k for k, word in enumerate(self._ngrams.vocabulary)}
        self.fitted, self.tokenizer = fitted, captions.tokenizer

    def __call__(self, text: str) -> np.ndarray:
        typed = alphabetical(number_words([words_of(_tokens(text, self.tokenizer))]))
        inverse = inverse_norms(typed.sentences, self._frequencies.idf(typed) ** 2)
        words = np.array([self._number.get(word, -1) for word in typed.vocabulary], np.int32)
        number = look_up(typed.keys, words, self._ngrams.keys)[typed.sentences.gram]
        known = number >= 0  # the others match nothing
        runs = np.append(0, np.cumsum(known))[typed.sentences.runs]
        sentences = sentences_of(runs, number[known], typed.sentences.counts[known], typed.sentences.words)
        images = np.arange(len(self.fitted.ref_ptr) - 1)
        return self.fitted.scores(images, np.zeros_like(images), Weighted(sentences, inverse)).astype(np.float32)


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
