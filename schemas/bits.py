"""Bits of 64-bit numbers, for kernels: how many are set, and a hash."""

from __future__ import annotations

import numpy as np
from numba.extending import intrinsic

from capgrade.schemas.compiled import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: splitmix64's step


@intrinsic
def ones(typing, x):
    """Number of set bits (LLVM's ctpop), which numpy and numba do not offer on scalars."""
    return x(x), lambda context, builder, signature, args: builder.ctpop(args[0])


@njit(cache=True)
def mix_high(x):
    """`mix` without its last step, which leaves the highest 31 bits as they are."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)


@njit(cache=True)
def mix(x):
    """splitmix64's finaliser: one uint64 to another, every bit depending on every bit."""
    x = mix_high(x)
    return x ^ (x >> np.uint64(31))
