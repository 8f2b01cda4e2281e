"""Which captions an image keeps, and how likely each was to be kept.

Every choice hangs on the pair alone: a pair's priority for a sample is a hash of (seed, image id, caption id,
sample), and a sample keeps the lowest priorities. So the result does not depend on blocks, workers or order, and
samples of parts can be merged exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit, prange

ANY = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # the limit of a sample with room left
OWN = 0  # bits of `reasons`: own 0, uniform 1; measure m has top at 2 + 2 m and windows at 3 + 2 m


@dataclass(frozen=True)
class Plan:
    """What to keep of each image: `top` and windows by measure, a uniform sample, the image's own captions.

    `low` and `high` bound each measure; windows have `width` and `stride` as shares of that range.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    top: int
    width: float
    stride: float
    per_window: int
    uniform: int
    seed: int

    def windows(self, measure: int) -> np.ndarray:
        """float64 [n, 2]: lower and upper bound of each window of a measure, covering its whole range.

        Windows are half open; the first and last reach beyond the range, for values a rounding outside it.
        """
        low, high = self.low[measure], self.high[measure]
        starts = max(1, round((1 - self.width) / self.stride) + 1)
        lower = low + (high - low) * self.stride * np.arange(starts)
        upper = lower + (high - low) * self.width
        lower[0], upper[-1] = -np.inf, np.inf
        return np.stack([lower, upper], axis=1)


def reason_names(measures: Sequence[str]) -> list[str]:
    """Name of each bit of `reasons`, from the lowest: own, uniform, then top and window of each measure."""
    return ["own", "uniform", *(f"{kind}_{name}" for name in measures for kind in ("top", "window"))]


def id_keys(ids: Sequence[str]) -> np.ndarray:
    """uint64 [len(ids)]: a stable hash of each id."""
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, np.uint64)


@njit(cache=True)
def _mix(x):
    """splitmix64's finaliser: one uint64 to another, every bit depending on every bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def _priority(pair, sample):
    """Rank of a pair in a sample: uniform in 0..2^64, independent from sample to sample."""
    return _mix(pair + np.uint64(sample + 1) * np.uint64(0x9E3779B97F4A7C15))


@njit(cache=True)
def _descending(bits, row):
    """A key that sorts by falling value, then by rising row, from the bits of a float32 as int32."""
    rising = np.int64(bits) ^ ((np.int64(bits) >> np.int64(31)) & np.int64(0x7FFFFFFF))
    return (np.uint64(np.int64(0x7FFFFFFF) - rising) << np.uint64(32)) | np.uint64(row)


@njit(cache=True)
def _take(heap, at, room, size, key, row):
    """Put a key into the max-heap of the lowest `room` keys at heap[at : at + room], rows of (key, row), when it is
    not full or the key is lower than its highest; returns the highest key to beat from now on."""
    if size[0] < room:
        k = size[0]
        size[0] += 1
        while k > 0 and heap[at + (k - 1) // 2, 0] < key:
            heap[at + k] = heap[at + (k - 1) // 2]
            k = (k - 1) // 2
    else:
        k = 0
        while 2 * k + 1 < room:
            child = 2 * k + 1
            if child + 1 < room and heap[at + child + 1, 0] > heap[at + child, 0]:
                child += 1
            if heap[at + child, 0] <= key:
                break
            heap[at + k] = heap[at + child]
            k = child
    heap[at + k, 0], heap[at + k, 1] = key, np.uint64(row)
    return heap[at, 0] if size[0] == room else ANY


@njit(cache=True)
def _first_window(value, lower, upper, per_step, m):
    """The first of measure m's windows that hold a value; those that do are consecutive."""
    w = int((value - upper[m, 0]) * per_step[m]) - 1
    w = min(max(w, 0), lower.shape[1] - 1)
    while value >= upper[m, w]:
        w += 1
    return w


@njit(cache=True)
def _per_step(lower):
    """Windows a unit of each measure; 0 where there is nothing to skip."""
    out = np.zeros(lower.shape[0])
    if lower.shape[1] > 2:
        for m in range(lower.shape[0]):
            out[m] = 1.0 / (lower[m, 2] - lower[m, 1])
    return out


