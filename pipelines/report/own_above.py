"""How own pairs stand to all other pairs of a dense matrix: exact figures, in two passes over the file."""

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
    """Medians of own pairs (as they are stored; with the caption left out of the references), of other pairs the median
    and 99th percentile. Then means over captions, own left out where there is such a value: the share of other images
    that are less relevant to a caption than its own image (ties half), and the share of captions with another image
    that is as relevant as their own or more; `images` is the median number of such images, over these captions. NaN
    where no value is known."""

    own: float
    left_out: float
    median: float
    percentile_99: float
    above: float
    equalled: float
    images: float


def own_and_other(relevance: Relevance, owner: np.ndarray, own: np.ndarray, left_out: np.ndarray | None) -> OwnAndOther:
    """Of a dense file, images x captions; owner int [n_captions], own and left_out float32 [n_captions], the latter NaN
    where an image has no other caption, and None for a measure that has no such values."""
    stored = numpy_type(relevance.schema.field("relevance").type.value_type)
    compared = (own if left_out is None else left_out).astype(stored).astype(np.float32)  # rounded as other pairs are
    lower, equal = np.zeros((2, len(owner)), np.int64)
    counts = np.zeros(2**HALF, np.int64)
    for values, other in _blocks(relevance, owner):
        lower += ((values < compared) & other).sum(axis=0)
        equal += ((values == compared) & other).sum(axis=0)
        counts += np.bincount(_keys(values[other]) >> HALF, minlength=2**HALF)
    others = len(relevance.image_ids) - 1
    known = np.isfinite(compared) & (others > 0)
    above, matched = ((lower + equal / 2) / max(others, 1))[known], (others - lower)[known]
    alone = np.array([]) if left_out is None else left_out[np.isfinite(left_out)]
    median, high = _quantiles(relevance, owner, counts, (0.5, 0.99))
    return OwnAndOther(
        _of(np.median, own),
        _of(np.median, alone),
        median,
        high,
        _of(np.mean, above),
        _of(np.mean, matched > 0),
        _of(np.median, matched[matched > 0]),
    )


def _of(figure: Callable[[np.ndarray], np.floating], values: np.ndarray) -> float:
    return float(figure(values)) if len(values) else math.nan


def _blocks(relevance: Relevance, owner: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Values float32 [some images, captions] and which of them are other pairs."""
    images, step = np.arange(len(relevance.image_ids)), max(1, CELLS // len(owner))
    for first in range(0, len(images), step):
        some = images[first : first + step]
        yield relevance.rows(some), owner != some[:, None]


def _keys(values: np.ndarray) -> np.ndarray:
    """uint32 in the order of the float32 values."""
    bits = (values + np.float32(0)).view(np.uint32)  # no -0
    return np.where(bits >> 31, ~bits, bits | np.uint32(2**31))


def _quantiles(
    relevance: Relevance, owner: np.ndarray, counts: np.ndarray, shares: Sequence[float]
) -> tuple[float, ...]:
    """As numpy.quantile of all other pairs; `counts` are of the upper half of their keys, lower halves are counted only
    where a wanted value lies."""
    ends = np.cumsum(counts)
    if not ends[-1]:
        return tuple(np.nan for _ in shares)
    places = [share * (int(ends[-1]) - 1) for share in shares]
    ranks = {rank for place in places for rank in (int(place), min(int(place) + 1, int(ends[-1]) - 1))}
    upper = {rank: int(np.searchsorted(ends, rank, side="right")) for rank in ranks}
    lower = {key: np.zeros(2**HALF, np.int64) for key in upper.values()}
    for values, other in _blocks(relevance, owner):
        keys = _keys(values[other])
        for key, found in lower.items():
            found += np.bincount(keys[keys >> HALF == key] & (2**HALF - 1), minlength=2**HALF)
    value = {}
    for rank, key in upper.items():
        before = int(ends[key] - counts[key])
        low = int(np.searchsorted(np.cumsum(lower[key]), rank - before, side="right"))
        value[rank] = _value(key << HALF | low)
    return tuple(_between(value[int(p)], value[min(int(p) + 1, int(ends[-1]) - 1)], p - int(p)) for p in places)


def _value(key: int) -> float:
    bits = key - 2**31 if key >= 2**31 else ~key & 0xFFFFFFFF
    return float(np.array(bits, np.uint32).view(np.float32))


def _between(low: float, high: float, part: float) -> float:
    return low + (high - low) * part
