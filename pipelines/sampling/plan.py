"""Which captions an image keeps, and how likely each was to be kept.

Every choice hangs on the pair alone: a pair's priority for a sample is a hash of (seed, image id, caption id,
sample), and a sample keeps the lowest priorities; between captions of the same relevance such a hash decides too. So
the result does not depend on blocks, workers or order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.sampling import kernel
from capgrade.pipelines.sampling.cells import cells_of, held
from capgrade.pipelines.sampling.kernel import Layout, Own, Room, State, Windows
from capgrade.pipelines.sampling.keys import ANY, UNIFORM, WINDOWS
from capgrade.pipelines.sampling.offering import offer
from capgrade.schemas.errors import InputError
from capgrade.schemas.threads import in_threads
from capgrade.schemas.ties import mix_all

MOST_MEASURES = 15  # of two bits each, beside two
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
    among: float = 1.0  # the share of the captions that windows are drawn from

    def windows(self, measure: int) -> np.ndarray:
        """float64 [n, 2]: lower and upper bound of each window of a measure, covering its whole range.

        Windows are half open; the first and last reach beyond the range, for values a rounding outside it.
        """
        low, high = self.low[measure], self.high[measure]
        starts = max(1, round((1 - self.width) / self.stride) + 1)
        shares = self.stride * np.arange(starts)
        # rounded, so that where a window ends and another begins is the same number
        lower, upper = (low + (high - low) * np.round(side, 12) for side in (shares, shares + self.width))
        if self.stride <= self.width:  # no rounding may leave a value between two windows
            upper[:-1] = np.maximum(upper[:-1], lower[1:])
        lower[0], upper[-1] = -np.inf, np.inf
        return np.stack([lower, upper], axis=1)


def reason_names(measures: Sequence[str]) -> list[str]:
    """Name of each bit of `reasons`, from the lowest: own, uniform, then top and window of each measure.

    InputError for more measures than 32 bits have room for.
    """
    if len(measures) > MOST_MEASURES:
        problem = f"{len(measures)} measures, where the reasons of a shard have bits for {MOST_MEASURES}"
        raise InputError(problem, remedy="name fewer, or make shards twice")
    return ["own", "uniform", *(f"{kind}_{name}" for name in measures for kind in ("top", "window"))]


def id_keys(ids: Sequence[str]) -> np.ndarray:
    """uint64 [len(ids)]: a stable hash of each id."""
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, np.uint64)


def image_seeds(seed: int, image_keys: np.ndarray) -> np.ndarray:
    """uint64 [images], from `id_keys`: with a caption's key added, the seed of the pair."""
    return mix_all(image_keys ^ id_keys([f"seed {seed}"])[0])


@dataclass(frozen=True)
class Kept:
    """The captions that a block of images keeps, image after image: compressed rows.

    ptr int64 [images + 1]; caption int64, reasons uint32 and weight float64 [kept], captions ascending within
    an image; values float32 [measures, kept]. `weight` is the inverse of the pair's probability of being kept.
    """

    ptr: np.ndarray
    caption: np.ndarray
    reasons: np.ndarray
    weight: np.ndarray
    values: np.ndarray


