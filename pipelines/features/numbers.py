"""Which float type the bytes of a feature file hold, where the file does not say it."""

from collections.abc import Sequence

import numpy as np

FLOATS = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
# Features stay below a few thousand; half of all float32 bytes that are no such numbers lie beyond
# it.
LARGEST_FEATURE = 1e6
# binary exponents, as standard deviation: features have 1 to 4, and 8 times that in a type too wide
WIDEST = 10.0


def size_of(dtype: str) -> int:
    return np.dtype(FLOATS[dtype]).itemsize


def plausible(values: np.ndarray) -> bool:
    """Are all numbers finite, and none absurdly large?"""
    return float(np.abs(values).max(initial=0)) <= LARGEST_FEATURE


def float_types(rows: Sequence[bytes], step: int) -> list[str]:
    """The float types in which the features of images, `step` bytes a region, are plausible; one
    where it is clear.

    A type is out if its size does not divide `step`, if in half of the images a number is not
    `plausible`, or if the magnitudes are scattered: bits of a narrower type read as a wider one
    are. It is out too if it only sees the parts of a wider type, the lower of which hold fewer
    different values. Of those left, a type whose magnitudes lie twice as close together as in any
    other is clear.
    """
    spreads: dict[str, float] = {}
    for dtype, code in FLOATS.items():
        if step % size_of(dtype):
            continue
        good = [values for row in rows if plausible(values := np.frombuffer(row, code))]
        if len(good) * 2 <= len(rows):
            continue
        sizes = np.abs(np.concatenate(good).astype(np.float64))
        spread = float(np.log2(sizes[sizes > 0]).std()) if sizes.any() else 0.0
        if spread <= WIDEST:
            spreads[dtype] = spread
    whole = b"".join(rows)
    found = [
        a
        for a in spreads
        if not any(_parts(whole, a, b) for b in spreads if size_of(b) > size_of(a))
    ]
    found.sort(key=spreads.__getitem__)
    clear = len(found) > 1 and spreads[found[0]] * 2 < spreads[found[1]]
    return found[:1] if clear else sorted(found, key=list(FLOATS).index)


def _parts(whole: bytes, narrow: str, wide: str) -> bool:
    """Do the lower parts of `wide` numbers, read as `narrow`, hold at most half as many values as
    the highest?"""
    words = np.frombuffer(whole, f"<u{size_of(narrow)}").reshape(
        -1, size_of(wide) // size_of(narrow)
    )
    *lower, highest = (len(np.unique(part)) for part in words.T)
    return min(lower) * 2 <= highest
