"""Sentence-BERT fitted on captions.

Cosines are folded over the references while they are made (`products`). Each is summed in the order
of the coordinates, so the same bytes come out on any number of cores, and equal captions get equal
values. A value that only rounding keeps from 1 is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import Fill, Fitted, ImagePairs, OfReferences, reference_sets
from capgrade.measures.embeddings import embed, encode, load_encoder
from capgrade.measures.products import ONE, largest, padded
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import tokens_of

if TYPE_CHECKING:
    from capgrade.measures.sbert import Sbert, SbertParams

_REFERENCES = ("max", "mean", "first")
_MAX, _FIRST = 0, 2  # places in _REFERENCES
LANES = 32  # sums of a product, which a processor makes side by side


@njit(cache=True)
def _dot(a, b, sums):
    """The product of two vectors in double precision, where products of float32 are exact.

    It has LANES sums, float64, which are vectors to a processor, and are added up in one order.
    """
    full = a.shape[0] // LANES * LANES
    sums[:] = 0
    for k in range(0, full, LANES):
        for j in range(LANES):
            sums[j] += np.float64(a[k + j]) * np.float64(b[k + j])
    for k in range(full, a.shape[0]):
        sums[k - full] += np.float64(a[k]) * np.float64(b[k])
    half = LANES // 2
    while half:
        for j in range(half):
            sums[j] += sums[j + half]
        half //= 2
    return sums[0]


@njit(nogil=True, cache=True)
def _cosine_of_pairs(begin, end, pairs, vectors, embeddings, folding, out):
    """Cosines of pairs begin..end, by the definition, into float64 [pairs].

    NaN where no reference is left.
    """
    sums = np.empty(LANES)
    for k in range(begin, end):
        largest, total, used = -np.inf, 0.0, 0
        c, image = pairs.captions[k], pairs.images[k]
        for r in pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]:
            if (pairs.leave_out and r == c) or (folding == _FIRST and used):
                continue
            cosine = _dot(vectors[c], embeddings[r], sums)
            largest, total, used = max(largest, cosine), total + cosine, used + 1
        out[k] = np.nan if not used else largest if folding == _MAX else total / used


@dataclass(frozen=True)
class FittedSbert(OfReferences):
    """Unit embeddings of captions; for `mean` and `first` one query vector per image."""

    embeddings: np.ndarray  # float32 [n_captions, d]
    same: np.ndarray  # int64 [n_captions]: the first caption of the same text
    references: str

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.scores(images, captions, self.embeddings, self.leave_out)

    def scores(
        self, images: np.ndarray, rows: np.ndarray, vectors: np.ndarray, leave_out: bool = False
    ) -> np.ndarray:
        """float32 [pairs] of rows of unit vectors float32 [any, d]."""
        out, folding = np.empty(len(rows)), _REFERENCES.index(self.references)
        pairs = ImagePairs(images, rows, self.ref_ptr, self.refs, leave_out)
        in_threads(_cosine_of_pairs, len(out), pairs, vectors, self.embeddings, folding, out)
        cosines = np.maximum(out.astype(np.float32), np.float32(-1))
        return np.where(cosines > ONE, np.float32(1), cosines)

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        out = np.empty((len(images), len(captions)), np.float32)
        self.product(images)(self.embeddings[captions], out)
        return out

    @property
    def cells_on_device(self) -> bool:
        return not self.leave_out

    def on_device(self, device: Any) -> Fitted:
        from capgrade.measures.sbert.device import SbertOnDevice

        return SbertOnDevice(self, device)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`, float32 [len(images), captions]; no embedding is copied."""
        multiply = self.product(images)
        return lambda first, last, out: multiply(self.embeddings[first:last], out)

    def product(self, images: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
        """A function that puts cosines with unit vectors float32 [n, d] into `out`.

        They are the first columns of `out`, float32 [len(images), n or more].
        """
        queries, at = self.queries(images)
        padded_queries = padded(queries)
        return lambda vectors, out: in_threads(
            largest, len(vectors), padded_queries, at, vectors, out
        )

    def queries(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Query vectors, float32 [rows, d], and where the rows of each image start, int
        [len(images) + 1]."""
        sets = [self.refs[self.ref_ptr[i] : self.ref_ptr[i + 1]] for i in images]
        if self.references == "max":
            start = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
            return self.embeddings[np.concatenate(sets)], start
        # The mean of cosines is the cosine-product with the mean vector, which is not renormalised.
        vectors = [
            self.embeddings[s[0]] if self.references == "first" else self.embeddings[s].mean(axis=0)
            for s in sets
        ]
        return np.stack(vectors), np.arange(len(images) + 1)


def fit(captions: Captions, params: SbertParams) -> FittedSbert:
    """As `Sbert.fit`."""
    sets = reference_sets(params.self_reference, captions)
    if params.model == EMBEDDED:
        warn_unless_english(f"sbert's model {EMBEDDED}", tokens_of(captions))
    vectors = embed(captions.texts, params.model, device=params.device)
    return FittedSbert(*sets, vectors, _first_of_text(captions.texts), params.references)


class UnseenSbert:
    """Sentence-BERT of any caption; its model is loaded once. `mapped` maps embeddings, where the
    fitted ones are mapped."""

    def __init__(
        self,
        measure: Sbert,
        fitted: FittedSbert,
        mapped: Callable[[np.ndarray], np.ndarray] = lambda vectors: vectors,
    ) -> None:
        self.fitted, self.mapped = fitted, mapped
        self._encoder = load_encoder(measure.params.model, measure.params.device)

    def __call__(self, text: str) -> np.ndarray:
        if not text.strip():
            raise InputError("no word in this caption", remedy="type a caption of one word or more")
        images = np.arange(len(self.fitted.ref_ptr) - 1)
        vectors = self.mapped(encode(self._encoder, [text]))
        return self.fitted.scores(images, np.zeros_like(images), vectors)


def _first_of_text(texts: Sequence[str]) -> np.ndarray:
    """int64 [len(texts)]: the row in which each text comes first."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(text, k) for k, text in enumerate(texts)], np.int64)
