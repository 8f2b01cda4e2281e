"""Which pairs of a split make a batch, in what company."""

from __future__ import annotations

from typing import Literal

import numpy as np

from capgrade.labels import batches
from capgrade.labels.batches import Neighbours
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.data.relevance import LookedUp

Composition = Literal["random", "seeded"]


class BatchPlan(batches.BatchPlan):
    """The plan of the pairs that are learnt from. random: without neighbours. seeded: with partners, the captions that
    shards keep as relevant to an image (`Neighbours.kept_for`); InputError for none."""

    def __init__(
        self, pairs: Pairs, batch_size: int, composition: Composition = "random", seed: int = 0,
        partners: LookedUp | None = None, unique_images: bool = False, drop_last: bool = True,
    ) -> None:  # fmt: skip
        self.pairs = pairs
        found = _partners(pairs, partners) if composition == "seeded" else None
        super().__init__(pairs.captions.owner, pairs.rows, batch_size, seed, found, unique_images, drop_last)


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
