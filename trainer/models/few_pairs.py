"""The gradient of a score matrix through the pairs that have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

FEW = 0.25  # of all pairs: with more, the graph of the whole matrix is as cheap


class FewPairs(torch.autograd.Function):
    """Scores [images, captions] = every(*inputs), where one pair's score depends on that pair alone.

    Triplets of the hardest negative give a gradient to three pairs per caption at most. Those are scored again by
    some(images, captions, *inputs), [pairs] of pairs as two lists of numbers, and only they are walked back through.
    Where more than `FEW` have a gradient the graph that `every` left is taken. `inputs` are all that learns: what
    `learned` holds is used by both functions as it is.
    """

    @staticmethod
    def forward(
        ctx: Any, every: Callable[..., Tensor], some: Callable[..., Tensor], learned: int, *inputs: Tensor
    ) -> Tensor:
        ours = [x.detach().requires_grad_(x.requires_grad) for x in inputs[learned:]]
        ctx.inputs, ctx.leaves, ctx.some = ours, [*inputs[:learned], *ours], some
        device = ours[0].device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        with torch.enable_grad():
            ctx.scores = every(*ours)
        return ctx.scores.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        pairs = grad.nonzero(as_tuple=True)
        if not len(pairs[0]):  # no triplet is too near
            return None, None, None, *(torch.zeros_like(x) if x.requires_grad else None for x in ctx.leaves)
        scores = ctx.scores
        if len(pairs[0]) <= FEW * grad.numel():
            device, dtype, enabled = ctx.autocast
            with torch.enable_grad(), torch.autocast(device, dtype, enabled):
                scores, grad = ctx.some(*pairs, *ctx.inputs), grad[pairs]
        asked = [x for x in ctx.leaves if x.requires_grad]
        found = iter(torch.autograd.grad(scores, asked, grad, retain_graph=True, allow_unused=True))
        return None, None, None, *(next(found) if x.requires_grad else None for x in ctx.leaves)


def few_pairs(
    every: Callable[..., Tensor], some: Callable[..., Tensor], learned: Sequence[Tensor], *inputs: Tensor
) -> Tensor:
    """`every(*inputs)`, with a gradient where one is asked for; `learned`: the parameters that both functions use."""
    if not torch.is_grad_enabled():
        return every(*inputs)
    return FewPairs.apply(every, some, len(learned), *learned, *inputs)
