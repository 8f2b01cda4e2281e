"""Blocks of CIDEr on a GPU, as `measures.on_device` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from capgrade.measures.on_device import STEPS, OnDevice, to_steps

if TYPE_CHECKING:
    from capgrade.measures.cider.fitted import FittedCider


class CiderOnDevice(OnDevice["FittedCider"]):
    """Adds up every posting of an image's terms in the chunk, frequent n-grams like others."""

    def __init__(self, fitted: FittedCider, device: torch.device) -> None:
        super().__init__(fitted, device)
        postings, (_, *ranked) = fitted.postings, fitted.ranked
        term = np.repeat(np.arange(len(postings.ptr) - 1), np.diff(postings.ptr))
        self.key = self._to_device(term * self.columns + postings.rank)  # ascending
        self.post_rank = self._to_device(postings.rank.astype(np.int64))
        self.rank, self.class_of_rank = (self._to_device(a.astype(np.int64)) for a in ranked[:2])
        self.norm_of_rank = self._to_device(np.asarray(ranked[2]))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        folded, _, _ = self.fitted.fold(images, 0)
        start, used = folded.start[:-1], folded.used
        rows = np.concatenate([np.arange(a, a + n) for a, n in zip(start, used, strict=True)])
        owner = self._to_device(np.repeat(np.arange(len(images)), used))
        table = self._to_device(folded.table[rows])
        beginning = self._to_device(folded.term[rows]) * self.columns
        order = self._to_device(folded.order[rows].astype(np.int64))

        def values(first: int, last: int) -> Tensor:
            begin = torch.searchsorted(self.key, beginning + first)
            size = torch.searchsorted(self.key, beginning + last) - begin
            row = torch.repeat_interleave(size)
            at = torch.arange(len(row), device=row.device) - (size.cumsum(0) - size - begin)[row]
            rank = self.post_rank[at]
            gain = table[row, self.class_of_rank[rank]] * self.norm_of_rank[order[row], rank]
            sums = torch.zeros(len(images), last - first, dtype=torch.int64, device=row.device)
            sums.view(-1).index_add_(0, owner[row] * (last - first) + rank - first, to_steps(gain))
            score, full = sums[:, self.rank[first:last] - first] / STEPS, self.fitted.full
            return torch.where(score > full * (1 - 1e-6), full, score).float()

        return values
