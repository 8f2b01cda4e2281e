"""A posting of CIDEr-D's exact tops in 32 bits: the caption's rank, then a code of its inverse norm, rounded up.

The code is the norm's float32 without its last bits, counted from the least norm. So it grows by about the same share
from each code to the next; how many bits are left for it hangs on the number of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.schemas.compiled import njit

COARSEST = 21  # bits that a norm may lose: it is rounded up by less than a quarter, so that sums stay in 16 bits


class Packed(NamedTuple):
    """How norms are packed."""

    bits: int  # of a code
    shift: int  # last bits that a float32 loses
    base: int  # the float32 of code 0, as bits


def packed_for(norms: np.ndarray, n_ranks: int) -> Packed:
    """Norms that are 0 weigh nothing: they get any code."""
    bits, some = 32 - (n_ranks - 1).bit_length(), norms[norms > 0].astype(np.float32)
    if not len(some):
        return Packed(bits, 0, 0)
    low, high, shift = int(some.min().view(np.uint32)), int(some.max().view(np.uint32)), 0
    while ((high - low) >> shift) + 1 >= 1 << bits:
        shift += 1
    return Packed(bits, shift, low)


@njit(cache=True, inline="always")
def posting_of(rank, norm, bits, shift, base):
    """Of a norm, rounded to float32."""
    above = max(np.int64(np.float32(norm).view(np.uint32)) - base, 0)
    return np.uint32(rank << bits | (above + (1 << shift) - 1) >> shift)


@njit(cache=True, inline="always")
def rank_of(posting, bits):
    """Unsigned: numba would look for places that are counted from the end."""
    return np.uint64(posting) >> np.uint64(bits)


@njit(cache=True, inline="always")
def norm_of(posting, bits, shift, base):
    """float32: not below what it was."""
    code = posting & np.uint32((1 << bits) - 1)
    return np.uint32((code << np.uint32(shift)) + np.uint32(base)).view(np.float32)
