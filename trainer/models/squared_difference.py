"""Every image beside every caption, word by word, without keeping anything of size [images, words, D]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from capgrade.trainer.models.encoders import upcast
from capgrade.trainer.models.matmul import linear_product, product

STEP_NUMBERS = {"cpu": 2**21, "cuda": 2**28}  # numbers of an [images, words, D] block: 8 MiB stays in a CPU's cache
TILE_NODES = {"cpu": 2**14, "cuda": 2**20}  # image-word pairs compared at once


def by_length(lengths: Sequence[int], images: int, device: str) -> Iterator[list[int]]:
    """Numbers of captions of one length at a time, shortest first, in tiles of a bounded number of image-word pairs."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    first = 0
    while first < len(order):
        length = lengths[order[first]]
        most = max(1, TILE_NODES.get(device, TILE_NODES["cpu"]) // (images * (length + 1)))
        stop = first + 1
        while stop < len(order) and stop - first < most and lengths[order[stop]] == length:
            stop += 1
        yield order[first:stop]
        first = stop


def attention(regions: Tensor, mask: Tensor, gram: Tensor, words: Tensor, temperature: float) -> Tensor:
    """Weights A [n, R, c L] of regions for every word of c captions of L words, words [c, L, D]; SCAN's text to image.

    s = leaky_relu(v . w, 0.1), divided by its norm over the words of the caption; softmax over regions of
    `temperature` s. The sum of weighted regions is scaled to unit length: its norm is sqrt(a' G a) with the Gram
    matrix G [n, R, R] of the regions, so A' V is that unit vector and no [n, words, D] is read for a norm.
    """
    s = upcast(linear_product(regions.flatten(0, 1), words.flatten(0, 1)))  # (n R, c L)
    s = leaky_relu(s, 0.1).unflatten(0, mask.shape).unflatten(2, words.shape[:2])
    s = s / (s.norm(dim=3, keepdim=True) + 1e-8)
    s = (temperature * s).flatten(2).masked_fill(~mask.unsqueeze(2), torch.finfo(s.dtype).min)
    a = s.softmax(1)
    square = (a * (gram @ a)).sum(1, keepdim=True)
    return a * square.clamp(min=1e-16).rsqrt()


class SquaredDifference(torch.autograd.Function):
    """Y = (A' V - w)^2 W' + b: [n, M, K] of A [n, R, M], V [n, R, D], w [M, D], W [K, D], b [K].

    The block [n, M, D] between lives a few images at a time and is made again in the backward pass: at 128 x 128
    pairs, 12 words and D = 1024 it is 0.8 GB, and plain autograd keeps it several times.
    """

    @staticmethod
    def steps(a: Tensor, words: Tensor) -> Iterator[slice]:
        size = max(1, STEP_NUMBERS.get(a.device.type, STEP_NUMBERS["cpu"]) // max(1, words.numel()))
        return (slice(i, i + size) for i in range(0, len(a), size))

    @staticmethod
    def forward(ctx: Any, a: Tensor, v: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(a, v, words, weight)
        y = a.new_empty(len(a), len(words), len(weight))
        for i in SquaredDifference.steps(a, words):
            difference = torch.baddbmm(words, a[i].mT, v[i], beta=-1)
            y[i] = product(difference.square_(), weight, bias)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        a, v, words, weight = ctx.saved_tensors
        da, dv = torch.empty_like(a), torch.empty_like(v)
        dwords, dweight = torch.zeros_like(upcast(words)), torch.zeros_like(upcast(weight))
        for i in SquaredDifference.steps(a, words):
            difference = torch.baddbmm(words, a[i].mT, v[i], beta=-1)
            g = grad[i].flatten(0, 1)  # (n M, K)
            through = product(g, weight.T).view_as(difference).mul_(difference)  # half the gradient of the difference
            dweight += product(g.T, difference.square_().flatten(0, 1).T)
            da[i] = v[i] @ through.mT
            dv[i] = a[i] @ through
            dwords -= through.sum(0)
        return da.mul_(2), dv.mul_(2), dwords.mul_(2).to(words.dtype), dweight.to(weight.dtype), grad.sum((0, 1))


def squared_difference(a: Tensor, v: Tensor, words: Tensor, layer: torch.nn.Linear) -> Tensor:
    """`layer` of the squared difference, float32; its products in autocast's type where that is on."""
    device = a.device.type
    inputs: tuple[Tensor, ...] = (a, v, words, layer.weight, layer.bias)
    if torch.is_autocast_enabled(device):
        inputs = tuple(x.to(torch.get_autocast_dtype(device)) for x in inputs)
    with torch.autocast(device, enabled=False):
        return upcast(SquaredDifference.apply(*inputs))
