"""Sentence-BERT cosine of every caption with every image's reference set.

Cosines are folded over the references while they are made (`products`). Each is summed in the order
of the coordinates, so the same bytes come out on any number of cores, and equal captions get equal
values. A value that only rounding keeps from 1 is 1.

An embedding has a part that its image decides and a part that its writer chose. `SbertShared` tells
the two apart by all captions together, without any judgement: B is the covariance of images, W that
of captions of one image. The best linear estimate of the image's part is B (B + W)^-1 (e - mean).
Its matrix square root, half way between the embedding and that estimate, agrees best with people
(docs/measures.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import (
    OVER_REFERENCES,
    Fill,
    Fitted,
    ImagePairs,
    Measure,
    OfReferences,
    Scorer,
    own_scores,
    reference_sets,
)
from capgrade.measures.corpus import Corpus, Scored, mean_score
from capgrade.measures.embeddings import embed, encode, load_encoder
from capgrade.measures.products import ONE, largest, padded
from capgrade.pretrained import EMBEDDED, fingerprint
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import How, ModelAt
from capgrade.schemas.params import MeasureDevice, ParamsBlock, SelfReference
from capgrade.schemas.say import warn
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import tokens_of

_REFERENCES = ("max", "mean", "first")
_MAX, _FIRST = 0, 2  # places in _REFERENCES
# Each covariance is shrunk as if so many more images had shown the same variance in every
# direction. Without them, few images leave directions without variance.
PRIOR = 10
_FEW = 300  # images: with fewer, Sentence-BERT as it is agrees about as well with people
_STEP = 65536  # captions in double precision at a time
_REMEDY = "use sbert"
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
def cosine_of_pairs(begin, end, pairs, vectors, embeddings, folding, out):
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
        in_threads(cosine_of_pairs, len(out), pairs, vectors, self.embeddings, folding, out)
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
        from capgrade.measures.on_device import SbertOnDevice

        return SbertOnDevice(self, device)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`; no embedding is copied."""
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
        """Query vectors [rows, d] and, for each image, where its rows start [len(images) + 1]."""
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


class SbertParams(ParamsBlock):
    """Sentence-BERT: the model (embedded name, hub id or folder), how references are combined."""

    model: ModelAt = "all-MiniLM-L6-v2"
    references: Literal["max", "mean", "first"] = "max"
    self_reference: SelfReference = "included"
    device: How[MeasureDevice] = "cpu"  # of the encoder; a GPU's embeddings differ in the last bits


class Sbert(Measure[SbertParams]):
    """Cosine of Sentence-BERT embeddings, -1..1, over the references by `max`, `mean` or `first`.

    `first` is the pseudo label of BCLS (one caption stands for the image); `max` agrees best with
    people on Crisscrossed Captions (docs/measures.md).
    """

    name, parameters, block, modules = "sbert", SbertParams, "sbert", ("sentence_transformers",)
    low, high = -1.0, 1.0

    def fit(self, captions: Captions) -> FittedSbert:
        """Embed the raw captions (not the tokens).

        InputError when the model cannot be loaded, or `left_out` leaves an image without
        references.
        """
        sets = reference_sets(self.params.self_reference, captions)
        if self.params.model == EMBEDDED:
            warn_unless_english(f"sbert's model {EMBEDDED}", tokens_of(captions))
        vectors = embed(captions.texts, self.params.model, device=self.params.device)
        return FittedSbert(*sets, vectors, first_of_text(captions.texts), self.params.references)

    def meaning(self) -> str:
        model, over = self.params.model, OVER_REFERENCES[self.params.references]
        return f"cosine of Sentence-BERT embeddings (`{model}`), -1..1: {over}"

    def files(self) -> dict[str, str]:
        return {"measures.sbert.model": fingerprint(self.params.model)}

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """The largest cosine of each candidate with a reference."""
        return {self.name: mean_score(own_scores(self.fit(corpus.table), corpus))}

    def unseen(self, fitted: FittedSbert, captions: Captions) -> Scorer | None:
        return UnseenSbert(self, fitted)


class SbertMean(Sbert):
    """Cosine of Sentence-BERT embeddings, -1..1: the mean over an image's references."""

    name, fixed = "sbert_mean", {"references": "mean"}


class UnseenSbert:
    """Sentence-BERT of any caption; its model is loaded once."""

    def __init__(self, measure: Sbert, fitted: FittedSbert) -> None:
        self.fitted = fitted
        self._encoder = load_encoder(measure.params.model, measure.params.device)

    def __call__(self, text: str) -> np.ndarray:
        if not text.strip():
            raise InputError("no word in this caption", remedy="type a caption of one word or more")
        images = np.arange(len(self.fitted.ref_ptr) - 1)
        return self.fitted.scores(images, np.zeros_like(images), encode(self._encoder, [text]))


