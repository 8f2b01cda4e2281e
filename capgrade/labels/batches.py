"""Which captions make a batch: a plan of each epoch, and a batch sampler for torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capgrade.labels.stored import Sampled
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import Pairs, scored_reason

if TYPE_CHECKING:
    from capgrade.labels import Labels


@dataclass(frozen=True)
class Neighbours:
    """Captions of other images that each image may bring: where its own start, int64 [n_images +
    1], and their rows, int32."""

    start: np.ndarray
    captions: np.ndarray

    @classmethod
    def in_range(cls, labels: Labels, measure: str, low: float, high: float) -> Neighbours:
        """Those with a known relevance in low..high. InputError for none."""
        pairs = labels.stored.pairs(measure)
        neighbours = cls._from_pairs(
            labels, (part.take((part.value >= low) & (part.value <= high)) for part in pairs)
        )
        if not len(neighbours.captions):
            problem = f"no known {measure} of another image's caption is in {low:g}..{high:g}"
            raise InputError(
                problem,
                file=labels.file,
                remedy="widen the range, or sample more: {sample.top}",
                keys=("sample.top",),
            )
        return neighbours

    @classmethod
    def kept_for(cls, labels: Labels, measure: str, allowed: np.ndarray) -> Neighbours:
        """Those that sampling kept for the top or a window of the measure, or because it scores
        them, and that are `allowed`, bool [n_captions].

        Windows cover the whole range of the measure, so they are of every grade. InputError for
        labels of every pair.
        """
        stored = labels.stored
        if not isinstance(stored, Sampled):
            raise InputError(
                "labels of every pair name no captions that belong together",
                file=labels.file,
                remedy="give shards, or a dataset published from shards",
            )
        reasons = f"top_{measure}", f"window_{measure}", scored_reason(measure)
        kept = stored.pairs(measure, *reasons)
        return cls._from_pairs(labels, (part.take(allowed[part.caption]) for part in kept))

    @classmethod
    def _from_pairs(cls, labels: Labels, pairs: Iterable[Pairs]) -> Neighbours:
        joined = Pairs.concatenate(part.of_others(labels.owner) for part in pairs)
        sizes = np.bincount(joined.image, minlength=len(labels.image_ids))
        return cls(np.concatenate([[0], np.cumsum(sizes)]), joined.caption.astype(np.int32))

    def draw(
        self, images: np.ndarray, rng: np.random.Generator, otherwise: np.ndarray
    ) -> np.ndarray:
        """A random neighbour of each image; for an image that has none, the caption `otherwise`."""
        first = self.start[images]
        count = self.start[images + 1] - first
        chosen = first + (rng.random(images.shape) * count).astype(np.int64)
        return np.where(
            count > 0, self.captions[np.minimum(chosen, len(self.captions) - 1)], otherwise
        )


class BatchPlan:
    """The batches of every epoch, caption rows: the same for the same seed, whatever ran before.

    Without `neighbours` every one of `rows` comes once an epoch, in random order; the rest that
    fills no batch is left out, another each epoch, or without `drop_last` is a smaller batch, if it
    has two rows. With them half of each such batch stays; each caption of it brings a neighbour of
    its image, so that graded positives meet, and what is still missing comes from the other half.
    Epochs 2k and 2k + 1 share their random batches and keep one half each, so every caption of them
    comes at least once in two epochs, and a neighbour as often as it is drawn. A rest stays as it
    is. With `unique_images` no image comes twice in a batch; each first, second, ... caption then
    has a rest of its own. `owner` is the image of each caption, int64. Raises InputError when no
    batch can be filled.
    """

    def __init__(
        self,
        owner: np.ndarray,
        rows: np.ndarray,
        size: int,
        seed: int = 0,
        neighbours: Neighbours | None = None,
        unique_images: bool = False,
        drop_last: bool = True,
    ) -> None:
        self.rows, self.size, self.seed, self.unique_images = rows, size, seed, unique_images
        self.drop_last, self._owner, self._neighbours = drop_last, owner, neighbours
        rounds = [len(rows)]  # the captions of each round, which is cut into batches
        if unique_images:
            captions = np.bincount(owner[rows])  # of each image
            rounds = [int((captions > place).sum()) for place in range(captions.max())]
        self._full_batches = sum(n // size for n in rounds)
        self.rests = [] if drop_last else [n % size for n in rounds if n % size > 1]
        if not self._full_batches:
            supply = (
                f"{len(np.unique(owner[rows]))} images" if unique_images else f"{len(rows)} pairs"
            )
            remedy = "lower the size of batches (train.batch_size), or take more of the data"
            raise InputError(f"a batch of {size} from {supply}", remedy=remedy)

    @property
    def batches_an_epoch(self) -> int:
        return self._full_batches + len(self.rests)

    @property
    def pairs_an_epoch(self) -> int:
        return self._full_batches * self.size + sum(self.rests)

    def epoch(self, number: int) -> list[np.ndarray]:
        """Caption rows int64 of each batch of an epoch: [size], and the rests."""
        if self._neighbours is None:
            batches, rests = self._random(np.random.default_rng([self.seed, number]))
            return [*batches, *rests]
        half = (self.size + 1) // 2
        batches, rests = self._random(np.random.default_rng([self.seed, number // 2]))
        batches = np.roll(batches, -half * (number % 2), axis=1)
        kept, rest = batches[:, :half], batches[:, half:]
        brought = self._neighbours.draw(
            self._owner[kept], np.random.default_rng([self.seed, number, 1]), kept
        )
        return [
            *(self._distinct(rows) for rows in np.concatenate([kept, brought, rest], axis=1)),
            *rests,
        ]

    def _random(self, rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
        """Full batches [full, size] and the rests, no caption twice."""
        order = rng.permutation(self.rows)
        rounds = [order]
        if self.unique_images:  # a round has one caption of each image
            by_image = order[np.argsort(self._owner[order], kind="stable")]
            owner = self._owner[by_image]
            place = np.arange(len(owner)) - np.searchsorted(owner, owner)
            rounds = [rng.permutation(by_image[place == k]) for k in range(place.max() + 1)]
        ends = [len(rows) // self.size * self.size for rows in rounds]
        full = [rows[:end].reshape(-1, self.size) for rows, end in zip(rounds, ends, strict=True)]
        rests = [rows[end:] for rows, end in zip(rounds, ends, strict=True) if len(rows) - end > 1]
        batches = rng.permutation(np.concatenate(full)) if self.unique_images else full[0]
        return batches, [] if self.drop_last else rests

    def _distinct(self, rows: np.ndarray) -> np.ndarray:
        """The first `size` different captions (or images) of `rows`, in their order."""
        _, first = np.unique(self._owner[rows] if self.unique_images else rows, return_index=True)
        return rows[np.sort(first)][: self.size]


class GradedBatches:
    """As `Labels.batches` says: an iterable of lists of caption rows, `len` of them, and
    `set_epoch`. Batches that would give one process more than another are left out."""

    def __init__(
        self,
        labels: Labels,
        size: int,
        measure: str,
        low: float,
        high: float,
        seed: int,
        process: int,
        processes: int,
    ) -> None:
        if not isinstance(size, (int, np.integer)) or size < 2 or not 0 <= process < processes:
            problem = f"batches of {size} for process {process} of {processes}"
            raise InputError(
                problem, remedy="give a whole size of at least 2, and a process below processes"
            )
        rows = np.arange(labels.n_captions)
        neighbours = Neighbours.in_range(labels, measure, low, high)
        self.plan = BatchPlan(labels.owner, rows, size, seed, neighbours)
        self.process, self.processes, self.epoch = process, processes, 0
        if not len(self):
            problem = (
                f"{len(rows)} captions fill no batch of {size} for each of {processes} processes"
            )
            raise InputError(problem, remedy="lower the size")

    def __len__(self) -> int:
        return self.plan.batches_an_epoch // self.processes

    def set_epoch(self, epoch: int) -> None:
        """The batches of this epoch come next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.plan.epoch(self.epoch)[: len(self) * self.processes]
        return (rows.tolist() for rows in batches[self.process :: self.processes])
