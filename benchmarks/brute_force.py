"""Sampled shards against brute force: values of all pairs by definition, every sample chosen from them by sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.measures import choose
from capgrade.pipelines.sampling.plan import Plan, id_keys
from capgrade.pipelines.shards import plan_of
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.shards import Shards

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def check(captions: Captions, shards: Shards, count: int) -> dict[str, Any]:
    """Random blocks of `count` images or more against brute force: captions, reasons and weights must be the same; by
    how much values differ from the definition's. InputError names the first image that differs.
    """
    made = shards.metadata["params"]
    params = ShardsParams.model_validate(made["shards"])
    chosen = choose(params.measures, MeasuresParams.model_validate(made["measures"]))
    fitted = {name: measure.fit(captions) for name, measure in chosen.items()}
    plan = plan_of(chosen.values(), params)
    keys, size, largest, checked = id_keys(captions.caption_ids), made["shards"]["block_images"], 0.0, 0
    blocks = np.random.default_rng(0).permutation(-(-captions.n_images // size))[: -(-count // size)]
    with progress("brute force", len(blocks)) as advance:
        for block in np.sort(blocks).tolist():
            images = np.arange(block * size, min((block + 1) * size, captions.n_images))
            stored = _stored(shards, images)
            for image in images.tolist():
                row, n = stored[image], captions.n_captions
                values = np.stack([fitted[name].pairs(np.full(n, image), np.arange(n)) for name in params.measures])
                own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]
                if not samples_of(plan, row["image_id"], keys, own, values).same_as(row):
                    problem = f"image '{row['image_id']}' keeps other captions than brute force"
                    raise InputError(problem, file=shards.folder)
                kept = np.array([row[name] for name in params.measures], np.float32)
                largest = max(largest, float(np.abs(kept - values[:, row["captions"]]).max()))
            checked += len(images)
            advance()
    return {"checked_images": checked, "max_abs_diff": largest}


def _stored(shards: Shards, images: np.ndarray) -> dict[int, dict[str, Any]]:
    """Rows of a block of images, by image."""
    found = {}
    for batch in shards.batches():
        if batch["image"][0].as_py() <= images[-1] and batch["image"][-1].as_py() >= images[0]:
            found.update({row["image"]: row for row in batch.to_pylist()})
    return found


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


def samples_of(plan: Plan, image_id: str, keys: np.ndarray, own: np.ndarray, values: np.ndarray) -> Sample:
    """Of one image: `keys` of all captions, rows of its own ones, values float32 [measures, captions].

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
        half = 5e-6 * (plan.high[m] - plan.low[m])  # a value reaches an edge when it does so rounded to five places
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
    return int(((windows[:, 0] <= windows[:, :1]) & (windows[:, :1] < windows[:, 1])).sum(axis=1).max())


def _keys(pair: np.ndarray, number: int) -> np.ndarray:
    """Key `number` of each pair, as `sampling.keys` says."""
    word = _mix(pair + _times_golden(number // 4 + 1))
    lane = word >> np.uint64(16 * (number % 4)) & np.uint64(0x7FFF)
    return lane << np.uint64(49) | _mix(word + _times_golden(number + 1)) >> np.uint64(15)


def _times_golden(count: int) -> np.uint64:
    return np.uint64(count * _GOLDEN & _MASK)


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser, uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
