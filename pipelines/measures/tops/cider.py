"""The captions of highest CIDEr-D (CIDEr, tf-idf cosine) to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.cider_kernel import Postings, Rows
from capgrade.pipelines.measures.tops import cider_kernel as kernel
from capgrade.pipelines.measures.tops.cider_index import GRAMS, Index, index, packed_norms
from capgrade.pipelines.measures.tops.cider_packed import COARSEST
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, whole_where_failed
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties

CLASSES = 256  # of lengths, that are bytes of the index


@dataclass(frozen=True)
class CiderTops:
    """Finds tops of a fitted CIDEr-D that it `serves`."""

    fitted: FittedCider
    ties: Ties

    @staticmethod
    def serves(fitted: FittedCider) -> bool:
        """Whether the bounds hold: the captions are not too long, of at most CLASSES lengths, and their norms near
        enough to each other to be packed."""
        few = len(fitted.penalty) <= CLASSES and int(np.diff(fitted.ptr).max(initial=0)) <= GRAMS
        return few and packed_norms(fitted).shift <= COARSEST

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`. Images that the bound leaves too many captions of are scored in full."""
        n_captions = len(self.fitted.rank)
        sizes = self.fitted.ref_ptr[images + 1] - self.fitted.ref_ptr[images]
        wanted = k + int(sizes.max(initial=0)) * self.fitted.leave_out
        if wanted >= n_captions // 4:
            return every_pair(self.fitted, images, k, self.ties)
        rows, values, pairs = self.unsorted(images, wanted)
        if self.fitted.leave_out:
            put_left_out(self.fitted, images, rows, values, self.ties)
        return whole_where_failed(self.fitted, images, rows, values, pairs, k, self.ties)

    def unsorted(self, images: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """rows int64 and values float32 [images, k] in no order; pairs int64 [images], see the kernel.

        Own captions count as if they were among the references.
        """
        rows, values = np.zeros((len(images), k), np.int64), np.zeros((len(images), k), np.float32)
        pairs = np.zeros(len(images), np.int64)
        seeds = self.ties.images[images]
        kernel.tops(
            get_num_threads(), images, *self.tables, self.index, seeds, self.ties.captions, rows, values, pairs
        )  # fmt: skip
        return rows, values, pairs

    def listed(self, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: values of captions rows[ptr[b] : ptr[b + 1]] of image images[b]; own captions count as
        in `unsorted`."""
        values = np.empty(len(rows), np.float32)
        kernel.listed(get_num_threads(), images, *self.tables, self.index, ptr, rows, values)
        return values

    @cached_property
    def index(self) -> Index:
        return index(self.fitted)

    @cached_property
    def tables(self) -> tuple[Rows, Postings]:
        """As all pairs have them, but with the index's columns."""
        f, ix = self.fitted, self.index
        return f.rows._replace(gain=ix.gain, order=ix.order), f.postings._replace(
            term_ptr=ix.term_ptr, term_count=ix.count_of, ptr=ix.post_ptr, dense_row=ix.dense_row
        )
