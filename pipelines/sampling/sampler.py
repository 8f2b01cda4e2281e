"""Which captions an image keeps, and how likely each was to be kept.

Every choice hangs on the pair alone: a pair's priority for a sample is a hash of (seed, image id, caption id,
sample), and a sample keeps the lowest priorities; between captions of the same relevance such a hash decides too.

Blocks select, `pairs` decide. A measure's values of all pairs come from its fast blocks. Whatever their error leaves
open (the side of a window's edge, a place in the top) is settled by its definition, and every value that is kept is the
definition's. So the result depends neither on blocks, workers or order, nor on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.bits import mix_all
from capgrade.measures.base import Fitted, own_pairs
from capgrade.pipelines.sampling.cells import UNSURE, cells_of
from capgrade.pipelines.sampling.keys import drawn
from capgrade.pipelines.sampling.plan import OWN, TOP, UNIFORM, WINDOW, Plan, certain_bits, image_seeds
from capgrade.pipelines.sampling.tops import candidates
from capgrade.pipelines.sampling.windows import Offered, draw

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


class Sampler:
    """Samples of the images of a table. Within a block a pair is a number: place of the image x captions + caption."""

    def __init__(
        self, plan: Plan, measures: Sequence[Fitted], image_keys: np.ndarray, caption_keys: np.ndarray,
        ref_ptr: np.ndarray, refs: np.ndarray,
    ) -> None:  # fmt: skip
        """Fitted measures in the plan's order; keys uint64 of all images and captions, from `id_keys`; the own captions
        of image i are refs[ref_ptr[i] : ref_ptr[i + 1]]."""
        self.plan, self.measures, self.caption_keys = plan, measures, caption_keys
        self.image_seeds = image_seeds(plan.seed, image_keys)
        self.ref_ptr, self.refs = ref_ptr, refs
        self.cells = cells_of(plan, [measure.error for measure in measures])

    def sample(self, images: np.ndarray) -> Kept:
        """What these images, int64, keep.

        Own captions and the `top` of each measure are kept with certainty, weight 1. The other samples draw
        independently, so a pair is kept with probability u + (1 - u) a (1 - prod(1 - n / N)): u of the uniform sample,
        a of the share, n of the N captions of a window inside the share, this one counted. sum(weight * x) / captions
        estimates the mean of x over all captions without bias (Horvitz and Thompson 1952). ValueError for a NaN, which
        is in no window and has no place among the most relevant.
        """
        size = max(1, MEMORY // (len(self.caption_keys) * (4 + 6 * len(self.measures))))
        parts = [_Block(self, images[at : at + size]).sample() for at in range(0, len(images), size)]
        ptr = np.append(0, np.cumsum(np.concatenate([np.diff(kept.ptr) for kept in parts])))
        caption, reasons, weight, values = (
            np.concatenate([getattr(kept, name) for kept in parts], axis=-1)
            for name in ("caption", "reasons", "weight", "values")
        )
        return Kept(ptr, caption, reasons, weight, values)


class _Block:
    """Some images, whose values are looked at together."""

    def __init__(self, sampler: Sampler, images: np.ndarray) -> None:
        self.plan, self.measures, self.cells = sampler.plan, sampler.measures, sampler.cells
        self.images, self.seeds, self.keys = images, sampler.image_seeds[images], sampler.caption_keys
        self.n = len(sampler.caption_keys)
        row, own = own_pairs(sampler.ref_ptr, sampler.refs, images)
        among = 0.0 if self.plan.among == 1 else self.plan.among
        self.own = row * self.n + own
        self.uniform, self.share = drawn(self.seeds, self.keys, self.plan.uniform, among)
        self.known: list[tuple[np.ndarray, np.ndarray]] = []  # of each measure rising pairs, and their true values
        self.exact: dict[int, np.ndarray] = {}  # float32 [images, captions] of measures whose blocks have no error

    def sample(self) -> Kept:
        """As `Sampler.sample`."""
        whole, measures = self.plan.among == 1, len(self.measures)
        cells = np.empty((measures, len(self.images) * self.n if whole else len(self.share)), np.int16)
        counts = np.zeros((measures, len(self.images), self.cells.first.shape[1]), np.int64)
        tops = [self._measured(m, cells[m], counts[m]) for m in range(measures)]
        listed, images = self.share % self.n, np.arange(len(self.images) + 1)
        ptr = images * self.n if whole else np.searchsorted(self.share, images * self.n)
        members = self.cells.members(counts.transpose(1, 0, 2), max(len(self.plan.windows(m)) for m in range(measures)))
        offered = Offered(listed, ptr, cells, members)
        taken, measure = draw(self.seeds, self.keys, offered, self.plan.per_window, self.cells)
        pairs = [self.own, self.uniform, *tops, taken]
        bits = [np.full(len(self.own), OWN), np.full(len(self.uniform), UNIFORM)]
        bits += [np.full(len(top), TOP << 2 * m) for m, top in enumerate(tops)]
        kept, reasons = _together(np.concatenate(pairs), np.concatenate([*bits, WINDOW << 2 * measure]))
        values = np.stack([self._values(m, kept) for m in range(measures)])
        weight = self._weights(kept, reasons, values, members)
        row = np.searchsorted(kept, images * self.n)
        return Kept(row, kept % self.n, reasons.astype(np.uint32), weight, values)

    def _measured(self, m: int, cells: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """A measure's top. The cells of its values, of all pairs or of the share, are put into int16 `cells`, and
        counted, int64 [images, cells].

        Values of the share are the fast ones where the top took those of all pairs, else the definition's.
        """
        whole = self.plan.among == 1
        if whole or self.plan.top:
            values = self._block(m)
            top = self._top(m, values)
            offered, placed = (values, counts) if whole else (values.ravel()[None, self.share], counts[:1].copy())
            self.cells.place(m, offered, cells.reshape(offered.shape), placed)
            near = np.flatnonzero(cells == UNSURE) if any(self.measures[m].error) else self.own[:0]
            cells[near] = self.cells.of(m, self._settled(m, near if whole else self.share[near]))
        else:
            top, pairs = self.own[:0], np.unique(np.concatenate([self.own, self.uniform, self.share]))
            self.known.append((pairs, self._settled(m, pairs)))
            cells[:] = self.cells.of(m, self._values(m, self.share))
        if whole:
            np.add.at(counts, (near // self.n, cells[near]), 1)
        else:
            np.add.at(counts, (self.share // self.n, cells), 1)
        return top

    def _block(self, m: int) -> np.ndarray:
        """float32 [images, captions], within the measure's error."""
        values = self._without_nan(m, self.measures[m].score(self.images))
        if not any(self.measures[m].error):
            self.exact[m] = values
        return values

    def _top(self, m: int, values: np.ndarray) -> np.ndarray:
        """The pairs of the highest values of each image, of equal ones those of the lowest hashes; rising."""
        pairs = candidates(values, self.plan.top, self.measures[m].error)
        image, values = pairs // self.n, self._settled(m, pairs)
        order = np.lexsort((mix_all(self.seeds[image] + self.keys[pairs % self.n]), -values, image))
        top = np.sort(order[np.arange(len(order)) - np.searchsorted(image, image) < self.plan.top])
        self.known.append((pairs[top], values[top]))
        return pairs[top]

    def _settled(self, m: int, pairs: np.ndarray) -> np.ndarray:
        if m in self.exact:
            return self.exact[m].ravel()[pairs]
        return self._without_nan(m, self.measures[m].pairs(self.images[pairs // self.n], pairs % self.n))

    def _values(self, m: int, pairs: np.ndarray) -> np.ndarray:
        """As `_settled`, of rising pairs; what is known is not computed again."""
        known, values = self.known[m]
        at = np.searchsorted(known, pairs)
        new = np.append(known, -1)[at] != pairs
        out = np.append(values, np.float32(0))[at]
        out[new] = self._settled(m, pairs[new])
        return out

    def _without_nan(self, m: int, values: np.ndarray) -> np.ndarray:
        if len(values) and np.isnan(values.min()):
            images = f"{self.images[0]} to {self.images[-1]}"
            raise ValueError(
                f"NaN among the values of measure {m + 1}, {type(self.measures[m]).__name__}, of images {images}"
            )
        return values

    def _weights(self, pairs: np.ndarray, reasons: np.ndarray, values: np.ndarray, members: np.ndarray) -> np.ndarray:
        """float64: 1 / probability of being kept, as `Sampler.sample` says."""
        plan, image, missed = self.plan, pairs // self.n, np.ones(len(pairs))
        outside = np.zeros(len(pairs), bool) if plan.among == 1 else ~np.isin(pairs, self.share)
        for m, mine in enumerate(values):
            cell = self.cells.of(m, mine)
            for step in range(self.cells.together):
                window = self.cells.first[m, cell] + step
                held = window < self.cells.behind[m, cell]
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
class _Given(Fitted):
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
    sampler = Sampler(plan, [_Given(one) for one in values], image_keys, caption_keys, ptr, rows)
    return sampler.sample(np.arange(len(image_keys)))
