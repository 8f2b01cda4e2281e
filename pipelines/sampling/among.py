"""Samples of an image without a value for every caption: windows of a random share of the captions.

A caption is in the image's share if the pair's key of the share is below a limit: each is with the same probability
`among`, independently of all others. The uniform sample is the same as where every caption is scored. So values are
needed of own captions, tops, the uniform sample and the share alone; one hash of each pair finds both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling import among_kernel as kernel
from capgrade.pipelines.sampling.keys import pack
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

    def listed(self, caption_keys: np.ndarray, tops: np.ndarray) -> Listed:
        """Of each image its own captions, the tops of each measure, int64 [measures, images, k], its uniform sample and
        its share."""
        n, inside = len(caption_keys), limit_of(self.plan.among)
        size = min(self.plan.uniform, n)
        share = min(1.0, (size + SIGMAS * np.sqrt(size + 1) + SIGMAS) / n)
        while True:
            found, uniform = self._low(caption_keys, limit_of(share), inside, size, tops)
            if share == 1 or (uniform >= size).all():
                return found
            share = min(1.0, 2 * share)

    def _low(
        self, caption_keys: np.ndarray, uniform: np.uint64, share: np.uint64, size: int, tops: np.ndarray
    ) -> tuple[Listed, np.ndarray]:
        """What is listed if no uniform key is above a limit, and how many of those of each image are not."""
        n, limits, bound = len(caption_keys), np.array([uniform, share]), np.empty(1, np.uint64)
        pack(limits, bound)
        reach = min(1.0, (float(uniform) + float(share)) / 2**64)
        room = min(n, int(reach * n + SIGMAS * np.sqrt(reach * n)) + SIGMAS)
        sure = int(np.diff(self._own_ptr).max(initial=0)) + len(tops) * tops.shape[2]
        while True:
            rows, marks = np.empty((2, self.images, room + sure), np.int64)
            counts, drawn, low = np.empty((3, self.images), np.int64)
            in_threads(
                kernel.low, self.images,
                self._base, caption_keys, limits, bound[0], size, room, self._own_ptr, self._own, tops,
                rows, marks, counts, drawn, low,
            )  # fmt: skip
            if drawn.max(initial=0) <= room:
                break
            room = int(drawn.max())
        ptr = np.concatenate([[0], np.cumsum(counts)])
        found = Listed(ptr, *np.empty((2, ptr[-1]), np.int64))
        in_threads(kernel.together, self.images, rows, marks, *found)
        return found, low

    def offer_listed(self, caption_keys: np.ndarray, found: Listed, values: np.ndarray) -> None:
        """values float32 [measures, listed]; own captions are listed. ValueError for a NaN, as `Samples.offer`."""
        for b in range(self.images):
            first, own = found.ptr[b], slice(self._own_ptr[b], self._own_ptr[b + 1])
            at = first + np.searchsorted(found.rows[first : found.ptr[b + 1]], self._own[own])
            self.state["own_values"][own] = values[:, at].T
        if np.isnan(values).any():
            raise ValueError("NaN among the values of listed captions")
        in_threads(
            kernel.offer_listed, self.images,
            self._base, caption_keys, *found, values, values.view(np.int32), self._cells, self._layout,
            self._arrays,
        )  # fmt: skip

    def kept_of(self, caption_keys: np.ndarray) -> Kept:
        """As `Samples.kept`, of all captions.

        A pair beside tops and own captions is kept with probability u + (1 - u) a (1 - prod(1 - n / N)): u of the
        uniform sample, a of the share, N the captions of a window inside the share, this one counted. The others are
        inside independently of it, so sum(weight * x) is without bias (Horvitz and Thompson 1952).
        """
        n, plan = len(caption_keys), self.plan
        found = self.kept(n)
        missed = np.empty(len(found.caption))
        in_threads(
            kernel.missed, self.images,
            self._base, caption_keys, found.ptr, found.caption, found.values, self.members, self._cells,
            plan.per_window, limit_of(plan.among), missed,
        )  # fmt: skip
        uniform = min(1.0, plan.uniform / n)
        chance = uniform + (1 - uniform) * plan.among * (1 - missed)
        certain = found.reasons & np.uint32(certain_bits(self.measures)) > 0
        return replace(found, weight=1 / np.where(certain, 1.0, chance))
