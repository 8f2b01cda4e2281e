"""The captions of highest BLEU to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import get_num_threads

from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.tops import bleu_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, whole_where_failed


@dataclass(frozen=True)
class BleuTops:
    """Finds tops of a fitted BLEU."""

    fitted: FittedBleu

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`. Images that share n-grams with too many captions, or too few, are scored in full."""
        f = self.fitted
        n_captions, own = len(f.words), int(np.diff(f.ref_ptr)[images].max(initial=0))
        wanted = k + own * f.leave_out
        if wanted >= n_captions // 4:
            return every_pair(f, images, n_captions, k)
        rows, values = np.zeros((len(images), wanted), np.int64), np.zeros((len(images), wanted), np.float32)
        pairs = np.zeros(len(images), np.int64)
        kernel.tops(get_num_threads(), kernel.Folded(*f.fold(images)), self._index, rows, values, pairs)
        if f.leave_out:
            put_left_out(f, images, rows, values)
        return whole_where_failed(f, images, rows, values, pairs, k, n_captions)

    def listed(self, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: values of captions rows[ptr[b] : ptr[b + 1]] of image images[b], own captions among the
        references."""
        return self.fitted.listed(images, ptr, rows)

    @property
    def _index(self) -> kernel.Index:
        f = self.fitted
        return kernel.Index(
            f.order, f.lengths, f.length_class, f.term_ptr, f.term_count, f.post_ptr, f.post, f.dense_row, f.dense, f.k
        )
