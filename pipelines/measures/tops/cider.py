"""The captions of highest CIDEr-D (CIDEr, tf-idf cosine) to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import get_num_threads

from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.tops import cider_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, sorted_tops

CLASSES = 256  # of lengths, that the packed norms have bits for
GRAMS = 2**14  # of a caption: the sums, in 16 bits, are rounded up once for each; and SLACK covers no more


@dataclass(frozen=True)
class CiderTops:
    """Finds tops of a fitted CIDEr-D that it `serves`."""

    fitted: FittedCider

    @staticmethod
    def serves(fitted: FittedCider) -> bool:
        """Whether the bounds hold: the captions are not too long, and of at most CLASSES lengths."""
        return len(fitted.penalty) <= CLASSES and int(np.diff(fitted.ptr).max(initial=0)) <= GRAMS

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`. Images that the bound leaves too many captions of are scored in full."""
        n_captions = len(self.fitted.rank)
        sizes = np.diff(self.fitted.ref_ptr)[images]
        wanted = k + int(sizes.max(initial=0)) * self.fitted.leave_out
        if wanted >= n_captions // 4:
            return every_pair(self.fitted, images, n_captions, k)
        rows, values, pairs, _ = self.unsorted(images, wanted)
        if self.fitted.leave_out:
            put_left_out(self.fitted, images, rows, values)
        found = sorted_tops(rows, values, np.maximum(pairs, 0), k)
        failed = np.flatnonzero(pairs < 0)
        if len(failed):
            full = every_pair(self.fitted, images[failed], n_captions, k)
            for mine, theirs in zip(found, full, strict=True):
                mine[failed] = theirs
        return found

    def unsorted(self, images: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """rows int64 and values float32 [images, k] in no order; pairs and postings int64 [images], see the kernel.

        Own captions count as if they were among the references.
        """
        folded = self.fitted.fold(images, 0)
        rows, values = np.zeros((len(images), k), np.int64), np.zeros((len(images), k), np.float32)
        pairs, postings = np.zeros(len(images), np.int64), np.zeros(len(images), np.int64)
        kernel.tops(
            get_num_threads(), folded.start, folded.used, folded.term, folded.order, folded.table, self.index,
            self.fitted.full, rows, values, pairs, postings,
        )  # fmt: skip
        return rows, values, pairs, postings

    def listed(self, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: values of captions rows[ptr[b] : ptr[b + 1]] of image images[b]; own captions count as
        in `unsorted`."""
        folded = self.fitted.fold(images, 0)
        values = np.empty(len(rows), np.float32)
        kernel.listed(
            get_num_threads(), folded.start, folded.used, folded.term, folded.order, folded.table, self.index,
            self.fitted.full, ptr, rows, self.fitted.rank, values,
        )  # fmt: skip
        return values

    @cached_property
    def index(self) -> kernel.Index:
        f = self.fitted
        n_captions = len(f.rank)
        row_of_rank = np.empty(n_captions, np.int32)
        row_of_rank[f.rank] = np.arange(n_captions)
        gram_of = np.repeat(np.arange(len(f.term_ptr) - 1, dtype=np.int32), np.diff(f.term_ptr))
        common = self._common()
        return kernel.Index(
            f.ptr, f.gram, f.count, f.gain, gram_of, f.term_count, f.post_ptr, self._packed(gram_of), f.dense_row,
            row_of_rank, f.class_of_rank, np.ascontiguousarray(f.norm_of_rank.T), common, _most(common),
        )  # fmt: skip

    def _packed(self, gram_of: np.ndarray) -> np.ndarray:
        """uint32 [postings, 2]: rank; the inverse norm in units, rounded up to 24 bits, and the length class in the 8
        below."""
        f = self.fitted
        order = np.repeat(f.order[gram_of], np.diff(f.post_ptr))
        units = np.float32(kernel.UNITS / f.full)
        norm = (f.norm_of_rank[order, f.post_rank] * units).view(np.uint32)
        out = np.empty((len(f.post_rank), 2), np.uint32)
        out[:, 0] = f.post_rank
        out[:, 1] = (norm + np.uint32(255)) & np.uint32(0xFFFFFF00) | f.class_of_rank[f.post_rank]
        return out

    def _common(self) -> np.ndarray:
        """uint32 [levels, n_captions] by rank: the norm of a caption's part in the n-grams of each level, in 255ths,
        rounded up; a byte an order."""
        f = self.fitted
        n_captions = len(f.rank)
        df = np.bincount(f.gram, minlength=len(f.gain))
        row = np.repeat(np.arange(n_captions), np.diff(f.ptr))
        squares = f.count.astype(np.float64) ** 2 * f.gain[f.gram] * f.inv_norm[row, f.order[f.gram]] ** 2
        out = np.empty((len(kernel.LEVELS), n_captions), np.uint32)
        for level, share in enumerate(kernel.LEVELS):
            some = df[f.gram] > share * n_captions
            cell = row[some] * kernel.ORDERS + f.order[f.gram[some]]
            norm = np.sqrt(np.bincount(cell, squares[some], n_captions * kernel.ORDERS)).reshape(-1, kernel.ORDERS)
            parts = np.minimum(np.ceil(norm * 255 * (1 + 1e-9)), 255).astype(np.uint32)
            out[level, f.rank] = (parts << (8 * np.arange(kernel.ORDERS, dtype=np.uint32))).sum(1, dtype=np.uint32)
        return out


def _most(common: np.ndarray) -> np.ndarray:
    """uint32 [levels, blocks]: the largest of each byte of kernel.BLOCK columns."""
    levels, n_captions = common.shape
    blocks = -(-n_captions // kernel.BLOCK)
    padded = np.zeros((levels, blocks * kernel.BLOCK), np.uint32)
    padded[:, :n_captions] = common
    parts = padded.view(np.uint8).reshape(levels, blocks, kernel.BLOCK, kernel.ORDERS)
    return np.ascontiguousarray(parts.max(2)).view(np.uint32)[:, :, 0]
