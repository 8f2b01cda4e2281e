"""Bits of 64-bit numbers, for kernels: how many are set, and hashes of numbers and ids."""

import hashlib
from collections.abc import Sequence

import numpy as np

from capgrade.kernels import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: splitmix64's step
SHIFTS, FACTORS = (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of its finaliser


@njit(cache=True)
def ones(x):
    """Number of set bits of a uint64. Compilers know these steps, and make one instruction of
    them."""
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(cache=True)
def mix(x):
    """splitmix64's finaliser: one uint64 to another, every bit depending on every bit."""
    x = (x ^ (x >> np.uint64(SHIFTS[0]))) * np.uint64(FACTORS[0])
    x = (x ^ (x >> np.uint64(SHIFTS[1]))) * np.uint64(FACTORS[1])
    return x ^ (x >> np.uint64(SHIFTS[2]))


@njit(cache=True)
def mix_all(x):
    """`mix` of uint64 [n]."""
    out = np.empty_like(x)
    for k in range(x.shape[0]):
        out[k] = mix(x[k])
    return out


def id_keys(ids: Sequence[str]) -> np.ndarray:
    """uint64 [len(ids)]: a stable hash of each id."""
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    # A writable copy: numba would compile kernels once more for read-only arrays.
    return np.frombuffer(digests, np.uint64).copy()
