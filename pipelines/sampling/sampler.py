"""Which captions an image keeps, and how likely each was to be kept.

Each random sample keeps the pairs of the lowest keys, which are hashes of the seed and the pair's
ids; such a hash also decides between captions of the same relevance. So what is kept depends on the
pair and its values alone, not on blocks, workers or their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capgrade.measures.base import Fitted, own_pairs
from capgrade.measures.tops import highest_pairs
from capgrade.pipelines.sampling.keys import share_of_captions, uniform_sample
from capgrade.pipelines.sampling.plan import (
    OWN,
    TOP,
    UNIFORM,
    WINDOW,
    Plan,
    certain_bits,
    image_seeds,
)
from capgrade.pipelines.sampling.windows import cells_of, draw

MEMORY = 2**28  # bytes for the values and cells of the images that are sampled together


@dataclass(frozen=True)
class Kept:
    """The captions that a block of images keeps, image after image: compressed rows.

    ptr int64 [images + 1]; caption int64, reasons uint32 and weight float64 [kept], captions
    ascending within an image; values float32 [measures, kept], NaN where a measure of some pairs
    does not score. `weight` is the inverse of the pair's probability of being kept.
    """

    ptr: np.ndarray
    caption: np.ndarray
    reasons: np.ndarray
    weight: np.ndarray
    values: np.ndarray


class PairValues(NamedTuple):
    """A measure's values, float32: of `pairs`, int64 and rising, or of all pairs (None).

    The measure has no other values where it is `partial`.
    """

    pairs: np.ndarray | None
    values: np.ndarray  # [pairs] or [images, captions]
    partial: bool = False

    def of(self, pairs: np.ndarray) -> np.ndarray:
        """Those of some of the pairs; NaN where a partial measure has none."""
        if self.pairs is None:
            return self.values.ravel()[pairs]
        at = np.searchsorted(self.pairs, pairs)
        if not self.partial:
            return self.values[at]
        at = at.clip(max=len(self.pairs) - 1)
        return np.where(self.pairs[at] == pairs, self.values[at], np.float32(np.nan))


class Sampler:
    """Draws what each image of a captions table keeps.

    In a block of images, a pair is a number: the image's place x all captions + the caption's row.
    """

    def __init__(
        self,
        plan: Plan,
        measures: Sequence[Fitted],
        image_keys: np.ndarray,
        caption_keys: np.ndarray,
        ref_ptr: np.ndarray,
        refs: np.ndarray,
    ) -> None:
        """Take measures in the plan's order, and `id_keys` of all images and all captions.

        The own captions of image i are refs[ref_ptr[i] : ref_ptr[i + 1]].
        """
        self.plan, self.measures, self.cells = plan, measures, cells_of(plan)
        self.seeds, self.caption_keys = image_seeds(plan.seed, image_keys), caption_keys
        self.ref_ptr, self.refs, self.n = ref_ptr, refs, len(caption_keys)

    def sample(self, images: np.ndarray) -> Kept:
        """What these images, int64, keep. ValueError for a NaN, which no window or top can hold.

        Own captions, the `top` of each measure and what a partial one scores are certain: weight 1.
        The other samples draw independently, so a pair's chance is u + (1 - u) a (1 - prod(1 - n /
        N)): u of the uniform sample, a of the share, and n of N captions of each window that holds
        it, N counted inside the share, with this one. So sum(weight * x) / captions estimates the
        mean of x over all captions without bias (Horvitz and Thompson 1952).
        """
        size = max(1, MEMORY // (self.n * (4 + 6 * len(self.measures))))
        parts = [self._sample(images[at : at + size]) for at in range(0, len(images), size)]
        ptr = np.append(0, np.cumsum(np.concatenate([np.diff(kept.ptr) for kept in parts])))
        caption, reasons, weight, values = (
            np.concatenate([getattr(kept, name) for kept in parts], axis=-1)
            for name in ("caption", "reasons", "weight", "values")
        )
        return Kept(ptr, caption, reasons, weight, values)

    def _sample(self, images: np.ndarray) -> Kept:
        """As `sample`, of so few images that the values of all their pairs are in memory."""
        plan, n, seeds = self.plan, self.n, self.seeds[images]
        row, own = own_pairs(self.ref_ptr, self.refs, images)
        own = row * n + own
        uniform = uniform_sample(seeds, self.caption_keys, plan.uniform)
        share = None if plan.among == 1 else share_of_captions(seeds, self.caption_keys, plan.among)
        scored = {m: self._scored(m, images) for m in sorted(plan.partial)}
        wanted = [own, uniform, *([] if share is None else [share]), *scored.values()]
        some = np.unique(np.concatenate(wanted))
        read = [self._read(m, images, scored.get(m), some) for m in range(len(self.measures))]
        tops = []
        for m, one in enumerate(read):
            best = scored.get(m)
            if best is None:
                best = highest_pairs(one.values, plan.top, seeds, self.caption_keys)
            tops.append(best)
        cells, counts = self._find_cells(read, len(images), share)
        members = self.cells.members(counts, max(len(plan.windows(m)) for m in range(len(read))))
        begin = np.arange(len(images) + 1) * n
        listed, ptr = np.empty(0, np.int64), begin
        if share is not None:
            listed, ptr = share % n, np.searchsorted(share, begin)
        drawn, measure = draw(
            seeds,
            self.caption_keys,
            listed,
            ptr,
            cells,
            members,
            plan.per_window,
            self.cells.windows,
        )
        pairs = [own, uniform, *tops, drawn]
        bits = [np.full(len(own), OWN), np.full(len(uniform), UNIFORM)]
        bits += [np.full(len(top), TOP << 2 * m) for m, top in enumerate(tops)]
        bits.append(WINDOW << 2 * measure)
        kept, reasons = _merge_reasons(np.concatenate(pairs), np.concatenate(bits))
        values = np.stack([one.of(kept) for one in read])
        weight = self._weights(kept, reasons, values, members, share)
        ptr = np.searchsorted(kept, begin)
        return Kept(ptr, kept % n, reasons.astype(np.uint32), weight, values)

    def _scored(self, m: int, images: np.ndarray) -> np.ndarray:
        """The pairs that a partial measure scores, as numbers, rising."""
        found = self.measures[m].scored(images)
        assert found is not None
        return found

    def _read(
        self, m: int, images: np.ndarray, scored: np.ndarray | None, wanted: np.ndarray
    ) -> PairValues:
        """Values of measure m: of the pairs `wanted`, int64, rising, if they are enough, or of all.

        They are enough where windows draw from a share alone, no top is asked for, and the measure
        scores pair by pair. A measure with blocks gives a pair's value only by its block. Of a
        partial measure they are those of `scored`.
        """
        measure = self.measures[m]
        if scored is not None:
            values = measure.pairs(images[scored // self.n], scored % self.n)
            read = PairValues(scored, values, partial=True)
        elif self.plan.among == 1 or self.plan.top or measure.has_blocks:
            read = PairValues(None, measure.score(images))
        else:
            read = PairValues(wanted, measure.pairs(images[wanted // self.n], wanted % self.n))
        if read.values.size and np.isnan(read.values.min()):
            name = type(measure).__name__
            where = f"of images {images[0]} to {images[-1]}"
            raise ValueError(f"NaN among the values of measure {m + 1}, {name}, {where}")
        return read

    def _find_cells(
        self, read: Sequence[PairValues], images: int, share: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The cell of each value of the share's pairs, or of all: int16 [measures, pairs].

        Also how many values of an image are in each cell: int64 [images, measures, cells].
        """
        cells = np.empty((len(read), images * self.n if share is None else len(share)), np.int16)
        counts = np.zeros((images, len(read), self.cells.windows.shape[2]), np.int64)
        for m, one in enumerate(read):
            if one.partial:
                cells[m] = 0  # which no window holds
            elif share is None:
                self.cells.place(m, one.values, cells[m].reshape(images, self.n), counts[:, m])
            else:
                cells[m] = self.cells.of(m, one.of(share))
                np.add.at(counts[:, m], (share // self.n, cells[m]), 1)
        return cells, counts

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
        return 1 / np.where(reasons & certain_bits(len(values)) > 0, 1.0, chance)


def _merge_reasons(pairs: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once, rising, with all its reasons."""
    order = np.argsort(pairs, kind="stable")
    first = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    return pairs[order][first], np.bitwise_or.reduceat(bits[order], first)


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
    values: np.ndarray,
) -> Kept:
    """What a block of images keeps by known values, float32 [measures, images, captions], no NaN.

    `own` has for each image the rows of its own captions, int64.
    """
    ptr = np.append(0, np.cumsum([len(one) for one in own]))
    rows = np.concatenate(own).astype(np.int64)
    measures = [KnownValues(one) for one in values]
    sampler = Sampler(plan, measures, image_keys, caption_keys, ptr, rows)
    return sampler.sample(np.arange(len(image_keys)))
