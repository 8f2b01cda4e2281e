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
def _offer(keys, rows, at, room, size, key, row):
    """Keep the lowest keys in the max-heap at keys[at : at + room]; returns its new size."""
    if size < room:
        k = size
        size += 1
        while k > 0 and keys[at + (k - 1) // 2] < key:
            keys[at + k], rows[at + k] = keys[at + (k - 1) // 2], rows[at + (k - 1) // 2]
            k = (k - 1) // 2
    elif room == 0 or key >= keys[at]:
        return size
    else:
        k = 0
        while 2 * k + 1 < room:
            child = 2 * k + 1
            if child + 1 < room and keys[at + child + 1] > keys[at + child]:
                child += 1
            if keys[at + child] <= key:
                break
            keys[at + k], rows[at + k] = keys[at + child], rows[at + child]
            k = child
    keys[at + k], rows[at + k] = key, row
    return size


@njit(cache=True)
def _first_window(value, lower, upper, m):
    """The first of measure m's windows that hold a value; those that do are consecutive."""
    n = lower.shape[1]
    step = lower[m, 2] - lower[m, 1] if n > 2 else np.inf
    guess = int((value - upper[m, 0]) / step) - 1
    w = min(max(guess, 0), n - 1)
    while value >= upper[m, w]:
        w += 1
    return w


@njit(cache=True)
def _keep_one(
    image_key, caption_keys, own, values, value_bits, lower, upper, top, per_window, uniform, seed_key,
    out_row, out_bits, out_miss,
):  # fmt: skip
    """Fill one image's kept captions, their reasons and the probability that random samples miss them; how many."""
    n_measures, n = values.shape
    n_windows = lower.shape[1]
    # One heap a sample, in one array: the uniform sample, the tops, the windows.
    windows_at = uniform + n_measures * top
    room = windows_at + n_measures * n_windows * per_window
    keys, rows = np.empty(room, np.uint64), np.empty(room, np.int64)
    size_u, size_t = 0, np.zeros(n_measures, np.int64)
    size_w, members = np.zeros(n_measures * n_windows, np.int64), np.zeros(n_measures * n_windows, np.int64)
    for c in range(n):
        pair = _mix(_mix(image_key ^ seed_key) + caption_keys[c])
        size_u = _offer(keys, rows, 0, uniform, size_u, _priority(pair, 0), c)
        for m in range(n_measures):
            value = values[m, c]
            key = _descending(value_bits[m, c], c)
            size_t[m] = _offer(keys, rows, uniform + m * top, top, size_t[m], key, c)
            w = _first_window(value, lower, upper, m)
            while w < n_windows and lower[m, w] <= value:
                x = m * n_windows + w
                members[x] += 1
                at = windows_at + x * per_window
                size_w[x] = _offer(keys, rows, at, per_window, size_w[x], _priority(pair, 1 + x), c)
                w += 1
    found, k = np.empty(out_row.shape[0] * 2, np.int64), 0
    bits = np.empty(out_row.shape[0] * 2, np.uint32)
    for c in own:
        found[k], bits[k], k = c, 1, k + 1
    for x in range(size_u):
        found[k], bits[k], k = rows[x], 2, k + 1
    for m in range(n_measures):
        for x in range(size_t[m]):
            found[k], bits[k], k = rows[uniform + m * top + x], 4 << (2 * m), k + 1
        for w in range(m * n_windows, (m + 1) * n_windows):
            for x in range(size_w[w]):
                found[k], bits[k], k = rows[windows_at + w * per_window + x], 8 << (2 * m), k + 1
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
            w = _first_window(value, lower, upper, m)
            while w < n_windows and lower[m, w] <= value:
                miss *= 1.0 - min(1.0, per_window / members[m * n_windows + w])
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
