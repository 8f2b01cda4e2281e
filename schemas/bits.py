"""Bits of 64-bit numbers, for kernels: how many are set, and a hash."""

from __future__ import annotations

import numpy as np
from numba.extending import intrinsic

from capgrade.schemas.compiled import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: splitmix64's step
SHIFTS, FACTORS = (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of its finaliser


@intrinsic
def ones(typing, x):
    """Number of set bits (LLVM's ctpop), which numpy and numba do not offer on scalars."""
    return x(x), lambda context, builder, signature, args: builder.ctpop(args[0])


@njit(cache=True)
def mix_high(x):
    """`mix` without its last step, which leaves the highest 31 bits as they are."""
    x = (x ^ (x >> np.uint64(SHIFTS[0]))) * np.uint64(FACTORS[0])
    return (x ^ (x >> np.uint64(SHIFTS[1]))) * np.uint64(FACTORS[1])


@njit(cache=True)
def mix(x):
    """splitmix64's finaliser: one uint64 to another, every bit depending on every bit."""
    x = mix_high(x)
    return x ^ (x >> np.uint64(SHIFTS[2]))
