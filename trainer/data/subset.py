"""Data ratios: which captions of a split are learnt from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.schemas.captions import Captions


@dataclass(frozen=True)
class DataShare:
    """How much of a split is learnt from: a share of its images, and so many captions of each (None: all).

    Chosen by a hash of the seed and the id: a smaller share is part of every larger one, on any machine.
    """

    images: float = 1.0
    captions_per_image: int | None = None
    seed: int = 0

    def rows(self, captions: Captions) -> np.ndarray:
        """The caption rows that stay, int64, rising."""
        n = max(1, round(self.images * captions.n_images))
        chosen = np.argsort(self._keys(captions.image_ids), kind="stable")[:n]
        rows = np.flatnonzero(np.isin(captions.owner, chosen))
        if self.captions_per_image is None:
            return rows
        keys = self._keys([captions.caption_ids[r] for r in rows])
        order = np.lexsort((keys, captions.owner[rows]))
        owners = captions.owner[rows][order]
        place = np.arange(len(rows)) - np.searchsorted(owners, owners)  # rank within the image
        return np.sort(rows[order[place < self.captions_per_image]])

    def _keys(self, ids: Sequence[str]) -> np.ndarray:
        texts = (f"{self.seed} {i}".encode() for i in ids)
        return np.frombuffer(b"".join(hashlib.blake2b(t, digest_size=8).digest() for t in texts), np.uint64)
