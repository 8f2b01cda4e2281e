"""Sentence-BERT cosine of every caption with every image's reference set.

A tiled matrix product: each tile of reference x caption cosines is folded over the references while it is still
in cache. A tile is computed by one BLAS thread, and tiles do not depend on the number of threads, so the same
bytes come out on any number of cores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numba import get_num_threads, njit
from threadpoolctl import threadpool_limits

from pipelines.measures.base import CHUNK, ArrayState, own_pairs, put_own, require_two_references
from pipelines.measures.embeddings import embed
from schemas.captions import Captions
from schemas.params import SbertParams

TILE = 2048  # captions, a share of a chunk; with 64 images of five references a tile is 2.6 MB


@njit(nogil=True, cache=True)
def _fold_max(tile, start, out):
    """The largest of each image's rows, which rounding may carry beyond -1..1."""
    low, high = np.float32(-1), np.float32(1)
    for i in range(out.shape[0]):
        out[i] = low
        for q in range(start[i], start[i + 1]):
            for j in range(out.shape[1]):
                out[i, j] = min(max(out[i, j], tile[q, j]), high)


@contextmanager
def _one_blas_thread_each() -> Iterator[Executor]:
    """Threads for tiles; limiting BLAS takes milliseconds, so it is done once for many chunks."""
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(get_num_threads()) as threads:
        yield threads


@dataclass(frozen=True)
class FittedSbert(ArrayState):
    """Unit embeddings of captions; for `mean` and `first` one query vector an image."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    embeddings: np.ndarray  # float32 [n_captions, d]
    references: str
    leave_out: bool

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        """Cosine, -1..1, float32 [len(images), n_captions or len(captions)]."""
        targets = self.embeddings if captions is None else self.embeddings[captions]
        out = np.empty((len(images), len(targets)), np.float32)
        with _one_blas_thread_each() as threads:
            self._against(images, captions, targets, out, threads)
        return out

    def chunks(self, images: np.ndarray, start: int, stop: int, out: np.ndarray) -> Iterator[None]:
        """As `Fitted.chunks`; no embedding is copied."""
        with _one_blas_thread_each() as threads:
            for at in range(start, stop, CHUNK):
                rows = np.arange(at, min(at + CHUNK, stop))
                targets = self.embeddings[at : at + len(rows)]
                self._against(images, rows, targets, out[:, : len(rows)], threads)
                yield

    def _against(
        self, images: np.ndarray, captions: np.ndarray | None, targets: np.ndarray, out: np.ndarray, threads: Executor
    ) -> None:
        queries, start = self.queries(images)
        buffers = threading.local()  # a tile in memory that is already there

        def tile(at: int) -> None:
            some = targets[at : at + TILE]
            if not hasattr(buffers, "tile"):
                buffers.tile = np.empty((len(queries), TILE), np.float32)
            product = np.matmul(queries, some.T, out=buffers.tile[:, : len(some)])
            _fold_max(product, start, out[:, at : at + TILE])

        list(threads.map(tile, range(0, len(targets), TILE)))
        if self.leave_out:
            self.leave_out_self(images, captions, out)

    def leave_out_self(self, images: np.ndarray, captions: np.ndarray | None, out: np.ndarray) -> None:
        """Put own pairs, without the caption among its references, into a block whose columns are these captions."""
        rows, own = own_pairs(self.ref_ptr, self.refs, images)
        put_own(out, rows, own, np.clip(self._without_self(images, rows, own), -1, 1), captions)

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
        leave_out = self.params.self_reference == "left_out"
        if leave_out:
            require_two_references(captions)
        vectors = embed(captions.texts, self.params.model, device=self.params.device)
        return FittedSbert(captions.ref_ptr, captions.refs, vectors, self.params.references, leave_out)
