"""The captions of highest scene graph F-score to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.pipelines.measures.scene_graph import FittedSceneGraph
from capgrade.pipelines.measures.tops import scene_graph_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, sorted_tops, wanted
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties

DENSE_SHARE = 0.2  # of the captions


@dataclass(frozen=True)
class SceneGraphTops:
    """Finds tops of fitted scene graphs."""

    fitted: FittedSceneGraph
    ties: Ties

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`."""
        f = self.fitted
        n_captions, room = len(f.total), wanted(f, images, k)
        if room >= n_captions // 4:
            return every_pair(f, images, k, self.ties)
        rows, values = np.empty((len(images), room), np.int64), np.empty((len(images), room), np.float32)
        pairs = np.zeros(len(images), np.int64)
        seeds, keys = self.ties.images[images], self.ties.captions
        kernel.tops(get_num_threads(), images, *f.rows, self.index, f.beta2, seeds, keys, rows, values, pairs)
        if f.leave_out:
            put_left_out(f, images, rows, values, self.ties)
        return sorted_tops(images, rows, values, pairs, k, self.ties)

    @cached_property
    def index(self) -> kernel.Index:
        """Weights of the tuples that many captions have as dense rows, beside the postings."""
        f = self.fitted
        common = np.flatnonzero(np.diff(f.post_ptr) > DENSE_SHARE * len(f.total))
        row, dense = np.full(len(f.post_ptr) - 1, -1, np.int32), np.zeros((len(common), len(f.total)), np.float32)
        row[common] = np.arange(len(common))
        for k, one in enumerate(common):
            some = slice(f.post_ptr[one], f.post_ptr[one + 1])
            dense[k, f.post_caption[some]] = f.post_weight[some]
        return kernel.Index(f.post_ptr, f.post_caption, f.post_weight, row, dense)
