"""Which pairs make a batch, in what company."""

from __future__ import annotations

from typing import Literal

import numpy as np

from capgrade.batches import Neighbours
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.data.relevance import LookedUp

Composition = Literal["random", "seeded"]


class BatchPlan:
    """The batches of every epoch: the same for the same seed, whatever ran before.

    random: every caption once an epoch, in random order; the rest that fills no batch is left out, another each
    epoch, or without `drop_last` is a smaller batch, if it has two pairs. seeded: half of each random batch stays; each
    of these pairs brings one whose caption the shards keep as relevant to its image (`Neighbours.kept_for`), so
    that graded positives meet, and what is still missing comes from the other half. Epochs 2k and 2k + 1 share their
    random batches and keep one half each, so every caption of them comes at least once in two epochs, and a partner as
    often as it is drawn. A rest stays as it is.
    With `unique_images` no image comes twice in a batch; each first, second, ... caption then has a rest of its own.
    Raises InputError when no batch can be filled, and for "seeded" without captions to bring.
    """

    def __init__(
        self, pairs: Pairs, batch_size: int, composition: Composition = "random", seed: int = 0,
        partners: LookedUp | None = None, unique_images: bool = False, drop_last: bool = True,
    ) -> None:  # fmt: skip
        self.pairs, self.size, self.seed, self.unique_images = pairs, batch_size, seed, unique_images
        self.drop_last, self._owner = drop_last, pairs.captions.owner
        rounds = [len(pairs.rows)]  # of each the captions are taken a batch at a time
        if unique_images:
            captions = np.bincount(self._owner[pairs.rows])  # of each image
            rounds = [int((captions > place).sum()) for place in range(captions.max())]
        self._whole = sum(n // batch_size for n in rounds)
        self.rests = [] if drop_last else [n % batch_size for n in rounds if n % batch_size > 1]
        if not self._whole:
            there = f"{len(np.unique(self._owner[pairs.rows]))} images" if unique_images else f"{len(pairs.rows)} pairs"
            problem = f"a batch of {batch_size} from {there}"
            raise InputError(problem, remedy="lower train.batch_size, or take more of the data")
        self._partners = _partners(pairs, partners) if composition == "seeded" else None

    @property
    def batches_an_epoch(self) -> int:
        return self._whole + len(self.rests)

    @property
    def pairs_an_epoch(self) -> int:
        return self._whole * self.size + sum(self.rests)

    def epoch(self, number: int) -> list[np.ndarray]:
        """Caption rows int64 of each batch of an epoch: [batch_size], and the rests."""
        if self._partners is None:
            batches, rests = self._random(np.random.default_rng([self.seed, number]))
            return [*batches, *rests]
        half = (self.size + 1) // 2
        batches, rests = self._random(np.random.default_rng([self.seed, number // 2]))
        batches = np.roll(batches, -half * (number % 2), axis=1)
        kept, rest = batches[:, :half], batches[:, half:]
        brought = self._partners.drawn(self._owner[kept], np.random.default_rng([self.seed, number, 1]), kept)
        return [*(self._distinct(rows) for rows in np.concatenate([kept, brought, rest], axis=1)), *rests]

    def _random(self, rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
        """Whole batches [whole, batch_size] and the rests, no caption twice."""
        order = rng.permutation(self.pairs.rows)
        rounds = [order]
        if self.unique_images:  # a round has one caption of each image
            by_image = order[np.argsort(self._owner[order], kind="stable")]
            owner = self._owner[by_image]
            place = np.arange(len(owner)) - np.searchsorted(owner, owner)
            rounds = [rng.permutation(by_image[place == k]) for k in range(place.max() + 1)]
        ends = [len(rows) // self.size * self.size for rows in rounds]
        whole = [rows[:end].reshape(-1, self.size) for rows, end in zip(rounds, ends, strict=True)]
        rests = [rows[end:] for rows, end in zip(rounds, ends, strict=True) if len(rows) - end > 1]
        together = rng.permutation(np.concatenate(whole)) if self.unique_images else whole[0]
        return together, [] if self.drop_last else rests

    def _distinct(self, rows: np.ndarray) -> np.ndarray:
        """The first `batch_size` different captions (or images) of `rows`, in their order."""
        _, first = np.unique(self._owner[rows] if self.unique_images else rows, return_index=True)
        return rows[np.sort(first)][: self.size]


def _partners(pairs: Pairs, labels: LookedUp | None) -> Neighbours:
    """Partners of each image among the captions that are learnt from."""
    if labels is None:
        raise InputError("seeded batches need the sampled captions of each image", remedy="give --shards")
    allowed = np.zeros(pairs.captions.n_captions, np.bool_)
    allowed[pairs.rows] = True
    found = Neighbours.kept_for(labels.labels, labels.measure, allowed)
    if not np.diff(found.start)[pairs.captions.owner[pairs.rows]].any():
        problem = "no caption is sampled as relevant to another image"
        raise InputError(problem, file=labels.folder, remedy="raise shards.top, or train.composition=random")
    return found
