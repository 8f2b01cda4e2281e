"""Sentence-BERT cosine of every caption with every image's reference set.

A matrix product whose cosines are folded over the references where they are made (`products`). Each is summed in the
order of the coordinates, so the same bytes come out on any number of cores, and equal captions get equal values. What
is within rounding of 1 is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.measures.base import CHUNK, ArrayState, leaves_out, own_pairs, put_own
from capgrade.pipelines.measures.embeddings import EMBEDDED, embed
from capgrade.pipelines.measures.language import warn_unless_english
from capgrade.pipelines.measures.products import ONE, grouped, largest
from capgrade.pipelines.measures.tiles import ROWS
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import SbertParams
from capgrade.schemas.threads import in_threads


def cosine_range(values: np.ndarray) -> np.ndarray:
    """Cosines without what rounding did to them: within -1..1, and 1 where they are 1."""
    return np.where(values > ONE, np.float32(1), np.maximum(values, np.float32(-1)))


@dataclass(frozen=True)
class FittedSbert(ArrayState):
    """Unit embeddings of captions; for `mean` and `first` one query vector per image."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    embeddings: np.ndarray  # float32 [n_captions, d]
    same: np.ndarray  # int64 [n_captions]: the first caption of the same text
    references: str
    leave_out: bool

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        """Cosine, -1..1, float32 [len(images), n_captions or len(captions)]."""
        targets = self.embeddings if captions is None else self.embeddings[captions]
        queries, start = self.queries(images)
        out = np.empty((len(images), len(targets)), np.float32)
        in_threads(largest, len(targets), grouped(queries, ROWS), start, targets, out)
        if self.leave_out:
            self.leave_out_self(images, captions, out)
        return out

    def chunks(self, images: np.ndarray, start: int, stop: int, out: np.ndarray) -> Iterator[None]:
        """As `Fitted.chunks`; no embedding is copied."""
        queries, first = self.queries(images)
        together = grouped(queries, ROWS)
        for at in range(start, stop, CHUNK):
            rows = np.arange(at, min(at + CHUNK, stop))
            in_threads(largest, len(rows), together, first, self.embeddings[at : at + len(rows)], out)
            if self.leave_out:
                self.leave_out_self(images, rows, out[:, : len(rows)])
            yield

    def leave_out_self(self, images: np.ndarray, captions: np.ndarray | None, out: np.ndarray) -> None:
        """Put own pairs, without the caption among its references, into a block whose columns are these captions."""
        rows, own = own_pairs(self.ref_ptr, self.refs, images)
        put_own(out, rows, own, cosine_range(self._without_self(images, rows, own)), captions)

    def queries(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Query vectors [rows, d] and, for each image, where its rows start [len(images) + 1]."""
        sets = [self.refs[self.ref_ptr[i] : self.ref_ptr[i + 1]] for i in images]
        if self.references == "max":
            start = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
            return self.embeddings[np.concatenate(sets)], start
        vectors = [self._one_query(self.embeddings[s]) for s in sets]
        return np.stack(vectors), np.arange(len(images) + 1)

    def _one_query(self, vectors: np.ndarray) -> np.ndarray:
        # The mean of cosines is the cosine-product with the mean vector, which is not renormalised.
        return vectors[0] if self.references == "first" else vectors.mean(axis=0)

    def _without_self(self, images: np.ndarray, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        values = np.empty(len(own), np.float32)
        for k, (i, c) in enumerate(zip(images[rows], own, strict=True)):
            others = self.refs[self.ref_ptr[i] : self.ref_ptr[i + 1]]
            vectors = self.embeddings[others[others != c]]
            if self.references != "max":
                vectors = self._one_query(vectors)[None]
            values[k] = (vectors @ self.embeddings[c]).max()
        return values


class Sbert:
    """Cosine of Sentence-BERT embeddings, -1..1, combined over an image's references by `max`, `mean` or `first`.

    `first` is the pseudo label of BCLS (one caption stands for the image); `max` agrees best with people
    on Crisscrossed Captions (docs/measures.md).
    """

    low, high = -1.0, 1.0

    def __init__(self, params: SbertParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedSbert:
        """Embed the raw captions (not the tokens). InputError when the model cannot be loaded, or `left_out`
        leaves an image without references."""
        leave_out = leaves_out(self.params.self_reference, captions)
        if self.params.model == EMBEDDED:
            warn_unless_english(f"sbert's model {EMBEDDED}", captions)
        vectors = embed(captions.texts, self.params.model, device=self.params.device)
        return FittedSbert(
            captions.ref_ptr, captions.refs, vectors, first_of_text(captions.texts), self.params.references, leave_out
        )


def first_of_text(texts: Sequence[str]) -> np.ndarray:
    """int64 [len(texts)]: where each text stands for the first time."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(text, k) for k, text in enumerate(texts)], np.int64)