def first_of_text(texts: Sequence[str]) -> np.ndarray:
    """int64 [len(texts)]: the row in which each text comes first."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(text, k) for k, text in enumerate(texts)], np.int64)


class SbertShared(Sbert):
    """Cosine, -1..1, of Sentence-BERT embeddings mapped to what captions of one image share.

    A value depends on all fitted captions, as they give the mean and the two covariances.
    """

    name, fixed = "sbert_shared", {"references": "max"}

    def fit(self, captions: Captions) -> FittedSbert:
        """Map what `Sbert.fit` embeds. InputError as it and `shared_map`."""
        plain = super().fit(captions)
        mapped = map_to_shared(plain.embeddings, *shared_map(plain.embeddings, captions))
        return replace(plain, embeddings=mapped[plain.same])  # equal texts, equal bits

    def meaning(self) -> str:
        model, over = self.params.model, OVER_REFERENCES[self.params.references]
        what = "mapped to what captions of one image share in this split"
        return f"cosine of Sentence-BERT embeddings (`{model}`), {what}, -1..1: {over}"

    def unseen(self, fitted: FittedSbert, captions: Captions) -> Scorer | None:
        return None  # the map is not kept


class SbertSharedMean(SbertShared):
    """As `sbert_shared`, with the mean over an image's references."""

    name, fixed = "sbert_shared_mean", {"references": "mean"}


def map_to_shared(vectors: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """(vectors - mean) @ root as unit vectors, float32 [n, d]; 0 for a vector that is the mean."""
    out = np.empty_like(vectors, np.float32)
    with threadpool_limits(1, "blas"):  # the same bytes on any number of cores
        for at in range(0, len(vectors), _STEP):
            mapped = (vectors[at : at + _STEP].astype(np.float64) - mean) @ root
            length = np.linalg.norm(mapped, axis=1, keepdims=True)
            out[at : at + _STEP] = np.divide(
                mapped, length, out=np.zeros_like(mapped), where=length > 0
            )
    return out


def shared_map(vectors: np.ndarray, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """The mean of images' means, float64 [d], and ((B + W)^-1 B)^(1/2), float64 [d, d].

    InputError where the captions are too few or too alike to tell what they share.
    """
    sizes = np.diff(captions.ref_ptr)
    if len(sizes) < 2 or sizes.max() < 2:
        raise InputError(
            "sbert_shared needs two images, and an image of two captions", remedy=_REMEDY
        )
    if len(sizes) < _FEW:
        images = f"{len(sizes)} images, {_FEW} or more are better"
        warn(f"sbert_shared learns what captions share from {images} -> {_REMEDY}")
    means = np.stack(
        [
            vectors[captions.refs[a:b]].mean(axis=0, dtype=np.float64)
            for a, b in zip(captions.ref_ptr[:-1], captions.ref_ptr[1:], strict=True)
        ]
    )
    mean = means.mean(axis=0)
    with threadpool_limits(1, "blas"):  # the same bytes on any number of cores
        return mean, _root(vectors, means - mean, mean, sizes)


def _root(
    vectors: np.ndarray, means: np.ndarray, mean: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """((B + W)^-1 B)^(1/2); `means` are the images' less `mean`."""
    within = _within(vectors, means, mean, sizes)
    # A mean of few captions still has a part that its writers chose, which is taken off.
    between = np.cov(means, rowvar=False) - within * (1 / sizes).mean()
    if not np.trace(between) > 0:
        problem = "captions of one image are no more alike than those of different images"
        raise InputError(problem, remedy=f"{_REMEDY}; check which captions belong to which image")
    between, both = _shrink(between, len(sizes)), _shrink(between + within, len(sizes))
    # (B + W)^-1 B = axes share axes^-1, and axes^T (B + W) axes = 1
    share, axes = eigh(between, both)
    return np.asarray((axes * np.sqrt(share.clip(0, 1))) @ axes.T @ both)


def _within(
    vectors: np.ndarray, means: np.ndarray, mean: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """W, the pooled covariance of captions of one image, float64 [d, d].

    `means` are the images' less `mean`.
    """
    total = -(means.T * sizes) @ means
    for at in range(0, len(vectors), _STEP):
        centred = vectors[at : at + _STEP].astype(np.float64) - mean
        total += centred.T @ centred
    return np.asarray(total / (len(vectors) - len(means)))


def _shrink(covariance: np.ndarray, images: int) -> np.ndarray:
    """A covariance, shrunk towards a multiple of the identity with the same trace.

    It is as if PRIOR more images had shown that multiple.
    """
    size = len(covariance)
    return np.asarray(
        (images * covariance + PRIOR * np.trace(covariance) / size * np.eye(size))
        / (images + PRIOR)
    )
