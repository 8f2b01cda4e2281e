"""Blocks of ROUGE-L on a GPU, as `measures.on_device` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from capgrade.measures.on_device import STEPS, OnDevice, to_steps
from capgrade.measures.rouge.kernel import ROUGE_ONE, lanes_of

if TYPE_CHECKING:
    from capgrade.measures.rouge.fitted import FittedRougeL

_LONGEST = 64  # tokens of a reference that one number's bits hold


class RougeOnDevice(OnDevice["FittedRougeL"]):
    """The bit-parallel steps of `rouge`, a caption a row and a reference a column.

    All captions of a chunk take a step together; those that have ended are not changed. Images with
    a reference of more than 64 tokens, which one number cannot hold, stay with the processor.
    """

    def __init__(self, fitted: FittedRougeL, device: torch.device) -> None:
        super().__init__(fitted, device)
        lengths = np.diff(fitted.texts.ptr)
        self.longest = np.maximum.reduceat(lengths[fitted.refs], fitted.ref_ptr[:-1])
        self.ones = self._to_device(np.bitwise_count(np.arange(1 << 16)).astype(np.float32))
        self.lengths = self._to_device(lengths.astype(np.float32))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        short_rows = np.flatnonzero(self.longest[images] <= _LONGEST)
        short, fitted = images[short_rows], self.fitted
        form = fitted.form(short)._replace(width=len(short))
        host = lanes_of(short, fitted.ref_ptr, fitted.refs, fitted.texts, form)
        used, rows, owner = np.flatnonzero(host.length), len(host.mask), host.long_image
        row = self._to_device(np.append(np.where(host.row < 0, rows, host.row), rows))
        # Masks by word, lengths and images, of short references and of long ones.
        both: list[tuple[np.ndarray, ...]] = [
            (host.mask[:, used].astype(np.int32), host.length[used], used % max(len(short), 1)),
            (host.long_mask.view(np.int64).reshape(rows, len(owner)), host.long_length, owner),
        ]
        # The last row is of words that no reference has, and past the end.
        lanes = [
            tuple(map(self._to_device, (np.pad(mask, ((0, 1), (0, 0))), *of)))
            for mask, *of in both
            if mask.shape[1]
        ]
        return lambda first, last: self._folded(images, short_rows, row, lanes, first, last)

    def _folded(
        self,
        images: np.ndarray,
        short_rows: np.ndarray,
        row: Tensor,
        lanes: list[tuple[Tensor, ...]],
        first: int,
        last: int,
    ) -> Tensor:
        out = torch.zeros(last - first, len(short_rows), device=self.device)
        best = torch.zeros_like(out)
        recall = torch.zeros_like(out)
        total = torch.zeros_like(out, dtype=torch.int64)
        n, beta2 = self.lengths[first:last, None], self.fitted.beta**2
        for mask, length, owner in lanes:
            common = self._common(mask, row, first, last)
            column = owner.expand(common.shape)
            best.scatter_reduce_(1, column, common, "amax")
            recall.scatter_reduce_(1, column, common / length, "amax")
            total.index_add_(1, owner, to_steps((1 + beta2) * common / (n + beta2 * length)))
        if self.fitted.mean:
            sizes = np.diff(self.fitted.ref_ptr)[images[short_rows]].astype(np.float32)
            f = (total / (self._to_device(sizes) * STEPS)).float()
        else:
            f = (1 + beta2) * best * recall / (n * recall + beta2 * best).clamp(min=1e-30)
            f = torch.where(f > float(ROUGE_ONE), 1.0, f)
        return self._with_others(images, short_rows, f.clamp(max=1), first, last)

    def _common(self, mask: Tensor, local: Tensor, first: int, last: int) -> Tensor:
        """float32 [captions, lanes]: length of the longest common subsequence."""
        ptr = self.fitted.texts.ptr[first : last + 1]
        sizes, rows = np.diff(ptr), np.arange(last - first)
        words = np.full((len(rows), int(sizes.max(initial=0))), self.fitted.n_vocabulary)
        row = np.repeat(rows, sizes)
        words[row, np.arange(len(row)) - (ptr[:-1] - ptr[0])[row]] = self.fitted.texts.word[
            ptr[0] : ptr[-1]
        ]
        steps = local[self._to_device(words)].T
        state = torch.full((len(rows), mask.shape[1]), -1, dtype=mask.dtype, device=self.device)
        for step in steps:
            shared = state & mask[step.long()]
            state = (state + shared) | (state - shared)
        zeros = ~state
        quarters = range(0, torch.iinfo(mask.dtype).bits, 16)
        return sum(
            (self.ones[(zeros >> shift & 0xFFFF).long()] for shift in quarters),
            torch.zeros((), device=self.device),
        )

    def _with_others(
        self, images: np.ndarray, short_rows: np.ndarray, f: Tensor, first: int, last: int
    ) -> Tensor:
        if len(short_rows) == len(images):
            return f.T
        others = np.setdiff1d(np.arange(len(images)), short_rows)
        out = torch.empty(len(images), last - first, device=self.device)
        out[self._to_device(short_rows)] = f.T
        values = np.empty((len(others), last - first), np.float32)
        self.fitted.filler(images[others], first)(first, last, values)
        out[self._to_device(others)] = self._to_device(values)
        return out
