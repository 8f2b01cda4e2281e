"""Which captions an image keeps, and how likely each was to be kept.

Each random sample keeps the pairs of the lowest keys, which are hashes of the seed and the pair's
ids; such a hash also decides between captions of the same relevance. So what is kept depends on the
pair and its values alone, not on blocks, workers or their order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capgrade.kernels import id_keys, mix_all
from capgrade.measures.base import Fitted, Measure, own_pairs
from capgrade.measures.tops import highest_pairs
from capgrade.pipelines.sampling.draws import cells_of, draw, share_of_captions, uniform_sample
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import PairLists, scored_reason
from capgrade.schemas.progress import part_of_work

MOST_MEASURES = 15  # each takes two of the 32 bits of `reasons`; own and uniform take two
# Bits of `reasons`; measure m has TOP and WINDOW shifted by 2 m.
OWN, UNIFORM, TOP, WINDOW = 1, 2, 4, 8
CERTAIN = 0x55555555  # own and all of TOP, every other bit: the reasons that are not by chance
MEMORY = 2**28  # bytes for the values and cells of the images that are sampled together


@dataclass(frozen=True)
class Plan:
    """What to keep of each image: own captions, `top` and windows by measure, a uniform sample.

    `low` and `high` bound each measure; windows have `width` and `stride` as shares of that range.
    Of a measure that is `partial` every scored pair is kept, so that nothing is left for windows.
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
    partial: frozenset[int] = frozenset()  # numbers of the measures that score some pairs alone

    def windows(self, measure: int) -> np.ndarray:
        """float64 [n, 2]: lower and upper bounds of the windows that cover a measure's whole range.

        Windows are half open; the first and last reach beyond the range, for values a rounding
        outside it.
        """
        if measure in self.partial:
            return np.empty((0, 2))
        low, high = self.low[measure], self.high[measure]
        starts = max(1, round((1 - self.width) / self.stride) + 1)
        shares = self.stride * np.arange(starts)
        # Rounded, so that where one window ends and another begins is the same number.
        sides = np.round([shares, shares + self.width], 12)
        lower, upper = low + (high - low) * sides
        if self.stride <= self.width:  # no rounding may leave a value between two windows
            upper[:-1] = np.maximum(upper[:-1], lower[1:])
        lower[0], upper[-1] = -np.inf, np.inf
        return np.stack([lower, upper], axis=1)


def plan_of(
    measures: Iterable[Measure], params: ShardsParams, partial: frozenset[int] = frozenset()
) -> Plan:
    """What to keep of each image, by the measures' ranges; `partial` as of `Plan`."""
    low, high = zip(*((measure.low, measure.high) for measure in measures), strict=True)
    windows = params.windows
    return Plan(
        low,
        high,
        params.top,
        windows.width,
        windows.stride,
        windows.per_window,
        params.uniform,
        params.seed,
        1.0 if windows.among == "all" else windows.among,
        partial,
    )


def reason_names(measures: Sequence[str], partial: Collection[int] = ()) -> list[str]:
    """Name of each bit of `reasons`, from the lowest.

    They are own, uniform, then top and window of each measure; of a `partial` one, by its number,
    `scored` takes the place of top. InputError for more measures than 32 bits have room for.
    """
    if len(measures) > MOST_MEASURES:
        room = f"the reasons of a shard have bits for {MOST_MEASURES}"
        problem = f"{len(measures)} measures, where {room}"
        raise InputError(problem, remedy="name fewer, or make shards twice")
    names = ["own", "uniform"]
    for m, name in enumerate(measures):
        names += [scored_reason(name) if m in partial else f"top_{name}", f"window_{name}"]
    return names


class _PairValues(NamedTuple):
    """A measure's values, float32: of `pairs`, int64 and rising, or of all pairs (None).

    The measure has no other values where it is `partial`.
    """

    pairs: np.ndarray | None
    values: np.ndarray  # [pairs] or [images, captions]
    partial: bool

    def of(self, pairs: np.ndarray) -> np.ndarray:
        """Those of some of the pairs; NaN where a partial measure has none."""
        if self.pairs is None:
            return self.values.ravel()[pairs]
        at = np.searchsorted(self.pairs, pairs)
        if not self.partial:
            return self.values[at]
        if not len(self.pairs):
            return np.full(len(pairs), np.nan, np.float32)
        at = at.clip(max=len(self.pairs) - 1)
        return np.where(self.pairs[at] == pairs, self.values[at], np.float32(np.nan))


