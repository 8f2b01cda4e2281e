"""Every image beside every caption, word by word, without keeping anything of size [images, words, D]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from capgrade.trainer.models.base import upcast
from capgrade.trainer.models.scan import attention

STEP_NUMBERS = {"cpu": 2**21, "cuda": 2**28}  # of a block [images, words, D]: 8 MiB, a quarter of a server's cache
EPS = 1e-12  # the shortest vector that is scaled to unit length, as `normalize` has it


def unit_attention(products: Tensor, mask: Tensor, gram: Tensor, temperature: float) -> Tensor:
    """SCAN's weights A [n, R, c L], such that A' V is a unit vector: no [n, words, D] is read for a norm."""
    a, square = attention(products, mask, gram, temperature)
    return a * square.unsqueeze(1).clamp(min=1e-16).rsqrt()


class SquaredDifference(torch.autograd.Function):
    """Y = l2norm((A' V - w)^2 W' + b): [n, M, K] of A [n, R, M], V [n, R, D], w [M, D], W [K, D], b [K].

    The block [n, M, D] between lives a few images at a time and is made again in the backward pass: at 128 x 128
    pairs, 12 words and D = 1024 it is 0.8 GB, and plain autograd keeps it several times. The norm is taken, and its
    gradient, while the block's rows are at hand.
    """

    @staticmethod
    def steps(a: Tensor, words: Tensor) -> Iterator[slice]:
        size = max(1, STEP_NUMBERS.get(a.device.type, STEP_NUMBERS["cpu"]) // max(1, words.numel()))
        return (slice(i, i + size) for i in range(0, len(a), size))

    @staticmethod
    def forward(ctx: Any, a: Tensor, v: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        unit = upcast(a.new_empty(len(a), len(words), len(weight)))
        scale = unit.new_empty(len(a), len(words), 1)
        for i in SquaredDifference.steps(a, words):
            difference = torch.baddbmm(words, a[i].mT, v[i], beta=-1)
            y = upcast(linear(difference.square_(), weight, bias))
            scale[i] = y.norm(dim=2, keepdim=True).clamp_(min=EPS).reciprocal_()
            torch.mul(y, scale[i], out=unit[i])
        ctx.save_for_backward(a, v, words, weight, unit, scale)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        a, v, words, weight, unit, scale = ctx.saved_tensors
        da, dv = torch.empty_like(a), torch.empty_like(v)
        dwords, dweight = torch.zeros_like(upcast(words)), torch.zeros_like(upcast(weight))
        dbias = torch.zeros_like(dweight[:, 0])
        for i in SquaredDifference.steps(a, words):
            g = through_norm(grad[i], unit[i], scale[i]).flatten(0, 1)  # (n M, K)
            dbias += g.sum(0)
            g = g.to(weight.dtype)
            difference = torch.baddbmm(words, a[i].mT, v[i], beta=-1)
            through = (g @ weight).view_as(difference).mul_(difference)  # half the gradient of the difference
            dweight += g.T @ difference.square_().flatten(0, 1)
            da[i] = v[i] @ through.mT
            dv[i] = a[i] @ through
            dwords -= through.sum(0)
        return da.mul_(2), dv.mul_(2), dwords.mul_(2).to(words.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype)


def through_norm(grad: Tensor, unit: Tensor, scale: Tensor) -> Tensor:
    """The gradient of y, of that of y * scale: less what is along y, except where y was too short to be scaled."""
    along = (unit * grad).sum(2, keepdim=True).masked_fill_(scale >= 1 / EPS, 0)
    return torch.addcmul(grad, unit, along, value=-1).mul_(scale)


def squared_difference(a: Tensor, v: Tensor, words: Tensor, layer: torch.nn.Linear) -> Tensor:
    """`layer` of the squared difference at unit length, float32; products in autocast's type where that is on."""
    device = a.device.type
    inputs: tuple[Tensor, ...] = (a, v, words, layer.weight, layer.bias)
    if torch.is_autocast_enabled(device):
        inputs = tuple(x.to(torch.get_autocast_dtype(device)) for x in inputs)
    with torch.autocast(device, enabled=False):
        return SquaredDifference.apply(*inputs)
