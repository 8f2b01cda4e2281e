"""Max-sum pooling of alignment matrices, one block of them at a time, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CELLS = {"cpu": 2**19, "cuda": 2**26}  # of the one block of [images, regions, captions, words] that exists


@dataclass(frozen=True)
class Parts:
    """Sets of vectors, those that count first; where `floor`, a maximum over the set is at least 0."""

    vectors: Tensor  # float [N, L, D]
    count: Tensor  # int64 [N]
    floor: Tensor | None = None  # bool [N]

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def mask(self) -> Tensor:
        return torch.arange(self.vectors.shape[1], device=self.count.device) < self.count[:, None]

    def clamped(self, length: int) -> Parts:
        """With a floor where padding to `length` adds at least one cell of zeros."""
        return replace(self, floor=self.count < length)

    def take(self, at: Tensor | slice) -> Parts:
        """The sets at `at`, cut to the longest of them."""
        count = self.count[at]
        longest = int(count.max()) if len(count) else 0
        return Parts(self.vectors[at, :longest], count, None if self.floor is None else self.floor[at])


def blocks(rows: Parts, columns: Parts) -> Iterator[slice]:
    """Slices of rows whose alignment with all columns fits one block; one row at least."""
    cells = rows.vectors.shape[1] * columns.vectors.shape[0] * columns.vectors.shape[1]
    step = max(CELLS.get(rows.vectors.device.type, 2**22) // max(cells, 1), 1)
    return (slice(at, at + step) for at in range(0, len(rows), step))


class MaxSum(torch.autograd.Function):
    """Sum over words of the best region, over regions of the best word, or both: float32 [B, C].

    Kept for the backward pass is which part won, not the similarities: A has B R C W floats, this B C W (and B C R)
    small integers. The gradient of A is made block by block, one number a column of it.
    """

    @staticmethod
    def forward(
        ctx: Any, regions: Tensor, words: Tensor, rows: Parts, columns: Parts, over_regions: bool, over_words: bool
    ) -> Tensor:
        need = any(ctx.needs_input_grad)
        scores = regions.new_zeros(len(rows), len(columns))
        won: list[tuple[Tensor, ...]] = []
        row_mask, column_mask = rows.mask, columns.mask
        for at in blocks(rows, columns):
            A = _block(regions[at], words, row_mask[at], column_mask)
            winners = []
            if over_regions:
                floor = None if rows.floor is None else rows.floor[at, None, None]
                best, where = _largest(A, 1, floor, need)  # [c, C, W]
                scores[at] += best.masked_fill(~column_mask, 0).sum(2)
                winners.append(where)
            if over_words:
                best, where = _largest(A, 3, columns.floor, need)  # [c, R, C]
                scores[at] += best.masked_fill(~row_mask[at, :, None], 0).sum(1)
                winners.append(where)
            won.append(tuple(winners))
        ctx.save_for_backward(regions, words)
        ctx.kept = (rows, columns, over_regions, over_words, won) if need else None
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        regions, words = ctx.saved_tensors
        rows, columns, over_regions, over_words, won = ctx.kept
        flat = words.flatten(0, 1)  # [C W, D]
        grad_regions, grad_words = torch.zeros_like(regions), torch.zeros_like(flat)
        with torch.autocast(grad.device.type, enabled=False):
            for at, winners in zip(blocks(rows, columns), won, strict=True):
                some = regions[at]
                A = some.new_zeros(*some.shape[:2], *words.shape[:2])  # the gradient of this block
                given = iter(winners)
                if over_regions:
                    _give(A, 1, next(given), (grad[at, :, None] * columns.mask)[:, None])
                if over_words:
                    _give(A, 3, next(given), (grad[at, None] * rows.mask[at, :, None])[..., None])
                A = A.flatten(0, 1).flatten(1)
                grad_regions[at] = (A @ flat).view_as(some)
                grad_words.addmm_(A.T, some.flatten(0, 1))
        return grad_regions, grad_words.view_as(words), None, None, None, None


def _block(regions: Tensor, words: Tensor, row_mask: Tensor, column_mask: Tensor) -> Tensor:
    """A of some images and all captions, [c, R, C, W], -inf where nothing is."""
    A = (regions.flatten(0, 1) @ words.flatten(0, 1).T).view(*regions.shape[:2], *words.shape[:2])
    A.masked_fill_(~row_mask[:, :, None, None], -torch.inf)
    return A.masked_fill_(~column_mask, -torch.inf)


def _largest(A: Tensor, dim: int, floor: Tensor | None, need: bool) -> tuple[Tensor, Tensor]:
    """Maximum along `dim` and, if needed, where; -1 where it is the floor, or where there is nothing: 0 then."""
    if need:
        best, where = A.max(dim)
        where = where.to(torch.int16)
    else:
        best, where = A.amax(dim), torch.empty(0)
    none = best == -torch.inf
    if floor is not None:
        none |= floor & (best < 0)
    if need:
        where.masked_fill_(none, -1)
    return best.masked_fill_(none, 0), where


def _give(A: Tensor, dim: int, where: Tensor, grad: Tensor) -> None:
    """Add each gradient to the cell that won."""
    where = where.unsqueeze(dim).long()
    grad = grad.expand_as(where).masked_fill(where < 0, 0)
    A.scatter_add_(dim, where.clamp(min=0), grad)
