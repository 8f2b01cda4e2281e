"""Which captions an image keeps, and how likely each was to be kept.

Every choice hangs on the pair alone: a pair's priority for a sample is a hash of (seed, image id, caption id,
sample), and a sample keeps the lowest priorities; between captions of the same relevance such a hash decides too.
So the result depends neither on blocks, workers or order, as a measure's values do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capgrade.measures.base import Fitted, own_pairs
from capgrade.pipelines.sampling.cells import cells_of
from capgrade.pipelines.sampling.keys import share_of_captions, uniform_sample
from capgrade.pipelines.sampling.plan import OWN, TOP, UNIFORM, WINDOW, Plan, certain_bits, image_seeds
from capgrade.pipelines.sampling.tops import highest_pairs
from capgrade.pipelines.sampling.windows import draw

MEMORY = 2**28  # bytes of the blocks of images whose values are looked at together


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


class PairValues(NamedTuple):
    """Values of a measure, float32: of `pairs`, int64, rising, or of all where that is None."""

    pairs: np.ndarray | None
    values: np.ndarray  # [pairs] or [images, captions]

    def of(self, pairs: np.ndarray) -> np.ndarray:
        """Those of some of the pairs."""
        return self.values.ravel()[pairs if self.pairs is None else np.searchsorted(self.pairs, pairs)]


class Sampler:
    """Samples of the images of a table. Within a block a pair is a number: place of the image x captions + caption."""

    def __init__(
        self, plan: Plan, measures: Sequence[Fitted], image_keys: np.ndarray, caption_keys: np.ndarray,
        ref_ptr: np.ndarray, refs: np.ndarray,
    ) -> None:  # fmt: skip
        """Fitted measures in the plan's order; keys uint64 of all images and captions, from `id_keys`; the own captions
        of image i are refs[ref_ptr[i] : ref_ptr[i + 1]]."""
        self.plan, self.measures, self.cells = plan, measures, cells_of(plan)
        self.seeds, self.caption_keys = image_seeds(plan.seed, image_keys), caption_keys
        self.ref_ptr, self.refs, self.n = ref_ptr, refs, len(caption_keys)

    def sample(self, images: np.ndarray) -> Kept:
        """What these images, int64, keep.

        Own captions and the `top` of each measure are kept with certainty, weight 1. The other samples draw
        independently, so a pair is kept with probability u + (1 - u) a (1 - prod(1 - n / N)): u of the uniform sample,
        a of the share, n of the N captions of a window inside the share, this one counted. sum(weight * x) / captions
        estimates the mean of x over all captions without bias (Horvitz and Thompson 1952). ValueError for a NaN, which
        is in no window and has no place among the most relevant.
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
        """As `sample`, of images whose values are looked at together."""
        plan, n, seeds = self.plan, self.n, self.seeds[images]
        row, own = own_pairs(self.ref_ptr, self.refs, images)
        own = row * n + own
        uniform = uniform_sample(seeds, self.caption_keys, plan.uniform)
        share = None if plan.among == 1 else share_of_captions(seeds, self.caption_keys, plan.among)
        wanted = own if share is None else np.unique(np.concatenate([own, uniform, share]))
        read = [self._read(m, images, wanted) for m in range(len(self.measures))]
        tops = [highest_pairs(one.values, plan.top, seeds, self.caption_keys) if plan.top else own[:0] for one in read]
        cells, counts = self._placed(read, len(images), share)
        members = self.cells.members(counts, max(len(plan.windows(m)) for m in range(len(read))))
        begin = np.arange(len(images) + 1) * n
        listed, ptr = (own[:0], begin) if share is None else (share % n, np.searchsorted(share, begin))
        taken, measure = draw(seeds, self.caption_keys, listed, ptr, cells, members, plan.per_window, self.cells)
        pairs = [own, uniform, *tops, taken]
        bits = [np.full(len(own), OWN), np.full(len(uniform), UNIFORM)]
        bits += [np.full(len(top), TOP << 2 * m) for m, top in enumerate(tops)]
        kept, reasons = _together(np.concatenate(pairs), np.concatenate([*bits, WINDOW << 2 * measure]))
        values = np.stack([one.of(kept) for one in read])
        weight = self._weights(kept, reasons, values, members, share)
        ptr = np.searchsorted(kept, begin)
        return Kept(ptr, kept % n, reasons.astype(np.uint32), weight, values)

    def _read(self, m: int, images: np.ndarray, wanted: np.ndarray) -> PairValues:
        """A measure's values of all pairs. Of those `wanted` alone, int64, rising, where no others are looked at and
        the measure scores pair by pair anyway: else the value of a pair would not be that of its block."""
        measure = self.measures[m]
        if self.plan.among == 1 or self.plan.top or measure.has_blocks:
            found = PairValues(None, measure.score(images))
        else:
            found = PairValues(wanted, measure.pairs(images[wanted // self.n], wanted % self.n))
        if found.values.size and np.isnan(found.values.min()):
            name = type(measure).__name__
            raise ValueError(f"NaN among the values of measure {m + 1}, {name}, of images {images[0]} to {images[-1]}")
        return found

    def _placed(
        self, read: Sequence[PairValues], images: int, share: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The cells of the values of the share's pairs, or of all, int16 [measures, pairs], and how many of an image's
        are in each, int64 [images, measures, cells]."""
        cells = np.empty((len(read), images * self.n if share is None else len(share)), np.int16)
        counts = np.zeros((images, len(read), self.cells.windows.shape[2]), np.int64)
        for m, one in enumerate(read):
            if share is None:
                self.cells.place(m, one.values, cells[m].reshape(images, self.n), counts[:, m])
            else:
                cells[m] = self.cells.of(m, one.of(share))
                np.add.at(counts[:, m], (share // self.n, cells[m]), 1)
        return cells, counts

    def _weights(
        self, pairs: np.ndarray, reasons: np.ndarray, values: np.ndarray, members: np.ndarray, share: np.ndarray | None
    ) -> np.ndarray:
        """float64: 1 / probability of being kept, as `sample` says."""
        plan, image, missed = self.plan, pairs // self.n, np.ones(len(pairs))
        outside = np.zeros(len(pairs), bool) if share is None else ~np.isin(pairs, share)
        for m, mine in enumerate(values):
            for window in self.cells.windows[m][:, self.cells.of(m, mine)]:
                held = window >= 0
                size = members[image[held], m, window[held]] + outside[held]
                missed[held] *= 1 - np.minimum(1, plan.per_window / size)
        uniform = min(1.0, plan.uniform / self.n)
        chance = uniform + (1 - uniform) * plan.among * (1 - missed)
        return 1 / np.where(reasons & certain_bits(len(values)) > 0, 1.0, chance)


def _together(pairs: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once, rising, with all its reasons."""
    order = np.argsort(pairs, kind="stable")
    first = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    return pairs[order][first], np.bitwise_or.reduceat(bits[order], first)


@dataclass(frozen=True)
class KnownValues(Fitted):
    """Values that are there, float32 [images, captions], as a fitted measure."""

    values: np.ndarray

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.values[images, captions]

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        return self.values[images] if captions is None else self.values[images][:, captions]


def keep(
    plan: Plan, image_keys: np.ndarray, caption_keys: np.ndarray, own: Sequence[np.ndarray], values: np.ndarray
) -> Kept:
    """Samples of a block of images from values that are there, float32 [measures, images, captions], none of them NaN.
    `own`: for each image, int64 rows of its own captions."""
    ptr, rows = np.append(0, np.cumsum([len(one) for one in own])), np.concatenate(own).astype(np.int64)
    sampler = Sampler(plan, [KnownValues(one) for one in values], image_keys, caption_keys, ptr, rows)
    return sampler.sample(np.arange(len(image_keys)))
