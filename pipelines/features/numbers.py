"""The float type of features, guessed from their bytes where the file does not say it."""

from collections.abc import Sequence

import numpy as np

FLOATS = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
# Features stay below a few thousand, while half of all random float32 bit patterns are larger.
LARGEST_FEATURE = 1e6
# The largest standard deviation of binary exponents. Features have 1 to 4, and 8 times that when
# their bytes are read as too wide a type.
WIDEST = 10.0


def bytes_of(dtype: str) -> int:
    return np.dtype(FLOATS[dtype]).itemsize


def is_plausible(values: np.ndarray) -> bool:
    """Whether all numbers are finite and none is beyond LARGEST_FEATURE."""
    return float(np.abs(values).max(initial=0)) <= LARGEST_FEATURE


def float_types(rows: Sequence[bytes], step: int) -> list[str]:
    """The float types that the features of images, `step` bytes a region, may have; only one where
    the bytes decide.

    A type is out if its size does not divide `step`, if half of the images fail `is_plausible`, if
    magnitudes are scattered, as bits of a narrower type are, or if it reads the parts of a wider
    type. Of the others, one is certain if its magnitudes lie twice as close as the next's.
    """
    spreads: dict[str, float] = {}
    for dtype, code in FLOATS.items():
        if step % bytes_of(dtype):
            continue
        good = [values for row in rows if is_plausible(values := np.frombuffer(row, code))]
        if len(good) * 2 <= len(rows):
            continue
        sizes = np.abs(np.concatenate(good).astype(np.float64))
        spread = float(np.log2(sizes[sizes > 0]).std()) if sizes.any() else 0.0
        if spread <= WIDEST:
            spreads[dtype] = spread
    content = b"".join(rows)
    types = [
        a
        for a in spreads
        if not any(_reads_parts(content, a, b) for b in spreads if bytes_of(b) > bytes_of(a))
    ]
    types.sort(key=spreads.__getitem__)
    certain = len(types) > 1 and spreads[types[0]] * 2 < spreads[types[1]]
    return types[:1] if certain else sorted(types, key=list(FLOATS).index)


def _reads_parts(content: bytes, narrow: str, wide: str) -> bool:
    """Whether type `narrow` reads the parts of `wide` numbers: then the lower parts have few
    different values, at most half as many as the highest."""
    words = np.frombuffer(content, f"<u{bytes_of(narrow)}")
    words = words.reshape(-1, bytes_of(wide) // bytes_of(narrow))
    *lower, highest = (len(np.unique(part)) for part in words.T)
    return min(lower) * 2 <= highest
