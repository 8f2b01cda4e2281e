"""Batches in which graded neighbours meet: a batch sampler for torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.labels import Labels


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
        self._start, self._captions = _neighbours(labels, measure, low, high)
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
        first = self._start[self._owner[half]]
        count = self._start[self._owner[half] + 1] - first
        some = count > 0
        brought = self._captions[first[some] + (rng.random(int(some.sum())) * count[some]).astype(np.int64)]
        rows = _distinct(np.concatenate([half, brought]))
        for following in range(1, len(drawn)):
            if len(rows) >= self.size:
                break
            rows = _distinct(np.concatenate([rows, drawn[(number + following) % len(drawn)]]))
        return rows[: self.size].tolist()


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Each once, where it stands first."""
    return rows[np.sort(np.unique(rows, return_index=True)[1])]


def _neighbours(labels: Labels, measure: str, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Captions of others with a known relevance in low..high: where each image's start, and their rows."""
    owner, sizes, found = labels.owner, [0], []
    for image in range(len(labels.image_ids)):
        captions, values = labels.known_of(image, measure)
        fits = (values >= low) & (values <= high) & (owner[captions] != image)
        found.append(np.asarray(captions[fits], np.int64))
        sizes.append(len(found[-1]))
    if not sum(sizes):
        problem = f"no known {measure} of another image's caption is in {low:g}..{high:g}"
        raise InputError(problem, file=labels.opened.file, remedy="widen the range, or sample more: shards.top")
    return np.cumsum(sizes), np.concatenate(found)
