"""Which of many products reach their image's gate.

Products are compared as whole numbers, many of a narrow type in one step. A key, the bits of a float, all but the sign
turned where that is set, has the order of floats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.schemas.compiled import njit

BLOCK = 256  # captions compared together
ROOM = 16  # for so many of an image at first


class Hits(NamedTuple):
    """Products that reach a gate, image after image."""

    image: np.ndarray  # int32
    column: np.ndarray  # int32
    key: np.ndarray  # int16 or int32, of the image's largest product with the caption


@njit(nogil=True, cache=True)
def _most(row):
    """The largest number: its float is the largest, unless all are negative."""
    most = row[0]
    for j in range(row.shape[0]):
        most = max(most, row[j])
    return most


@njit(nogil=True, cache=True)
def _fold(bits, start, b, at, best):
    """Keys of the largest of an image's products in the columns from `at` on."""
    sign = 8 * bits.itemsize - 1
    others = (1 << sign) - 1
    best[:] = -(1 << sign)
    for q in range(start[b], start[b + 1]):
        some = bits[q, at : at + best.shape[0]]
        for j in range(best.shape[0]):
            best[j] = max(best[j], some[j] ^ ((some[j] >> sign) & others))


@njit(nogil=True, cache=True)
def _reaching(bits, start, gates, hits):
    """Fill the hits as far as there is room; how many there are. Most blocks have none, which one pass of vector code
    shows where the gate is positive."""
    n, room, folded = 0, hits.image.shape[0], np.empty(BLOCK, bits.dtype)
    for b in range(gates.shape[0]):
        gate = gates[b]
        for at in range(0, bits.shape[1], BLOCK):
            here = gate < 0
            for q in range(start[b], start[b + 1]):
                here |= _most(bits[q, at : at + BLOCK]) >= gate
            if here:
                best = folded[: min(BLOCK, bits.shape[1] - at)]
                _fold(bits, start, b, at, best)
                for j in range(best.shape[0]):
                    if best[j] >= gate:
                        if n < room:
                            hits.image[n], hits.column[n], hits.key[n] = b, at + j, best[j]
                        n += 1
    return n


def reaching(bits: np.ndarray, start: np.ndarray, gates: np.ndarray) -> Hits:
    """Of the bits of float products, int32 or of their upper halves int16 [queries, n], those of an image from
    start[image] on: what reaches its gate, a key [images]. Nothing is left out: if there is not room enough, it is
    found once more, with as much as is needed."""
    room = ROOM * len(gates)
    while True:
        hits = Hits(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, bits.dtype))
        n = _reaching(bits, start, gates, hits)
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