class Sampler:
    """Draws what each image of a captions table keeps.

    In a block of images, a pair is a number: the image's place x all captions + the caption's row.
    """

    def __init__(
        self,
        plan: Plan,
        measures: Mapping[str, Fitted],
        image_keys: np.ndarray,
        caption_keys: np.ndarray,
        ref_ptr: np.ndarray,
        refs: np.ndarray,
    ) -> None:
        """Take measures in the plan's order, and `id_keys` of all images and all captions.

        The own captions of image i are refs[ref_ptr[i] : ref_ptr[i + 1]].
        """
        self.plan, self.names, self.measures = plan, list(measures), list(measures.values())
        windows = [plan.windows(m) for m in range(len(measures))]
        self.cells = cells_of(windows, np.subtract(plan.high, plan.low))
        # With a caption's key added, the seed of the pair.
        self.seeds = mix_all(image_keys ^ id_keys([f"seed {plan.seed}"])[0])
        self.caption_keys, self.n = caption_keys, len(caption_keys)
        self.ref_ptr, self.refs = ref_ptr, refs

    def sample(self, images: np.ndarray) -> PairLists:
        """What these images, int64, keep: captions int64, ascending, and weights float64.
        ValueError for a NaN, which no window or top can hold.

        Own captions, the `top` of each measure and what a partial one scores are certain: weight 1.
        The other samples draw independently, so a pair's chance is u + (1 - u) a (1 - prod(1 - n /
        N)): u of the uniform sample, a of the share, and n of N captions of each window that holds
        it, N counted inside the share, with this one. So sum(weight * x) / captions estimates the
        mean of x over all captions without bias (Horvitz and Thompson 1952).
        """
        size = max(1, MEMORY // (self.n * (4 + 6 * len(self.measures))))
        parts = [self._sample(images[at : at + size]) for at in range(0, len(images), size)]
        sizes, caption, reasons, weight, values = (
            np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)
        )
        named = dict(zip(self.names, values, strict=True))
        return PairLists(np.append(0, np.cumsum(sizes)), caption, weight, named, reasons)

    def _sample(self, images: np.ndarray) -> tuple[np.ndarray, ...]:
        """As `sample`, of so few images that the values of all their pairs are in memory.

        Returns how many each image keeps, int64, and captions, reasons, weights, and values,
        float32 [measures, kept].
        """
        plan, n, seeds = self.plan, self.n, self.seeds[images]
        row, own = own_pairs(self.ref_ptr, self.refs, images)
        own = row * n + own
        uniform = uniform_sample(seeds, self.caption_keys, plan.uniform)
        share = None
        if plan.among < 1:
            share = share_of_captions(seeds, self.caption_keys, plan.among)
        read = self._read(images, [own, uniform] if share is None else [own, uniform, share])
        pairs, bits = [own, uniform], [np.full(len(own), OWN), np.full(len(uniform), UNIFORM)]
        for m, one in enumerate(read):
            top = one.pairs
            if top is None or not one.partial:
                top = highest_pairs(one.values, plan.top, seeds, self.caption_keys)
            pairs.append(top)
            bits.append(np.full(len(top), TOP << 2 * m))
        cells, members = self._find_cells(read, len(images), share)
        drawn, measure = draw(
            seeds, self.caption_keys, share, cells, members, plan.per_window, self.cells.windows
        )
        every = np.concatenate([*pairs, drawn])
        order = np.argsort(every, kind="stable")
        first = np.flatnonzero(np.diff(every[order], prepend=-1))
        kept = every[order][first]  # each pair once, rising, with all its reasons
        reasons = np.bitwise_or.reduceat(
            np.concatenate([*bits, WINDOW << 2 * measure])[order], first
        )
        values = np.stack([one.of(kept) for one in read])
        weight = self._weights(kept, reasons, values, members, share)
        sizes = np.bincount(kept // n, minlength=len(images))
        return sizes, kept % n, reasons.astype(np.uint32), weight, values

    def _read(self, images: np.ndarray, wanted: list[np.ndarray]) -> list[_PairValues]:
        """Values of each measure: of some pairs, int64, if they are enough, or of all.

        Those `wanted`, and what partial measures score, are enough where windows draw from a share
        alone, no top is asked for, and the measure scores pair by pair. A measure with blocks gives
        a pair's value only by its block. A partial measure has the values of what it scores.
        """
        scored = [measure.scored(images) for measure in self.measures]
        some = np.unique(np.concatenate([*wanted, *(one for one in scored if one is not None)]))
        read = []
        for m, (measure, pairs) in enumerate(zip(self.measures, scored, strict=True)):
            partial = pairs is not None
            if not partial and self.plan.among < 1 and not self.plan.top and not measure.has_blocks:
                pairs = some
            with part_of_work(1, len(self.measures)):
                if pairs is None:
                    values = measure.score(images)
                else:
                    values = measure.pairs(images[pairs // self.n], pairs % self.n)
            if values.size and np.isnan(values.min()):
                name = type(measure).__name__
                where = f"of images {images[0]} to {images[-1]}"
                raise ValueError(f"NaN among the values of measure {m + 1}, {name}, {where}")
            read.append(_PairValues(pairs, values, partial))
        return read

    def _find_cells(
        self, read: Sequence[_PairValues], images: int, share: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The cell of each value of the share's pairs, or of all: int16 [measures, pairs].

        Also how many values of an image each window holds: int64 [images, measures, windows].
        """
        windows = self.cells.windows
        cells = np.empty((len(read), images * self.n if share is None else len(share)), np.int16)
        counts = np.zeros((images, len(read), windows.shape[2]), np.int64)  # of each cell
        for m, one in enumerate(read):
            if one.partial:
                cells[m] = 0  # which no window holds
            elif share is None:
                self.cells.place(m, one.values, cells[m].reshape(images, self.n), counts[:, m])
            else:
                cells[m] = self.cells.of(m, one.of(share))
                np.add.at(counts[:, m], (share // self.n, cells[m]), 1)
        members = np.zeros((images, len(read), windows.max() + 1), np.int64)
        for m, place, cell in np.argwhere(windows >= 0):
            members[:, m, windows[m, place, cell]] += counts[:, m, cell]
        return cells, members

    def _weights(
        self,
        pairs: np.ndarray,
        reasons: np.ndarray,
        values: np.ndarray,
        members: np.ndarray,
        share: np.ndarray | None,
    ) -> np.ndarray:
        """float64: 1 / probability of being kept, as `sample` says."""
        plan, image = self.plan, pairs // self.n
        missed = np.ones(len(pairs))  # the probability that no window draws the pair
        # A pair outside the share counts as one more member, as if the share had it.
        outside = np.zeros(len(pairs), bool) if share is None else ~np.isin(pairs, share)
        for m, mine in enumerate(values):
            for window in self.cells.windows[m][:, self.cells.of(m, mine)]:
                inside = window >= 0
                size = members[image[inside], m, window[inside]] + outside[inside]
                missed[inside] *= 1 - np.minimum(1, plan.per_window / size)
        uniform = min(1.0, plan.uniform / self.n)
        chance = uniform + (1 - uniform) * plan.among * (1 - missed)
        return 1 / np.where(reasons & CERTAIN > 0, 1.0, chance)


@dataclass(frozen=True)
class KnownValues(Fitted):
    """A fitted measure of values that are known already, float32 [images, captions]."""

    values: np.ndarray

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.values[images, captions]

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        return self.values[images] if captions is None else self.values[images][:, captions]


def keep(
    plan: Plan,
    image_keys: np.ndarray,
    caption_keys: np.ndarray,
    own: Sequence[np.ndarray],
    values: Mapping[str, np.ndarray],
) -> PairLists:
    """What a block of images keeps by each measure's known values, float32 [images, captions], no
    NaN.

    `own` has for each image the rows of its own captions, int64.
    """
    ptr = np.append(0, np.cumsum([len(one) for one in own]))
    rows = np.concatenate(own).astype(np.int64)
    measures = {name: KnownValues(one) for name, one in values.items()}
    sampler = Sampler(plan, measures, image_keys, caption_keys, ptr, rows)
    return sampler.sample(np.arange(len(image_keys)))