class Samples:
    """What each image of a block has kept of the captions seen so far.

    Captions come in chunks of rising rows; how they are cut does not show in the result.
    """

    def __init__(self, plan: Plan, image_keys: np.ndarray, own: Sequence[np.ndarray], measures: int) -> None:
        """`image_keys` uint64 [images], from `id_keys`; `own`: for each image, int64 rows of its own captions."""
        self.plan, self.images, self.measures = plan, len(image_keys), measures
        self._base = image_seeds(plan.seed, image_keys)
        windows = windows_of(np.stack([plan.windows(m) for m in range(measures)]))
        self._cells = cells_of(windows.lower[:, :-1], windows.upper[:, :-1])
        n_windows = windows.lower.shape[1] - 1
        rooms = [plan.uniform] + [plan.top] * measures + [plan.per_window] * (measures * n_windows)
        self._start = np.concatenate([[0], np.cumsum(rooms)])
        self._layout = Layout(self._start, key_numbers(windows))
        self._own_ptr = np.concatenate([[0], np.cumsum([len(o) for o in own])]).astype(np.int64)
        self._own = np.concatenate(own).astype(np.int64)
        self._own_image = np.repeat(np.arange(self.images), np.diff(self._own_ptr))
        room = int(self._start[-1])
        self.state: dict[str, np.ndarray] = {
            "heap": np.zeros((self.images, room, 3), np.uint64),
            "payload": np.zeros((self.images, room, measures), np.float32),
            "size": np.zeros((self.images, len(rooms)), np.int64),
            "counts": np.zeros((self.images, *self._cells.first.shape), np.int64),
            "own_values": np.full((len(self._own), measures), np.nan, np.float32),
        }
        self._limit = np.broadcast_to(
            np.where(np.array(rooms) > 0, ANY, np.uint64(0)), (self.images, len(rooms))
        ).copy()

    def offer(self, first: int, caption_keys: np.ndarray, values: np.ndarray) -> None:
        """The captions from row `first` on: keys uint64 [captions], values float32 [measures, images, captions].

        ValueError for a NaN, which is in no window and has no place among the most relevant.
        """
        at = self._own - first
        inside = (at >= 0) & (at < len(caption_keys))
        self.state["own_values"][inside] = values[:, self._own_image[inside], at[inside]].T
        offer(self._base, caption_keys, first, values, self._cells, self._layout, self._arrays)
        if self.state["counts"][:, :, 0].any():
            raise ValueError(f"NaN among the values of captions {first} to {first + len(caption_keys) - 1}")

    def kept(self, n_captions: int) -> Kept:
        """What is kept of `n_captions`, all that there are.

        The own captions and the `top` of each measure (ties by `Ties`) are kept with certainty, weight
        1. The other samples draw independently, so a pair is kept with probability 1 - prod(1 - n / N) over the
        samples it is eligible for, and sum(weight * x) / n_captions estimates the mean of x over all captions without
        bias (Horvitz and Thompson 1952).
        """
        state, plan = self.state, self.plan
        most = int(self._start[-1] + np.diff(self._own_ptr).max(initial=0))
        rows, bits = np.empty((self.images, most), np.int64), np.empty((self.images, most), np.uint32)
        values = np.empty((self.images, self.measures, most), np.float32)
        miss, kept = np.empty((self.images, most)), np.empty(self.images, np.int64)
        own = Own(self._own_ptr, self._own, state["own_values"])
        in_threads(
            kernel.finish, self.images,
            own, n_captions, self._cells, self.members, Room(plan.per_window, plan.uniform), self._start, self._arrays,
            rows, bits, values, miss, kept,
        )  # fmt: skip
        valid = np.arange(most) < kept[:, None]
        certain = (bits[valid] & np.uint32(certain_bits(self.measures))) > 0
        weight = 1 / (1 - np.where(certain, 0, miss[valid]))
        ptr = np.concatenate([[0], np.cumsum(kept)])
        return Kept(ptr, rows[valid], bits[valid], weight, values.transpose(1, 0, 2)[:, valid])

    @property
    def members(self) -> np.ndarray:
        """int64 [images, measures, windows]: how many of the captions offered each window holds."""
        return held(self._cells, self.state["counts"])

    @property
    def _arrays(self) -> State:
        state = self.state
        return State(state["heap"], state["payload"], state["size"], self._limit, state["counts"])


def key_numbers(windows: Windows) -> np.ndarray:
    """int64 [samples]: the number of the key that each sample draws by, 0 that of the uniform one; tops need none.

    If at most k windows hold a value, window w of measure m has key WINDOWS + m k + w mod k: windows that share a key
    have no value in common, so no pair needs it twice.
    """
    measures, n_windows = windows.lower.shape[0], windows.lower.shape[1] - 1
    reach = [np.searchsorted(lo[:-1], up[:-1]) for lo, up in zip(*windows, strict=True)]
    together = int((np.stack(reach) - np.arange(n_windows)).max())
    keys = WINDOWS + np.arange(measures)[:, None] * together + np.arange(n_windows) % together
    return np.concatenate([np.full(1 + measures, UNIFORM), keys.ravel()])


def windows_of(bounds: np.ndarray) -> Windows:
    """As the kernels take them, from float64 [measures, windows, 2]. A float32 reaches a bound when it reaches the
    float32 at or above."""
    beyond = np.full((len(bounds), 1), np.inf)
    lower, upper = (_at_or_above(np.hstack([bounds[:, :, side], beyond])) for side in (0, 1))
    return Windows(lower, upper)


def _at_or_above(bounds: np.ndarray) -> np.ndarray:
    near: np.ndarray = bounds.astype(np.float32)
    return np.where(near < bounds, np.nextafter(near, np.float32(np.inf)), near)


def keep(
    plan: Plan, image_keys: np.ndarray, caption_keys: np.ndarray, own: Sequence[np.ndarray], values: np.ndarray
) -> Kept:
    """Choose the captions that each image of a block keeps: `Samples` of all captions at once.

    values float32 [measures, images, n_captions], none of them NaN.
    """
    samples = Samples(plan, image_keys, own, len(values))
    samples.offer(0, caption_keys, values)
    return samples.kept(values.shape[2])


def certain_bits(measures: int) -> int:
    """The reasons that do not depend on chance: own, and the top of each measure."""
    return (1 << OWN) | sum(1 << (2 + 2 * m) for m in range(measures))
