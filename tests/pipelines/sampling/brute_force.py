"""What the sampler keeps of an image, by brute force: every sample chosen from all values by
sorting."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.kernels import id_keys
from capgrade.pipelines.sampling.sampler import Plan

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


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
    plan: Plan, image_id: str, keys: np.ndarray, own: np.ndarray, values: np.ndarray
) -> Sample:
    """Of one image: `keys` of all captions, rows of its own ones, values float32 [measures,
    captions].

    Windows draw from the captions whose key of the share is in the share `plan.among`.
    """
    n, pair = values.shape[1], _mix(id_keys([image_id]) ^ id_keys([f"seed {plan.seed}"])) + keys
    share = _keys(pair, 1) <= np.uint64(min(int(plan.among * 2**64), _MASK))
    reasons, missed, uniform = np.zeros(n, np.int64), np.ones(n), min(1.0, plan.uniform / n)
    reasons[own] |= 1
    reasons[_lowest(_keys(pair, 0), plan.uniform)] |= 2
    together = max(_most_together(plan.windows(m)) for m in range(len(values)))
    for m, row in enumerate(values):
        reasons[np.lexsort((_mix(pair), -row))[: plan.top]] |= 4 << 2 * m
        # a value reaches an edge when it does so rounded to five places
        half = 5e-6 * (plan.high[m] - plan.low[m])
        for w, (lower, upper) in enumerate(plan.windows(m)):
            here = (row >= lower - half) & ((row < upper - half) | (upper == np.inf))
            inside = np.flatnonzero(here & share)
            drawn = _keys(pair[inside], 2 + m * together + w % together)
            reasons[inside[_lowest(drawn, plan.per_window)]] |= 8 << 2 * m
            size = len(inside) + ~share[here]  # with the caption itself, were it in the share
            missed[here] *= 1 - np.minimum(1, plan.per_window / size)
    kept = np.flatnonzero(reasons)
    certain = 1 | sum(4 << 2 * m for m in range(len(values)))
    chance = uniform + (1 - uniform) * plan.among * (1 - missed[kept])
    weight = 1 / np.where(reasons[kept] & certain, 1, chance)
    return Sample(kept, reasons[kept], weight)


def _lowest(keys: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(keys, kind="stable")[:count]


def _most_together(windows: np.ndarray) -> int:
    """How many of a measure's windows hold a value, at most."""
    return int(
        ((windows[:, 0] <= windows[:, :1]) & (windows[:, :1] < windows[:, 1])).sum(axis=1).max()
    )


def _keys(pair: np.ndarray, number: int) -> np.ndarray:
    """Key `number` of each pair, as `sampling.draws` says."""
    return _mix(pair + np.uint64((number + 1) * _GOLDEN & _MASK))


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser, uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
