"""The captions of highest weighted sum of measures to each image, as all pairs have them to the last bit.

This is the threshold algorithm (Fagin, Lotem and Naor 2003), many captions at a time. Parts name their best captions.
A caption that no part names has of each part at most the last value that this part named. The weights are not negative,
and rounding never turns a larger number into the smaller one, so each product and each sum of all pairs, in their
order, is at most the same of these last values: that sum, the threshold, needs no slack for its own rounding. An image
is done when `k` of its named captions are above the threshold.

Of the other images one part is scored for all captions; if parts have no bound, they are, and of all images. A caption
then has a threshold of its own, of its values of these parts and the last ones of the others. Those whose threshold
reaches the k-th value of the named ones are all that may be among the best.

The last bits of a Sentence-BERT cosine hang on the images that are multiplied together. So all this is done with values
that are known to `slack`. What may then be among the best is multiplied as all pairs do it, with all images asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.pipelines.measures.base import CHUNK, own_pairs
from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.tops.every import Tops, every_pair, sorted_tops
from capgrade.pipelines.measures.tops.listed import listed_values
from capgrade.pipelines.measures.tops.mixture_kernel import reaching
from capgrade.pipelines.measures.tops.named import NAMED, blocks, named, naming
from capgrade.pipelines.measures.tops.of_parts import OfParts
from capgrade.pipelines.measures.tops.sbert_kernel import choose, kth
from capgrade.schemas.ties import Ties

SHARE = 8  # images of which more than 1 / SHARE of the captions may be among the best are scored in full


@dataclass(frozen=True)
class MixtureTops(OfParts):
    """Finds tops of a fitted mixture; from all pairs where none of its parts is `naming`.

    Captions of some images are listed as cells, image x n_captions + row, rising.
    """

    ties: Ties
    bounded: tuple[bool, ...]  # of each part, whether it has a bound

    @property
    def n_captions(self) -> int:
        return len(self.ties.captions)

    @cached_property
    def weights(self) -> list[float]:
        """Of each part, as float32 has it."""
        with np.errstate(over="ignore"):
            return [float(np.float32(self.fitted.weights[name])) for name in self.fitted.parts]

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`."""
        names = naming(self.finders, self.bounded, self.weights, self.n_captions, k)
        if not any(names) or not len(images):
            return every_pair(self.fitted, images, k, self.ties)
        cells, counts = self._candidates(images, k, names)
        ptr, rows = self._split(cells, len(images))
        values = self.fitted.summed(listed_values(find, images, ptr, rows) for find in self.finders)
        best, values = choose(ptr, rows, values, k, self.ties.images[images], self.ties.captions)
        found = sorted_tops(images, best, values, counts, k, self.ties)
        failed = np.flatnonzero(np.diff(ptr) == 0)
        if len(failed):
            for mine, theirs in zip(found, every_pair(self.fitted, images[failed], k, self.ties), strict=True):
                mine[failed] = theirs
        return found

    def _candidates(self, images: np.ndarray, k: int, names: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
        """Cells that may be among the `k` best, none of images that are to be scored in full; and how many values were
        computed for each image, int64 [images]."""
        last, cells = self._named(images, k, names)
        counts = np.diff(self._split(cells, len(images))[0])
        least, cells = self._narrowed(images, cells, k)
        going = np.flatnonzero(~(least > self.fitted.summed(last)))
        if len(going):
            some, reached = self._reached(images[going], least[going], [one[going] for one in last])
            kept = going[some]
            reached = np.union1d(reached, self._of(kept, cells))
            counts[kept] += np.diff(self._split(reached, len(kept))[0])
            near = self._narrowed(images[kept], reached, k)[1] if len(kept) else reached
            image, row = np.divmod(near, self.n_captions)
            done = cells[~np.isin(cells // self.n_captions, going)]
            cells = np.sort(np.concatenate([done, kept[image] * self.n_captions + row]))
        return cells, counts

    def _named(self, images: np.ndarray, k: int, names: Sequence[bool]) -> tuple[list[np.ndarray], np.ndarray]:
        """What no value of other captions is above, float32 [images] of each part; and cells of the captions that any
        part names, and of own ones, as no bound is on values without themselves."""
        image, own = own_pairs(self.fitted.ref_ptr, self.fitted.refs, images)
        last, cells = [], [image * self.n_captions + own]
        for find, some, w in zip(self.finders, names, self.weights, strict=True):
            if some:
                one = named(find, images, NAMED * k)
                cells.append(one.image * self.n_captions + one.rows)
                last.append(one.last)
            else:
                last.append(np.full(len(images), np.inf if w > 0 else 0, np.float32))
        return last, np.unique(np.concatenate(cells))

    def _narrowed(self, images: np.ndarray, cells: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """What the `k`-th value of each image's cells is at least, float32 [images]; and cells that may reach it."""
        ptr, rows = self._split(cells, len(images))
        values = self.fitted.summed(listed_values(find, images, ptr, rows) for find in self.finders)
        least = kth(ptr, values, k)
        return least, cells[values >= np.repeat(least, np.diff(ptr))]

    def _reached(
        self, images: np.ndarray, least: np.ndarray, last: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the images of which not too many captions may have a value of `least` or more; and of these
        images, cells of those captions, but for some that a part has named."""
        scored = self._scored(last)
        place = np.array([scored.index(p) if p in scored else -1 for p in range(len(last))])
        weights, rest = np.array(self.weights, np.float32), np.stack(last)
        walk = blocks([self.finders[p] for p in scored], images, self.n_captions)
        found, counts, most = [], np.zeros(len(images), np.int64), self.n_captions // SHARE
        for at, some in zip(range(0, self.n_captions, CHUNK), walk, strict=True):
            hits = np.empty(some.shape[1:], bool)
            reaching(weights, rest, place, some, np.where(counts > most, np.float32(np.inf), least), hits)
            image, column = np.nonzero(hits)
            found.append(image * self.n_captions + at + column)
            counts += np.bincount(image, minlength=len(images))
        kept = np.flatnonzero(counts <= most)
        return kept, self._of(kept, np.concatenate(found))

    def _scored(self, last: Sequence[np.ndarray]) -> list[int]:
        """The parts that name none; else the one whose values make most of the threshold, rather not Sentence-BERT."""
        most = [w * one.mean() for w, one in zip(self.weights, last, strict=True)]
        cheap = [not isinstance(find.fitted, FittedSbert) for find in self.finders]
        nameless = [p for p, value in enumerate(most) if np.isinf(value)]
        return nameless or [max(range(len(most)), key=lambda p: (most[p] > 0 and cheap[p], most[p]))]

    def _of(self, some: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """The cells of some images, as cells of these."""
        image, row = np.divmod(cells, self.n_captions)
        mine = np.isin(image, some)
        return np.searchsorted(some, image[mine]) * self.n_captions + row[mine]

    def _split(self, cells: np.ndarray, images: int) -> tuple[np.ndarray, np.ndarray]:
        """ptr int64 [images + 1] and caption rows int64."""
        return np.searchsorted(cells, np.arange(images + 1) * self.n_captions), cells % self.n_captions
