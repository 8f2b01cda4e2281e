"""The captions of highest Sentence-BERT cosine to each image, as all pairs have them to the last bit.

A bound on every cosine costs less than the cosines. Captions that it cannot rule out are multiplied singly; those that
are then near the best, as all pairs multiply them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.pipelines.measures.sbert import TILE, FittedSbert, fold_products, one_blas_thread_each
from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, sorted_tops
from capgrade.pipelines.measures.tops.sbert_rotated import LONG, Rotated, rotate
from capgrade.pipelines.measures.tops.sbert_rounded import Rounded, has_amx, round_captions
from capgrade.pipelines.measures.tops.sbert_walk import walk

CAPTIONS = 512  # for each that is wanted; fewer are scored in full: the best are then too large a share of all
TOGETHER = 16  # tiles multiplied by all threads


@dataclass(frozen=True)
class SbertTops:
    """Finds tops of fitted Sentence-BERT cosines that it `serves`."""

    fitted: FittedSbert
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
            return every_pair(f, images, n_captions, k)
        queries, start = f.queries(images)
        with one_blas_thread_each() as threads:
            ptr, found, touched, _ = self._near(queries, start, wanted, threads)
            values = self._as_all_pairs((queries, start), ptr, found, threads)
        rows, best = kernel.choose(ptr, found, values, wanted)
        if f.leave_out:
            put_left_out(f, images, rows, best)
        return sorted_tops(rows, best, touched, k)

    def named(self, images: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each image the captions that may be among its `k` best, own ones among the references: ptr int64
        [images + 1], rows int64; and what no value of another is above, float32 [images], however the images that are
        multiplied together are chosen."""
        with one_blas_thread_each() as threads:
            ptr, rows, _, least = self._near(*self.fitted.queries(images), k, threads)
        return ptr, rows, least

    def as_all_pairs(self, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: what all pairs of these images give captions rows[ptr[b] : ptr[b + 1]] of images[b], own
        captions among the references."""
        with one_blas_thread_each() as threads:
            return self._as_all_pairs(self.fitted.queries(images), ptr, rows, threads)

    @cached_property
    def bound(self) -> Rounded | Rotated:
        """Whichever this processor is faster at; both give the same tops."""
        return round_captions(self.fitted.embeddings) if has_amx() else rotate(self.fitted.embeddings)

    def _near(
        self, queries: np.ndarray, start: np.ndarray, k: int, threads: Executor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of each image the captions that may be among its `k` best: ptr int64 [images + 1], rows int64; how many
        captions were multiplied singly, int64 [images]; and what no value of another is above, float32 [images]."""
        vectors = self.fitted.embeddings
        with self.bound.beside(queries, start) as beside:
            found, gates, pairs = walk(beside, queries, start, vectors, k, threads)
        beside.multiply(found, gates)
        image = np.repeat(np.arange(len(gates)), np.diff(found.ptr))
        least = kernel.kth(found.ptr, found.values, k)
        near = found.values >= (least - 2 * kernel.slack(vectors.shape[1]))[image]
        ends = np.concatenate([[0], np.cumsum(np.bincount(image[near], minlength=len(gates)))])
        return ends, found.rows[near], pairs, least

    def _as_all_pairs(
        self, queries: tuple[np.ndarray, np.ndarray], ptr: np.ndarray, rows: np.ndarray, threads: Executor
    ) -> np.ndarray:
        """float32 [len(rows)]: the values that `FittedSbert.chunks` gives these captions of each image.

        The last bits of a product depend on where in a matrix a column stands, and not on its other columns. So a
        caption is put where it stands among all captions, in a tile of the same size.
        """
        f = self.fitted
        values = np.empty(len(rows), np.float32)
        image = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        several, text = f.repeats(rows)
        single = np.setdiff1d(np.arange(len(rows)), several, assume_unique=True)
        for which, column, table in (
            (single, rows[single], f.embeddings),
            (several, text, f.embeddings[f.repeated]),
        ):
            columns, back = np.unique(column, return_inverse=True)
            tiles = list(_tiles(columns, len(table)))
            for at in range(0, len(tiles), TOGETHER):
                some = tiles[at : at + TOGETHER]
                product = np.empty((len(ptr) - 1, sum(len(tile) for tile, _ in some)), np.float32)
                fold_products(*queries, table[np.concatenate([tile for tile, _ in some])], threads, product)
                place = np.full(len(columns), -1)
                for k, (_, members) in enumerate(some):
                    place[members] = k * TILE + columns[members] % TILE
                here = np.flatnonzero(place[back] >= 0)
                values[which[here]] = product[image[which[here]], place[back[here]]]
        return values


def _tiles(columns: np.ndarray, total: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of tiles that hold each of the ascending columns where it stands in its own tile of TILE of `total` columns,
    as wide as that is; and which of the columns each holds."""
    last = total // TILE * TILE
    whole = np.flatnonzero(columns < last)
    place = columns[whole] % TILE
    by_place = np.argsort(place, kind="stable")
    sorted_place = place[by_place]
    layer = np.arange(len(whole)) - np.searchsorted(sorted_place, sorted_place)
    for k in range(int(layer.max(initial=-1)) + 1):
        members = whole[by_place[layer == k]]
        tile = np.full(TILE, columns[members[0]])
        tile[columns[members] % TILE] = columns[members]
        yield tile, members
    if len(whole) < len(columns):
        yield np.arange(last, total), np.arange(len(whole), len(columns))
