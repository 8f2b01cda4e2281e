"""The captions that an image keeps, chosen by sorting whole rows: what the samplers must agree with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.pipelines.sampling.plan import Plan, id_keys
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import ShardsParams

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Sample:
    """Kept captions int64 [kept] ascending, reasons int64 and weight float64."""

    captions: np.ndarray
    reasons: np.ndarray
    weight: np.ndarray

    def same_as(self, row: dict[str, Any]) -> bool:
        """Is a row of a shard this?"""
        return (
            np.array_equal(self.captions, row["captions"])
            and np.array_equal(self.reasons, row["reasons"])
            and np.allclose(self.weight, row["weight"], rtol=1e-6)
        )


def samples_of(
    captions: Captions,
    keys: np.ndarray,
    image: int,
    values: np.ndarray,
    params: ShardsParams,
    bounds: Sequence[tuple[float, float]],
) -> Sample:
    """Of one image; `keys` of all captions, `values` float32 [measures, captions], low and high of each measure.

    Windows draw from the captions whose hash with the image is in the share `among`.
    """
    low, high = zip(*bounds, strict=True)
    windows = params.windows
    plan = Plan(low, high, params.top, windows.width, windows.stride, windows.per_window, params.uniform, params.seed)
    n, among = values.shape[1], 1.0 if windows.among == "all" else windows.among
    base = _mix(id_keys([captions.image_ids[image]]) ^ id_keys([f"seed {params.seed}"]))
    pair = _mix(base + keys)
    share = pair <= np.uint64(min(int(among * 2**64), _MASK))
    reasons, missed, uniform = np.zeros(n, np.int64), np.ones(n), min(1.0, params.uniform / n)
    reasons[captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]] |= 1
    reasons[_lowest(_mix(pair + _salt(0)), params.uniform)] |= 2
    at = 1 + len(values)
    for m, row in enumerate(values):
        reasons[_highest(row, params.top)] |= 4 << 2 * m
        for lower, upper in plan.windows(m):
            here = (row >= lower) & (row < upper)
            inside = np.flatnonzero(here & share)
            reasons[inside[_lowest(_mix(pair[inside] + _salt(at)), windows.per_window)]] |= 8 << 2 * m
            size = len(inside) + ~share[here]  # with the caption itself, were it in the share
            missed[here] *= 1 - np.minimum(1, windows.per_window / size)
            at += 1
    kept = np.flatnonzero(reasons)
    certain = 1 | sum(4 << 2 * m for m in range(len(values)))
    chance = uniform + (1 - uniform) * among * (1 - missed[kept])
    weight = 1 / np.where(reasons[kept] & certain, 1, chance)
    return Sample(kept, reasons[kept], weight)


def _lowest(keys: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(keys, kind="stable")[:count]


def _highest(values: np.ndarray, count: int) -> np.ndarray:
    """Rows of the highest values, the earlier of equal ones."""
    if not 0 < count < len(values):
        return np.arange(len(values) if count else 0)
    able = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return able[np.argsort(-values[able], kind="stable")[:count]]


def _salt(sample: int) -> np.uint64:
    return np.uint64((sample + 1) * 0x9E3779B97F4A7C15 & _MASK)


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser, uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
