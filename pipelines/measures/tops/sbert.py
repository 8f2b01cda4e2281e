"""The captions of highest Sentence-BERT cosine to each image, as all pairs have them to the last bit.

Rotated to their principal axes, embeddings have most of their length in the first coordinates. A product of those, with
the norm of the rest as one coordinate more, is at least the cosine (Cauchy and Schwarz), and costs a quarter of it.
Captions that this bound cannot rule out are multiplied singly, first some coordinates more; those that are then near
the best, as all pairs multiply them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.sbert import TILE, FittedSbert, fold_products, one_blas_thread_each
from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, sorted_tops

SHORT = 95  # coordinates that the bound of all captions multiplies; with the norm of the rest 64
LONG = 190  # and that of those which it cannot rule out
CAPTIONS = 512  # for each that is wanted; fewer are scored in full: the best are then too large a share of all
SAMPLE = 16384  # captions that the axes are found on; any axes give the same tops
STEP = 65536  # captions rotated at a time


class Rotation(NamedTuple):
    """Orthogonal axes, and what the bound multiplies of every caption."""

    axes: np.ndarray  # float64 [d, d], columns by falling length of the captions along them
    short: np.ndarray  # float32 [n_captions, SHORT + 1]
    long: np.ndarray  # float32 [n_captions, LONG - SHORT + 1]: what comes after those


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
            ptr, found, touched = self._near(queries, start, wanted, threads)
            values = self._as_all_pairs((queries, start), ptr, found, threads)
        rows, best = kernel.choose(ptr, found, values, wanted)
        if f.leave_out:
            put_left_out(f, images, rows, best)
        return sorted_tops(rows, best, touched, k)

    @cached_property
    def rotation(self) -> Rotation:
        """Along the eigenvectors of the second moments of some captions."""
        vectors = self.fitted.embeddings
        some = vectors[:: -(-len(vectors) // SAMPLE)].astype(np.float64)
        axes = np.linalg.eigh(some.T @ some)[1][:, ::-1]
        short = np.empty((len(vectors), SHORT + 1), np.float32)
        long = np.empty((len(vectors), LONG - SHORT + 1), np.float32)
        for at in range(0, len(vectors), STEP):
            short[at : at + STEP], long[at : at + STEP] = _rotated(vectors[at : at + STEP], axes)
        return Rotation(np.ascontiguousarray(axes), short, long)

    def _near(
        self, queries: np.ndarray, start: np.ndarray, k: int, threads: Executor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each image the captions that may be among its `k` best: ptr int64 [images + 1], rows int64; and how many
        captions were multiplied singly, int64 [images]."""
        vectors, rotation = self.fitted.embeddings, self.rotation
        slack = kernel.slack(vectors.shape[1])
        short, long = _rotated(queries, rotation.axes)
        bounds = np.empty((len(start) - 1, len(vectors)), np.float32)
        fold_products(short, start, rotation.short, threads, bounds)
        leaders = kernel.leaders(queries, start, vectors, bounds, k + k // 2)
        gate = np.partition(leaders, -k, axis=1)[:, -k] - 2 * slack
        counts = kernel.count_reaching(bounds, gate)
        ptr = np.concatenate([[0], np.cumsum(counts)])
        rows, values = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.float32)
        pair = kernel.Pair(queries, short, long, vectors, rotation.short, rotation.long)
        kernel.multiply_reaching(pair, start, bounds, gate, ptr, rows, values)
        image = np.repeat(np.arange(len(counts)), counts)
        near = values >= (kernel.kth(ptr, values, k) - 2 * slack)[image]
        ends = np.concatenate([[0], np.cumsum(np.bincount(image[near], minlength=len(counts)))])
        return ends, rows[near], counts + leaders.shape[1]

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
        here, text = f.repeats(rows)
        single = np.setdiff1d(np.arange(len(rows)), here, assume_unique=True)
        for which, column, table in (
            (single, rows[single], f.embeddings),
            (here, text, f.embeddings[f.repeated]),
        ):
            columns, back = np.unique(column, return_inverse=True)
            cosines = np.empty((len(ptr) - 1, len(columns)), np.float32)
            for tile, members in _tiles(columns, len(table)):
                product = np.empty((len(ptr) - 1, len(tile)), np.float32)
                fold_products(*queries, table[tile], threads, product)
                cosines[:, members] = product[:, columns[members] % TILE]
            values[which] = cosines[image[which], back]
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


def _rotated(vectors: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first SHORT coordinates along the axes and the norm of the others; those from there to LONG and the norm of
    the others: float32."""
    rotated = vectors.astype(np.float64) @ axes
    parts = []
    for first, last in ((0, SHORT), (SHORT, LONG)):
        rest = np.sqrt((rotated[:, last:] ** 2).sum(1, keepdims=True))
        parts.append(np.hstack([rotated[:, first:last], rest]).astype(np.float32))
    return parts[0], parts[1]