@njit(cache=True)
def _keep_one(
    image_key, caption_keys, own, values, value_bits, lower, upper, top, per_window, uniform, seed_key,
    out_row, out_bits, out_miss,
):  # fmt: skip
    """Fill one image's kept captions, their reasons and the probability that random samples miss them; how many."""
    n_measures, n = values.shape
    n_windows = lower.shape[1]
    per_step = _per_step(lower)
    # Sample 0 is the uniform one, then the tops, then the windows; each has a heap in one array. A key that does not
    # beat its sample's `limit`, nearly every one, costs one comparison.
    n_samples = 1 + n_measures * (1 + n_windows)
    start = np.empty(n_samples + 1, np.int64)
    start[0] = 0
    for x in range(n_samples):
        start[x + 1] = start[x] + (uniform if x == 0 else top if x <= n_measures else per_window)
    heap = np.empty((start[n_samples], 2), np.uint64)
    size, members = np.zeros((n_samples, 1), np.int64), np.zeros(n_samples, np.int64)
    limit = np.empty(n_samples, np.uint64)
    for x in range(n_samples):
        limit[x] = ANY if start[x + 1] > start[x] else np.uint64(0)
    base = _mix(image_key ^ seed_key)
    for c in range(n):
        pair = _mix(base + caption_keys[c])
        key = _priority(pair, 0)
        if key < limit[0]:
            limit[0] = _take(heap, start[0], uniform, size[0], key, c)
        for m in range(n_measures):
            key = _descending(value_bits[m, c], c)
            if key < limit[1 + m]:
                limit[1 + m] = _take(heap, start[1 + m], top, size[1 + m], key, c)
            value = values[m, c]
            w = _first_window(value, lower, upper, per_step, m)
            while w < n_windows and lower[m, w] <= value:
                x = 1 + n_measures + m * n_windows + w
                members[x] += 1
                key = _priority(pair, x)
                if key < limit[x]:
                    limit[x] = _take(heap, start[x], per_window, size[x], key, c)
                w += 1
    found, k = np.empty(out_row.shape[0] + len(own), np.int64), 0
    bits = np.empty(out_row.shape[0] + len(own), np.uint32)
    for c in own:
        found[k], bits[k], k = c, 1, k + 1
    for x in range(n_samples):
        m = x - 1 if x <= n_measures else (x - 1 - n_measures) // n_windows
        bit = 2 if x == 0 else (4 if x <= n_measures else 8) << (2 * m)
        for q in range(start[x], start[x] + size[x, 0]):
            found[k], bits[k], k = np.int64(heap[q, 1]), bit, k + 1
    kept = -1
    for x in np.argsort(found[:k], kind="mergesort"):
        if kept < 0 or out_row[kept] != found[x]:
            kept += 1
            out_row[kept], out_bits[kept] = found[x], 0
        out_bits[kept] |= bits[x]
    for x in range(kept + 1):
        miss = 1.0 - uniform / n if uniform < n else 0.0
        for m in range(n_measures):
            value = values[m, out_row[x]]
            w = _first_window(value, lower, upper, per_step, m)
            while w < n_windows and lower[m, w] <= value:
                miss *= 1.0 - min(1.0, per_window / members[1 + n_measures + m * n_windows + w])
                w += 1
        out_miss[x] = miss
    return kept + 1


@njit(parallel=True, cache=True)
def _keep_all(
    image_keys, caption_keys, ptr, own, values, value_bits, lower, upper, top, per_window, uniform, seed_key,
    rows, bits, miss, kept,
):  # fmt: skip
    for b in prange(image_keys.shape[0]):
        kept[b] = _keep_one(
            image_keys[b], caption_keys, own[ptr[b] : ptr[b + 1]], values[:, b], value_bits[:, b], lower, upper, top,
            per_window, uniform, seed_key, rows[b], bits[b], miss[b],
        )  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """The captions that a block of images keeps, image after image: compressed rows.

    ptr int64 [images + 1]; caption int64, reasons uint32 and weight float64 [kept], captions ascending within
    an image. `weight` is the inverse of the pair's probability of being kept.
    """

    ptr: np.ndarray
    caption: np.ndarray
    reasons: np.ndarray
    weight: np.ndarray


def keep(
    plan: Plan, image_keys: np.ndarray, caption_keys: np.ndarray, own: Sequence[np.ndarray], values: np.ndarray
) -> Kept:
    """Choose the captions that each image of a block keeps.

    Args:
        plan: what to keep.
        image_keys, caption_keys: uint64 [images] and [n_captions], from `id_keys`.
        own: for each image, int64 rows of its own captions.
        values: float32 [measures, images, n_captions], none of them NaN.

    The own captions and the `top` of each measure (ties go to the earlier caption) are kept with certainty, weight
    1. The other samples draw independently, so a pair is kept with probability 1 - prod(1 - n / N) over the samples
    it is eligible for, and sum(weight * x) / n_captions estimates the mean of x over all captions without bias
    (Horvitz and Thompson 1952).
    """
    measures, images, n = values.shape
    bounds = np.stack([plan.windows(m) for m in range(measures)])
    most = plan.uniform + measures * (plan.top + bounds.shape[1] * plan.per_window) + max(map(len, own), default=0)
    rows, bits = np.empty((images, most), np.int64), np.empty((images, most), np.uint32)
    miss, kept = np.empty((images, most)), np.empty(images, np.int64)
    own_ptr = np.concatenate([[0], np.cumsum([len(o) for o in own])]).astype(np.int64)
    seed_key = id_keys([f"seed {plan.seed}"])[0]
    _keep_all(
        image_keys, caption_keys, own_ptr, np.concatenate(own).astype(np.int64), values, values.view(np.int32),
        np.ascontiguousarray(bounds[:, :, 0]), np.ascontiguousarray(bounds[:, :, 1]), min(plan.top, n),
        plan.per_window, min(plan.uniform, n), seed_key, rows, bits, miss, kept,
    )  # fmt: skip
    valid = np.arange(most) < kept[:, None]
    certain = (bits[valid] & np.uint32(_certain_bits(measures))) > 0
    weight = 1 / (1 - np.where(certain, 0, miss[valid]))
    return Kept(np.concatenate([[0], np.cumsum(kept)]), rows[valid], bits[valid], weight)


def _certain_bits(measures: int) -> int:
    """The reasons that do not depend on chance: own, and the top of each measure."""
    return (1 << OWN) | sum(1 << (2 + 2 * m) for m in range(measures))
