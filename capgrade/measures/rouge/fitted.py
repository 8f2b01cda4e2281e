"""ROUGE-L fitted on captions: words as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.kernels import in_threads
from capgrade.measures.base import (
    Fill,
    Fitted,
    ImagePairs,
    OfReferences,
    Scored,
    mean_score,
    reference_sets,
)
from capgrade.measures.corpus import Corpus
from capgrade.measures.rouge.kernel import (
    BlockForm,
    WordRows,
    lanes_of,
    score_block,
    score_pairs,
)
from capgrade.schemas.captions import Captions
from capgrade.text.tokens import fill_empty_sentences, tokens_of, tokens_of_text

if TYPE_CHECKING:
    from capgrade.measures.rouge import RougeParams

_IMAGES = 64  # images whose lanes stand side by side, as many as fit MOST
_MOST = 512  # lanes


@dataclass(frozen=True)
class FittedRougeL(OfReferences):
    """Captions as word numbers."""

    texts: WordRows
    n_vocabulary: int
    beta: float
    mean: bool

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        pairs = ImagePairs(images, captions, self.ref_ptr, self.refs, self.leave_out)
        values = score_pairs(pairs, self.texts, self.texts, self.beta, self.mean)
        return values.astype(np.float32)

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        out = np.empty((len(images), len(captions)), np.float32)
        self.row_filler(images)(captions, out)
        return out

    def on_device(self, device: Any) -> Fitted:
        from capgrade.measures.rouge.device import RougeOnDevice

        return RougeOnDevice(self, device)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        fill = self.row_filler(images)
        return lambda first, last, out: fill(np.arange(first, last), out)

    def row_filler(self, images: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
        """A function that puts values of caption rows, int64 [n], into the first columns of `out`.

        `out` is float32 [len(images), n or more].
        """
        form = self.form(images)
        blocks = [
            lanes_of(images[at : at + form.width], self.ref_ptr, self.refs, self.texts, form)
            for at in range(0, len(images), form.width)
        ]

        def fill(captions: np.ndarray, out: np.ndarray) -> None:
            for k, lanes in enumerate(blocks):
                rows = out[k * form.width : (k + 1) * form.width]
                in_threads(score_block, len(captions), captions, self.texts, lanes, form, rows)

        return fill

    def form(self, images: np.ndarray) -> BlockForm:
        """How blocks of these images are scored: as many side by side as fit MOST lanes."""
        slots = int((self.ref_ptr[images + 1] - self.ref_ptr[images]).max(initial=1))
        width = int(np.clip(_MOST // slots, 1, _IMAGES))
        longest = int(np.diff(self.texts.ptr).max(initial=0))
        return BlockForm(
            np.float32(self.beta**2), self.mean, self.n_vocabulary, longest, width, slots
        )


def fit(captions: Captions, params: RougeParams) -> FittedRougeL:
    """As `RougeL.fit`."""
    sets = reference_sets(params.self_reference, captions)
    ptr, word, vocabulary = fill_empty_sentences(tokens_of(captions))
    mean = params.references == "mean"
    return FittedRougeL(*sets, WordRows(ptr, word), len(vocabulary), params.beta, mean)


def score_candidates(corpus: Corpus) -> Scored:
    """As `RougeL.of_corpus`."""
    texts = WordRows(corpus.tokens.ptr, corpus.tokens.word)
    return mean_score(score_pairs(corpus.candidates.pairs, texts, texts))


class UnseenRougeL:
    """ROUGE-L of any caption; a word that no fitted caption has matches nothing."""

    def __init__(self, fitted: FittedRougeL, captions: Captions) -> None:
        self._number = {word: k for k, word in enumerate(tokens_of(captions).vocabulary)}
        self.fitted, self.tokenizer = fitted, captions.tokenizer

    def __call__(self, text: str) -> np.ndarray:
        numbers = np.array(
            [self._number.get(token, -1) for token in tokens_of_text(text, self.tokenizer)],
            np.int32,
        )
        fitted = self.fitted
        images = np.arange(len(fitted.ref_ptr) - 1)
        pairs = ImagePairs(images, np.zeros_like(images), fitted.ref_ptr, fitted.refs)
        caption = WordRows(np.array([0, len(numbers)]), numbers)
        values = score_pairs(pairs, caption, fitted.texts, fitted.beta, fitted.mean)
        return values.astype(np.float32)
