"""The batch of all processes on each: contrastive losses see every pair, gradients flow back to
their owners."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from capgrade.schemas.errors import InputError


# PyTorch's own function is private in some versions and deprecated in others.
class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        # A copy, because autograd may give the same gradient to other functions.
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


def gather(x: Tensor) -> Tensor:
    """The rows of all processes of `torch.distributed` on each, [n, ...] -> [world n, ...] in order
    of rank; with one process, or none started, `x` itself. Of any dtype: vectors, masks and the
    numbers of images are gathered alike.

    Every process then computes the same loss of the whole batch. The gradient that flows back into
    `x` is the sum over processes, so the mean over processes of parameters' gradients, as
    DistributedDataParallel takes it, is the gradient of that loss. InputError where processes have
    different numbers of rows, as in a last batch that is not dropped; not checked on a GPU, for
    which it would wait.

    >>> gather(torch.eye(2)).shape
    torch.Size([2, 2])
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return x
    if x.device.type == "cpu":
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, torch.tensor([len(x)]))
        if len(different := {int(size) for size in sizes}) > 1:
            problem = f"processes have {min(different)} to {max(different)} rows to gather"
            raise InputError(problem, remedy="give each as many: drop the last batch of an epoch")
    if x.dtype == torch.bool:  # no backend gathers bool
        return _Gather.apply(x.to(torch.uint8).contiguous()).bool()
    return _Gather.apply(x.contiguous())
