"""How own captions stand to all others in a dense matrix: exact figures, in two passes over the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.schemas.files import numpy_type
from capgrade.schemas.relevance import Relevance

CELLS = 2**22  # of a matrix at a time
HALF = 16  # bits of a float32 that one pass counts


@dataclass(frozen=True)
class OwnAndOther:
    """Medians of own captions (as they are stored; with the caption left out of the references), of others the median
    and 99th percentile; NaN where no value is known. Then of each caption, own left out where there is such a value:
    `above`, the mean share of other images that are less relevant to it than its own image (ties half), and `rivals`,
    int64 [captions with a value], how many other images are as relevant as its own or more."""

    own: float
    left_out: float
    median: float
    percentile_99: float
    above: float
    rivals: np.ndarray

    @property
    def equalled(self) -> float:
        """The share of captions with a rival."""
        return _of(np.mean, self.rivals > 0)

    @property
    def images(self) -> float:
        """The median number of rivals of the captions that have one."""
        return _of(np.median, self.rivals[self.rivals > 0])


def own_and_other(relevance: Relevance, owner: np.ndarray, own: np.ndarray, left_out: np.ndarray | None) -> OwnAndOther:
    """Of a dense file, images x captions; owner int [n_captions], own and left_out float32 [n_captions], the latter NaN
    where an image has no other caption, and None for a measure that has no such values."""
    stored = numpy_type(relevance.schema.field("relevance").type.value_type)
    compared = (own if left_out is None else left_out).astype(stored).astype(np.float32)  # rounded as others are
    lower, equal = np.zeros((2, len(owner)), np.int64)
    counts = np.zeros(2**HALF, np.int64)
    for values, other in _blocks(relevance, owner):
        lower += ((values < compared) & other).sum(axis=0)
        equal += ((values == compared) & other).sum(axis=0)
        counts += np.bincount(_keys(values[other]) >> HALF, minlength=2**HALF)
    others = len(relevance.image_ids) - 1
    known = np.isfinite(compared) & (others > 0)
    above, rivals = ((lower + equal / 2) / max(others, 1))[known], (others - lower)[known]
    alone = np.array([]) if left_out is None else left_out[np.isfinite(left_out)]
    median, high = _quantiles(relevance, owner, counts, (0.5, 0.99))
    return OwnAndOther(_of(np.median, own), _of(np.median, alone), median, high, _of(np.mean, above), rivals)


def _of(figure: Callable[[np.ndarray], np.floating], values: np.ndarray) -> float:
    return float(figure(values)) if len(values) else math.nan


def _blocks(relevance: Relevance, owner: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Values float32 [some images, captions] and which of them are of other captions."""
    images, step = np.arange(len(relevance.image_ids)), max(1, CELLS // len(owner))
    for first in range(0, len(images), step):
        some = images[first : first + step]
        yield relevance.rows(some), owner != some[:, None]


def _keys(values: np.ndarray) -> np.ndarray:
    """uint32 in the order of the float32 values."""
    bits = (values + np.float32(0)).view(np.uint32)  # no -0
    return np.where(bits >> 31, ~bits, bits | np.uint32(2**31))


def _value(key: int) -> float:
    """The float32 value of a key."""
    bits = key - 2**31 if key >= 2**31 else ~key & 0xFFFFFFFF
    return float(np.array(bits, np.uint32).view(np.float32))


def _quantiles(
    relevance: Relevance, owner: np.ndarray, counts: np.ndarray, shares: Sequence[float]
) -> tuple[float, ...]:
    """As numpy.quantile of all other captions; `counts` are of the upper half of their keys, lower halves are counted
    only where a wanted value lies."""
    ends = np.cumsum(counts)
    n = int(ends[-1])
    if not n:
        return tuple(math.nan for _ in shares)
    places = np.array([share * (n - 1) for share in shares])
    ranks = np.unique([np.floor(places), np.ceil(places)]).astype(np.int64)
    upper = np.searchsorted(ends, ranks, side="right")
    lower = np.zeros((len(ranks), 2**HALF), np.int64)
    for values, other in _blocks(relevance, owner):
        keys = _keys(values[other])
        for row, key in enumerate(upper):
            lower[row] += np.bincount(keys[keys >> HALF == key] & (2**HALF - 1), minlength=2**HALF)
    left = ranks - (ends - counts)[upper]  # ranks within their upper half
    low = [int(np.searchsorted(np.cumsum(row), k, side="right")) for row, k in zip(lower, left, strict=True)]
    at_ranks = [_value(int(key) << HALF | k) for key, k in zip(upper, low, strict=True)]
    return tuple(np.interp(places, ranks, at_ranks).tolist())
