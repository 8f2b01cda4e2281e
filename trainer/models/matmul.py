"""Matrix products of SAF and SGR: on AMD's CPUs with AVX-512 by oneDNN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

CPUS = Path("/proc/cpuinfo")


def made_by_amd(cpus: Path = CPUS) -> bool:
    """Whether Linux says so of the first processor; False where nothing is told."""
    return cpus.is_file() and "AuthenticAMD" in cpus.read_text(encoding="utf-8")


WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
ONEDNN = WIDE and made_by_amd() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b without a gradient, x [..., D], W [K, D].

    PyTorch's own float32 products are MKL's, which on AMD's CPUs stays at AVX2: oneDNN's AVX-512 kernels, which
    PyTorch has for its compiler, are 2.2 times faster there. Where there is no AVX-512, MKL's are a tenth faster. On
    Intel's they are as fast, but for the 0.4 ms in which oneDNN prepares itself for a shape that it has not seen, and
    nearly every batch has some. Plain float32 both, so only rounding differs.
    """
    if ONEDNN and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return linear(x, weight, bias)


class Product(torch.autograd.Function):
    """`product` with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()  # oneDNN's kernels take rows or columns that lie together, nothing between
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad.contiguous().flatten(0, -2)
        dweight = product(rows.T, x.flatten(0, -2).T)
        return product(rows, weight.T).view_as(x), dweight, rows.sum(0) if ctx.needs_input_grad[2] else None


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b with its gradient, under autocast too."""
    if torch.is_autocast_enabled(x.device.type):
        return linear(x, weight, bias)
    return Product.apply(x, weight, bias)
