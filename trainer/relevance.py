"""Relevance of a batch's captions to its images: looked up in sampled shards, or computed by a fitted measure."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pipelines.measures import Fitted
from schemas.captions import Captions
from schemas.compiled import njit
from schemas.errors import InputError
from schemas.shards import Shards, pair_columns
from trainer.one_sided import against_captions, between_images, own_spread

__all__ = ["BatchRelevance", "ExactRelevance", "SampledRelevance", "own_spread"]


class BatchRelevance(Protocol):
    """Relevance between any images and captions of one split."""

    def block(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Image numbers [n] and caption rows [m], int64 -> float32 [n, m] and where it is known (None: everywhere)."""
        ...


@njit(nogil=True, cache=True)
def _look_up(images, captions, start, kept, stored, values, known):
    for i in range(len(images)):
        first, last = start[images[i]], start[images[i] + 1]
        for j in range(len(captions)):
            low, high = first, last
            while low < high:
                middle = (low + high) // 2
                if kept[middle] < captions[j]:
                    low = middle + 1
                else:
                    high = middle
            if low < last and kept[low] == captions[j]:
                values[i, j] = stored[low]
                known[i, j] = True


class SampledRelevance:
    """The pairs that `capgrade shards` kept, with one of its measures; an image's own captions are always among them.

    9 bytes a pair in memory. InputError for shards of other captions, and a measure they do not have.
    """

    def __init__(self, shards: Shards, captions: Captions, measure: str) -> None:
        shards.require(captions)
        if measure not in shards.measures:
            remedy = f"choose from: {', '.join(shards.measures)}"
            raise InputError(f"no measure '{measure}' in these shards", file=shards.folder, remedy=remedy)
        names = shards.metadata["reasons"]
        own = _bits(names, "own")
        relevant = _bits(names, f"top_{measure}", f"window_{measure}")
        sizes, kept, values, brings = [], [], [], []
        for batch in shards.batches():  # in image order, captions rising within an image
            _, flat = pair_columns(batch)
            reasons = flat["reasons"].to_numpy()
            sizes.append(np.diff(batch["captions"].offsets.to_numpy()))
            kept.append(flat["captions"].to_numpy())
            values.append(flat[measure].to_numpy())
            brings.append((reasons & relevant > 0) & (reasons & own == 0))
        self.folder = shards.folder
        self.start = np.concatenate([[0], np.cumsum(np.concatenate(sizes), dtype=np.int64)])
        self.captions, self.values = np.concatenate(kept), np.concatenate(values)
        self._brings = np.concatenate(brings)

    def block(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        values = np.zeros((len(images), len(captions)), np.float32)
        known = np.zeros(values.shape, np.bool_)
        _look_up(images, captions, self.start, self.captions, self.values, values, known)
        return values, known

    def partners(self, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Captions of other images kept for the top or a window of the measure, those that are `allowed`, bool
        [n_captions]: where each image's start, int64 [n_images + 1], and their rows.

        Windows cover the whole range of the measure, so partners are of every grade.
        """
        fits = self._brings & allowed[self.captions]
        return np.concatenate([[0], np.cumsum(fits)])[self.start], self.captions[fits].astype(np.int64)


def _bits(names: list[str], *wanted: str) -> np.uint32:
    """The bits of `reasons` that stand for these."""
    return np.uint32(sum(1 << k for k, name in enumerate(names) if name in wanted))


class ExactRelevance:
    """Computed from a measure fitted on the split: every pair is known."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted

    def block(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self.fitted.score(images, captions), None

    def caption_block(self, captions: np.ndarray) -> np.ndarray:
        """Relevance between captions, see `against_captions`: float32 [n, n]."""
        return against_captions(self.fitted)(captions)

    def image_block(self, images: np.ndarray) -> np.ndarray:
        """Relevance between images, see `between_images`: float32 [n, n]."""
        return between_images(self.fitted, images)
