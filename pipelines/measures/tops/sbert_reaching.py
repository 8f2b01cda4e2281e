"""Which of many products reach their image's gate.

Products are compared as whole numbers, many of a narrow type in one step. A key, the bits of a float, all but the sign
turned where that is set, has the order of floats; those of floats above 0 are their bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.schemas.compiled import njit
from capgrade.schemas.lanes import LANES, at_least, lowest_bit

BLOCK = 128  # captions compared together
ROOM = 16  # for so many of an image at first


class Hits(NamedTuple):
    """Products that reach a gate, image after image."""

    image: np.ndarray  # int32
    column: np.ndarray  # int32
    key: np.ndarray  # int16 or int32, of the image's largest product with the caption


@njit(nogil=True, cache=True)
def _largest(bits, start, b, at, best):
    """The largest of an image's products in the columns from `at` on, as far as there are any; 0 for negative ones."""
    best[:] = 0
    for q in range(start[b], start[b + 1]):
        some = bits[q, at : at + BLOCK]
        for j in range(some.shape[0]):
            best[j] = max(best[j], some[j])


@njit(nogil=True, cache=True)
def _keys(bits, start, b, at, best):
    """Their keys, those of negative ones too."""
    sign = 8 * bits.itemsize - 1
    others = (1 << sign) - 1
    best[:] = -(1 << sign)
    for q in range(start[b], start[b + 1]):
        some = bits[q, at : at + BLOCK]
        for j in range(some.shape[0]):
            best[j] = max(best[j], some[j] ^ ((some[j] >> sign) & others))


@njit(nogil=True, cache=True)
def _reaching(bits, start, gates, best, unsigned, image, column, key):
    """Fill the hits as far as there is room; how many there are. `best` [BLOCK] of the type of the bits, and the same
    memory `unsigned`: where a gate is above 0, its order is theirs."""
    n, room = 0, image.shape[0]
    for b in range(gates.shape[0]):
        gate = gates[b]
        for at in range(0, bits.shape[1], BLOCK):
            if gate > 0:
                _largest(bits, start, b, at, best)
                for first in range(0, BLOCK, LANES):
                    reached = at_least(unsigned, first, unsigned.dtype.type(gate))
                    while reached:
                        j = first + lowest_bit(reached)
                        reached &= reached - np.uint64(1)
                        if n < room:
                            image[n], column[n], key[n] = b, at + j, best[j]
                        n += 1
            else:
                _keys(bits, start, b, at, best)
                for j in range(min(BLOCK, bits.shape[1] - at)):
                    if best[j] >= gate:
                        if n < room:
                            image[n], column[n], key[n] = b, at + j, best[j]
                        n += 1
    return n


def reaching(bits: np.ndarray, start: np.ndarray, gates: np.ndarray) -> Hits:
    """Of the bits of float products, int32 or of their upper halves int16 [queries, n], those of an image from
    start[image] on: what reaches its gate, a key [images]. Nothing is left out: if there is not room enough, it is
    found once more, with as much as is needed."""
    room, best = ROOM * len(gates), np.empty(BLOCK, bits.dtype)
    while True:
        hits = Hits(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, bits.dtype))
        n = _reaching(bits, start, gates, best, best.view(f"u{best.itemsize}"), *hits)
        if n <= room:
            return Hits(*(column[:n].copy() for column in hits))
        room = n


def keys_below(gates: np.ndarray, dtype: type) -> np.ndarray:
    """Keys of float64 gates, or of the next floats below: of all floats of that width that are no less, no key is
    lower."""
    lower = np.nextafter(gates.astype(np.float32), np.float32(-np.inf)).view(np.int32)
    keys = lower ^ ((lower >> 31) & np.int32(2**31 - 1))
    return (keys >> (32 - 8 * np.dtype(dtype).itemsize)).astype(dtype)


def floats_of(keys: np.ndarray) -> np.ndarray:
    """float32 of the same order and, of int16 keys, the value of the bfloat16."""
    sign = 8 * keys.itemsize - 1
    bits = (keys ^ ((keys >> sign) & keys.dtype.type(2**sign - 1))).astype(np.int32)
    return (bits << (31 - sign)).view(np.float32)
