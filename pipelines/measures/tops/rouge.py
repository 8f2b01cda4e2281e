"""The captions of highest ROUGE-L to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.pipelines.measures.rouge import FittedRougeL
from capgrade.pipelines.measures.tops import rouge_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, put_left_out, sorted_tops
from capgrade.pipelines.measures.tops.tokens import tokens
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties


@dataclass(frozen=True)
class RougeTops:
    """Finds tops of a fitted ROUGE-L that it `serves`."""

    fitted: FittedRougeL
    ties: Ties

    @staticmethod
    def serves(fitted: FittedRougeL) -> bool:
        """Whether the captions are short enough."""
        return int(np.diff(fitted.ptr).max(initial=0)) <= kernel.LONGEST

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`."""
        f = self.fitted
        n_captions, own = len(f.ptr) - 1, int(np.diff(f.ref_ptr)[images].max(initial=0))
        wanted = k + own * f.leave_out
        if wanted >= n_captions // 4:
            return every_pair(f, images, k, self.ties)
        rows, values = np.empty((len(images), wanted), np.int64), np.empty((len(images), wanted), np.float32)
        pairs = np.zeros(len(images), np.int64)
        seeds, keys = self.ties.images[images], self.ties.captions
        kernel.tops(get_num_threads(), images, f.ref_ptr, f.refs, self.index, seeds, keys, rows, values, pairs)
        if f.leave_out:
            put_left_out(f, images, rows, values, self.ties)
        return sorted_tops(images, rows, values, pairs, k, self.ties)

    def listed(self, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: values of captions rows[ptr[b] : ptr[b + 1]] of image images[b], own captions among the
        references."""
        values = np.empty(len(rows), np.float32)
        kernel.listed(get_num_threads(), images, self.fitted.ref_ptr, self.fitted.refs, self.index, ptr, rows, values)
        return values

    @cached_property
    def index(self) -> kernel.Index:
        f = self.fitted
        sizes = np.diff(f.ptr)
        row = np.repeat(np.arange(len(sizes)), sizes)
        row_of_rank = np.argsort(sizes, kind="stable").astype(np.int32)
        rank = np.empty(len(sizes), np.int32)
        rank[row_of_rank] = np.arange(len(sizes))
        token, counts = tokens(row, f.word)
        common = np.argsort(-counts, kind="stable")[: kernel.BITS]
        bit_of = np.full(len(counts), -1)
        bit_of[common] = np.arange(len(common))
        bit, bits = bit_of[token], np.zeros(len(sizes), np.uint64)
        np.bitwise_or.at(bits, rank[row[bit >= 0]], np.uint64(1) << bit[bit >= 0].astype(np.uint64))
        rare = np.flatnonzero(bit < 0)
        by_token = rare[np.lexsort((rank[row[rare]], token[rare]))]
        lengths, run_start = np.unique(sizes[row_of_rank], return_index=True)
        return kernel.Index(
            f.ptr, f.word, np.where(bit >= 0, -1 - bit, token).astype(np.int32),
            np.searchsorted(token[by_token], np.arange(len(counts) + 1)), rank[row[by_token]], bits, row_of_rank,
            np.append(run_start, len(sizes)), lengths, f.n_vocabulary, np.float32(f.beta**2), f.mean,
        )  # fmt: skip
