"""The batch of all processes on each: contrastive losses see every pair, gradients flow back to their owners."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from capgrade.trainer.models.base import Encoded


class _Gather(torch.autograd.Function):
    """[n, ...] of each rank, equal shapes -> [world n, ...] in order of rank; backward sums over ranks.

    Every rank computes the same loss of the whole batch, so the sum is world times the gradient of its part, and the
    mean over ranks that `mean_gradients` takes of parameters' gradients gives the gradient of that loss.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].clone(memory_format=torch.contiguous_format)  # autograd may give it to others too
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


def gather(encoded: Encoded) -> Encoded:
    """The encodings of the whole batch, one process's after the other's; with one process the same ones."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return encoded
    mask = encoded.mask
    whole = None if mask is None else _Gather.apply(mask.to(torch.uint8)).bool()
    return Encoded(_gathered(encoded.vector), _gathered(encoded.parts), whole)


def _gathered(x: Tensor | None) -> Tensor | None:
    return None if x is None else _Gather.apply(x)
