"""Batches in which graded neighbours meet: a batch sampler for torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.stored import Sampled

if TYPE_CHECKING:
    from capgrade.labels import Labels


@dataclass(frozen=True)
class Neighbours:
    """Captions of other images that each image may bring: where its own start, int64 [n_images + 1], and their rows,
    int64."""

    start: np.ndarray
    captions: np.ndarray

    @classmethod
    def within(cls, labels: Labels, measure: str, low: float, high: float) -> Neighbours:
        """Those with a known relevance in low..high. InputError for none."""
        owner, sizes, found = labels.owner, [0], []
        for image in range(len(labels.image_ids)):
            captions, values = labels.known_of(image, measure)
            fits = (values >= low) & (values <= high) & (owner[captions] != image)
            found.append(np.asarray(captions[fits], np.int64))
            sizes.append(len(found[-1]))
        if not sum(sizes):
            problem = f"no known {measure} of another image's caption is in {low:g}..{high:g}"
            raise InputError(problem, file=labels.opened.file, remedy="widen the range, or sample more: shards.top")
        return cls(np.cumsum(sizes), np.concatenate(found))

    @classmethod
    def kept_for(cls, labels: Labels, measure: str, allowed: np.ndarray) -> Neighbours:
        """Those that sampling kept for the top or a window of the measure and that are `allowed`, bool [n_captions].

        Windows cover the whole range of the measure, so they are of every grade. InputError for labels of every pair.
        """
        stored, owner = labels.opened.stored, labels.owner
        if not isinstance(stored, Sampled):
            raise InputError("labels of every pair name no captions that belong together", file=labels.opened.file,
                             remedy="give shards, or a dataset published from shards")  # fmt: skip
        sizes, found, image = [0], [], 0
        for part, kept in zip(stored.parts, stored.kept_for(f"top_{measure}", f"window_{measure}"), strict=True):
            count = len(part.start) - 1
            of = np.repeat(np.arange(image, image + count), np.diff(part.start))
            fits = kept & allowed[part.captions] & (owner[part.captions] != of)
            sizes += np.bincount(of[fits] - image, minlength=count).tolist()
            found.append(part.captions[fits].astype(np.int64))
            image += count
        return cls(np.cumsum(sizes), np.concatenate(found))

    def drawn(self, images: np.ndarray, rng: np.random.Generator, otherwise: np.ndarray) -> np.ndarray:
        """A neighbour of each image; of one that has none the caption `otherwise`."""
        first = self.start[images]
        count = self.start[images + 1] - first
        chosen = first + (rng.random(images.shape) * count).astype(np.int64)
        return np.where(count > 0, self.captions[np.minimum(chosen, len(self.captions) - 1)], otherwise)


class GradedBatches:
    """As `Labels.batches` says: an iterable of lists of caption rows, `len` of them, and `set_epoch`.

    An epoch draws every caption once at random into halves of batches; the rest that fills no half is left out, another
    each epoch, and so are batches that would give one process more than another.
    """

    def __init__(
        self, labels: Labels, size: int, measure: str, low: float, high: float, seed: int, process: int, processes: int
    ) -> None:
        if not isinstance(size, int) or size < 2 or not 0 <= process < processes:
            problem = f"batches of {size} for process {process} of {processes}"
            raise InputError(problem, remedy="give a whole size of at least 2, and a process below processes")
        self.size, self.seed, self.process, self.processes, self.epoch = size, seed, process, processes, 0
        self._half, self._owner = (size + 1) // 2, labels.owner
        self._neighbours = Neighbours.within(labels, measure, low, high)
        if not len(self) or len(self._owner) < 2 * self._half:
            problem = f"{len(self._owner)} captions fill no batch of {size} for each of {processes} processes"
            raise InputError(problem, remedy="lower the size")

    def __len__(self) -> int:
        return len(self._owner) // self._half // self.processes

    def set_epoch(self, epoch: int) -> None:
        """The batches of this epoch come next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        order = rng.permutation(len(self._owner))
        drawn = order[: len(order) // self._half * self._half].reshape(-1, self._half)
        for number in range(self.process, len(self) * self.processes, self.processes):
            yield self._batch(drawn, number, np.random.default_rng([self.seed, self.epoch, number]))

    def _batch(self, drawn: np.ndarray, number: int, rng: np.random.Generator) -> list[int]:
        """A half, what it brings, and what is still missing from the halves that follow it round; no caption twice."""
        half = drawn[number]
        rows = _distinct(np.concatenate([half, self._neighbours.drawn(self._owner[half], rng, half)]))
        for following in range(1, len(drawn)):
            if len(rows) >= self.size:
                break
            rows = _distinct(np.concatenate([rows, drawn[(number + following) % len(drawn)]]))
        return rows[: self.size].tolist()


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Each once, where it stands first."""
    return rows[np.sort(np.unique(rows, return_index=True)[1])]
