"""The captions of highest Sentence-BERT cosine to each image, as all pairs have them to the last bit.

A bound on every cosine costs less than the cosines. Captions that it cannot rule out are multiplied singly; those that
are then near the best, once more as all pairs have it: summed in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from threadpoolctl import threadpool_limits

from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, sorted_tops
from capgrade.pipelines.measures.tops.sbert_rotated import LONG, Rotated, rotate
from capgrade.pipelines.measures.tops.sbert_rounded import Rounded, has_amx, round_captions
from capgrade.pipelines.measures.tops.sbert_walk import walk
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties

CAPTIONS = 512  # for each that is wanted; fewer are scored in full: the best are then too large a share of all


@dataclass(frozen=True)
class SbertTops:
    """Finds tops of fitted Sentence-BERT cosines that it `serves`."""

    fitted: FittedSbert
    ties: Ties
    least: int = CAPTIONS

    @staticmethod
    def serves(fitted: FittedSbert) -> bool:
        """Whether the bound is cheaper than the product: the embeddings are long enough."""
        return fitted.embeddings.shape[1] > LONG

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`."""
        f = self.fitted
        n_captions, own = len(f.same), int(np.diff(f.ref_ptr)[images].max(initial=0))
        wanted = k + own * f.leave_out
        if n_captions < self.least * wanted or wanted == 0 or len(images) == 0:
            return every_pair(f, images, k, self.ties)
        ptr, found, touched, _ = self._near(*f.queries(images), wanted)
        seeds, keys = self.ties.images[images], self.ties.captions
        rows, best = kernel.choose(ptr, found, f.listed(images, ptr, found), wanted, seeds, keys)
        if f.leave_out:
            put_left_out(f, images, rows, best, self.ties)
        return sorted_tops(images, rows, best, touched, k, self.ties)

    def named(self, images: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each image the captions that may be among its `k` best, own ones among the references: ptr int64
        [images + 1], rows int64; and what no value of another is above, float32 [images], however the images that are
        multiplied together are chosen."""
        ptr, rows, _, least = self._near(*self.fitted.queries(images), k)
        return ptr, rows, least

    @cached_property
    def bound(self) -> Rounded | Rotated:
        """Whichever this processor is faster at; both give the same tops."""
        return round_captions(self.fitted.embeddings) if has_amx() else rotate(self.fitted.embeddings)

    def _near(
        self, queries: np.ndarray, start: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of each image the captions that may be among its `k` best: ptr int64 [images + 1], rows int64; how many
        captions were multiplied singly, int64 [images]; and what no value of another is above, float32 [images]."""
        vectors = self.fitted.embeddings
        with self.bound.beside(queries, start) as beside, one_blas_thread_each() as threads:
            found, gates, pairs = walk(beside, queries, start, vectors, k, threads)
        beside.multiply(found, gates)
        image = np.repeat(np.arange(len(gates)), np.diff(found.ptr))
        least = kernel.kth(found.ptr, found.values, k)
        near = found.values >= (least - 2 * kernel.slack(vectors.shape[1]))[image]
        ends = np.concatenate([[0], np.cumsum(np.bincount(image[near], minlength=len(gates)))])
        return ends, found.rows[near], pairs, least


@contextmanager
def one_blas_thread_each() -> Iterator[Executor]:
    """Threads for tiles."""
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(get_num_threads()) as threads:
        yield threads
