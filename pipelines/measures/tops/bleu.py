"""The captions of highest BLEU to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.tops import bleu_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, wanted, whole_where_failed
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties


@dataclass(frozen=True)
class BleuTops:
    """Finds tops of a fitted BLEU."""

    fitted: FittedBleu
    ties: Ties

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`. Images that share n-grams with too many captions, or too few, are scored in full."""
        f = self.fitted
        n_captions, room = len(f.words), wanted(f, images, k)
        if room >= n_captions // kernel.SHARE:
            return every_pair(f, images, k, self.ties)
        rows, values = np.zeros((len(images), room), np.int64), np.zeros((len(images), room), np.float32)
        pairs = np.zeros(len(images), np.int64)
        folded, seeds = kernel.Folded(*f.fold(images)), self.ties.images[images]
        kernel.tops(get_num_threads(), folded, self._index, seeds, self.ties.captions, rows, values, pairs)
        if f.leave_out:
            put_left_out(f, images, rows, values, self.ties)
        return whole_where_failed(f, images, rows, values, pairs, k, self.ties)

    @property
    def _index(self) -> kernel.Index:
        f = self.fitted
        return kernel.Index(
            f.order, f.lengths, f.length_class, f.term_ptr, f.term_count, f.post_ptr, f.post, f.dense_row, f.dense, f.k
        )
