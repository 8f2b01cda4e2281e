"""A fused multiply-add for kernels: rounded once, on any processor, so that two kernels get the same bits."""

from __future__ import annotations

from numba.extending import intrinsic


@intrinsic
def fma(typing, a, b, c):
    """a * b + c of three numbers of one floating type, rounded once (LLVM's fma)."""
    return a(a, b, c), lambda context, builder, signature, args: builder.fma(*args)
