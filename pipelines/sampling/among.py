"""Samples of an image without a value for every caption: windows of a random share of the captions.

A caption is in the image's share if the pair's key of the share is below a limit: each is with the same probability
`among`, independently of all others. The uniform sample is the same as where every caption is scored. So values are
needed of own captions, tops, the uniform sample and the share alone; one hash of each pair finds both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling import among_kernel as kernel
from capgrade.pipelines.sampling.keys import SHARE, pack
from capgrade.pipelines.sampling.plan import Kept, Samples, certain_bits
from capgrade.schemas.threads import in_threads

TOP, OF_UNIFORM, INSIDE = kernel.TOP, kernel.OF_UNIFORM, kernel.INSIDE
SIGMAS = 8  # of the number drawn, that there is room for at first


class Listed(NamedTuple):
    """The captions of each image that need values, ascending: compressed rows."""

    ptr: np.ndarray  # int64 [images + 1]
    rows: np.ndarray  # int64 [listed]
    marks: np.ndarray  # int64 [listed]: OF_UNIFORM, INSIDE the share, and TOP << measure


def limit_of(among: float) -> np.uint64:
    """The highest key of so large a share of all pairs."""
    return np.uint64(min(int(among * 2**64), 2**64 - 1))


class SomeSamples(Samples):
    """`Samples` of listed captions, all offered at once."""

    def listed(self, caption_keys: np.ndarray, tops: Sequence[np.ndarray]) -> Listed:
        """Of each image its own captions, the tops of each measure, int64 [images, k] each, its uniform sample and its
        share."""
        n, image = len(caption_keys), np.arange(self.images)
        sure = [(self._own_image, self._own, 0)]
        sure += [(np.repeat(image, rows.shape[1]), rows.ravel(), TOP << m) for m, rows in enumerate(tops)]
        cells = np.concatenate([owner * n + rows for owner, rows, _ in sure])
        found, at = np.unique(cells, return_inverse=True)
        marks = np.zeros(len(found), np.int64)
        np.bitwise_or.at(marks, at, np.repeat([mark for *_, mark in sure], [len(rows) for _, rows, _ in sure]))
        found, marks = _joined(*self._drawn(caption_keys), found, marks)
        return Listed(np.searchsorted(found, np.arange(self.images + 1) * n), found % n, marks)

    def _drawn(self, caption_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cells of the pairs inside the share and of those of the lowest uniform keys of each image, ascending, and
        their marks."""
        n, inside = len(caption_keys), limit_of(self.plan.among)
        size = min(self.plan.uniform, n)
        share = min(1.0, (size + SIGMAS * np.sqrt(size + 1) + SIGMAS) / n)
        while True:
            cells, marks, uniform = _low(self._base, caption_keys, limit_of(share), inside, size)
            if share == 1 or (uniform >= size).all():
                return cells, marks
            share = min(1.0, 2 * share)

    def offer_listed(self, caption_keys: np.ndarray, found: Listed, values: np.ndarray) -> None:
        """values float32 [measures, listed]; own captions are listed."""
        cells = np.repeat(np.arange(self.images), np.diff(found.ptr)) * len(caption_keys) + found.rows
        at = np.searchsorted(cells, self._own_image * len(caption_keys) + self._own)
        self.state["own_values"][:] = values[:, at].T
        self.offer_some(caption_keys, found, values)

    def marked(self, caption_keys: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> Listed:
        """Captions to offer to every sample that may take them: windows take those inside the share."""
        keys = kernel.keys_of(np.repeat(self._base, np.diff(ptr)) + caption_keys[rows], SHARE)
        inside = INSIDE * (keys <= limit_of(self.plan.among))
        return Listed(ptr, rows, inside | OF_UNIFORM | (TOP << self.measures) - TOP)

    def offer_some(self, caption_keys: np.ndarray, found: Listed, values: np.ndarray) -> None:
        """As `offer_listed`, whether own captions are listed or not. ValueError for a NaN, as `Samples.offer`."""
        if np.isnan(values).any():
            raise ValueError("NaN among the values of listed captions")
        in_threads(
            kernel.offer_listed, self.images,
            self._base, caption_keys[found.rows], *found, values, values.view(np.int32), self._cells, self._layout,
            self._arrays,
        )  # fmt: skip

    def kept_of(self, caption_keys: np.ndarray, n_captions: int | None = None) -> Kept:
        """As `Samples.kept`, of `n_captions` (None: of all that have keys).

        A pair beside tops and own captions is kept with probability u + (1 - u) a (1 - prod(1 - n / N)): u of the
        uniform sample, a of the share, N the captions of a window inside the share, this one counted. The others are
        inside independently of it, so sum(weight * x) is without bias (Horvitz and Thompson 1952).
        """
        n, plan = n_captions or len(caption_keys), self.plan
        found = self.kept(n)
        image = np.repeat(np.arange(self.images), np.diff(found.ptr))
        keys = kernel.keys_of(self._base[image] + caption_keys[found.caption], SHARE)
        outside = (keys > limit_of(plan.among)).astype(np.int64)
        members = self.members
        missed = np.ones(len(image))
        for m in range(self.measures):
            for w, (lower, upper) in enumerate(plan.windows(m)):
                here = (found.values[m] >= lower) & (found.values[m] < upper)
                size = members[image[here], m, w] + outside[here]
                missed[here] *= 1 - np.minimum(1, plan.per_window / size)
        uniform = min(1.0, plan.uniform / n)
        chance = uniform + (1 - uniform) * plan.among * (1 - missed)
        certain = found.reasons & np.uint32(certain_bits(self.measures)) > 0
        return replace(found, weight=1 / np.where(certain, 1.0, chance))


def _joined(
    cells: np.ndarray, marks: np.ndarray, others: np.ndarray, their: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cells in either list, both ascending, with the marks of both."""
    at = np.searchsorted(cells, others)
    known = at < len(cells)
    known[known] = cells[at[known]] == others[known]
    marks[at[known]] |= their[known]
    return np.insert(cells, at[~known], others[~known]), np.insert(marks, at[~known], their[~known])


def _low(
    base: np.ndarray, caption_keys: np.ndarray, uniform: np.uint64, share: np.uint64, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells of the pairs whose key of the share is at most its limit, and of those of the `size` lowest uniform keys
    of an image, if they are at most theirs; their marks; and how many uniform keys of each image are."""
    images, n, limits, bound = len(base), len(caption_keys), np.array([uniform, share]), np.empty(1, np.uint64)
    pack(limits, bound)
    reach = min(1.0, (float(uniform) + float(share)) / 2**64)
    room = min(n, int(reach * n + SIGMAS * np.sqrt(reach * n)) + SIGMAS)
    while True:
        rows, marks = np.empty((2, images, room), np.int64)
        counts, low = np.empty((2, images), np.int64)
        in_threads(kernel.low, images, base, caption_keys, limits, bound[0], size, rows, marks, counts, low)
        if counts.max(initial=0) <= room:
            break
        room = int(counts.max())
    ptr = np.concatenate([[0], np.cumsum(counts)])
    cells, their = np.empty((2, ptr[-1]), np.int64)
    in_threads(kernel.together, images, n, rows, marks, ptr, cells, their)
    return cells, their, low
