"""Relevance of a batch's captions to its images: looked up in sampled shards, or computed by a fitted measure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from capgrade.pipelines.measures import Measure
from capgrade.schemas.captions import Captions
from capgrade.schemas.compiled import njit
from capgrade.schemas.errors import InputError
from capgrade.schemas.shards import Shards, pair_columns
from capgrade.stored import RelevanceBlock
from capgrade.trainer.data.intra_modal import against_captions, own_spread

__all__ = [
    "BatchRelevance",
    "ExactRelevance",
    "RelevanceBlock",
    "RelevanceOf",
    "SampledRelevance",
    "learnt_from",
    "own_spread",
]

RelevanceOf = Literal["image_set", "caption"]


class BatchRelevance(Protocol):
    """Relevance between the images and captions of a batch; values are in low..high."""

    low: float
    high: float

    def block(self, images: np.ndarray, captions: np.ndarray) -> RelevanceBlock:
        """Of image numbers [n] and caption rows [m], int64."""
        ...


@njit(nogil=True, cache=True)
def _look_up(images, captions, start, kept, stored, stored_weights, values, known, weights):
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
                weights[i, j] = stored_weights[low]


class SampledRelevance:
    """The pairs that `capgrade shards` kept, with one of its measures; an image's own captions are always among them.

    Relevance is to all captions of an image. 13 bytes per pair in memory. InputError for shards of other captions, and
    a measure they do not have.
    """

    def __init__(self, shards: Shards, captions: Captions, measure: str) -> None:
        shards.require(captions)
        if measure not in shards.measures:
            remedy = f"choose from: {', '.join(shards.measures)}"
            raise InputError(f"no measure '{measure}' in these shards", file=shards.folder, remedy=remedy)
        names = shards.metadata["reasons"]
        own = _bits(names, "own")
        relevant = _bits(names, f"top_{measure}", f"window_{measure}")
        sizes, kept, values, brings, weights = [], [], [], [], []
        for batch in shards.batches():  # in image order, captions rising within an image
            _, flat = pair_columns(batch)
            reasons = flat["reasons"].to_numpy()
            sizes.append(np.diff(batch["captions"].offsets.to_numpy()))
            kept.append(flat["captions"].to_numpy())
            values.append(flat[measure].to_numpy())
            weights.append(flat["weight"].to_numpy())
            brings.append((reasons & relevant > 0) & (reasons & own == 0))
        self.folder = shards.folder
        self.start = np.concatenate([[0], np.cumsum(np.concatenate(sizes), dtype=np.int64)])
        self.captions, self.values = np.concatenate(kept), np.concatenate(values)
        self._weights = np.concatenate(weights)
        self.low, self.high = float(self.values.min()), float(self.values.max())
        self._brings = np.concatenate(brings)

    def block(self, images: np.ndarray, captions: np.ndarray) -> RelevanceBlock:
        """As `BatchRelevance.block`: 0, not known and of no weight where a pair was not sampled."""
        values, weights = np.zeros((2, len(images), len(captions)), np.float32)
        known = np.zeros(values.shape, np.bool_)
        stored = self.start, self.captions, self.values, self._weights
        _look_up(images, captions, *stored, values, known, weights)
        return RelevanceBlock(values, known, weights)

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


def learnt_from(captions: Captions, rows: np.ndarray) -> Captions:
    """The table of these caption rows alone: what a measure is fitted on, so that no label tells of the others."""
    if len(rows) == captions.n_captions:
        return captions
    told = hashlib.sha256(f"{captions.digest} rows ".encode() + rows.astype(np.int64).tobytes()).hexdigest()
    return replace(captions, table=captions.table.take(rows), digest=told)


class ExactRelevance:
    """Computed from a measure fitted on the captions that are learnt from (`rows`, None: all): every pair is known.

    image_set: of caption j to the reference set of image i. caption: of caption j to caption i, the one that stands
    for image i in the batch, see `against_captions`; with Sentence-BERT the label of BCLS. Each caption is an image's
    own there, so captions of one image have the relevance that the measure gives them, and 1 stands on the diagonal.
    """

    def __init__(
        self, measure: Measure, captions: Captions, rows: np.ndarray | None = None, of: RelevanceOf = "image_set"
    ) -> None:
        rows = np.arange(captions.n_captions) if rows is None else rows
        self.captions = learnt_from(captions, rows)
        self.fitted = measure.fit(self.captions)
        self.low, self.high = measure.low, measure.high
        self._row = np.full(captions.n_captions, -1)
        self._image = np.full(captions.n_images, -1)
        self._row[rows], self._image[captions.owner[rows]] = np.arange(len(rows)), self.captions.owner
        self._between = against_captions(self.fitted) if of == "caption" else None

    def block(self, images: np.ndarray, captions: np.ndarray) -> RelevanceBlock:
        """As `BatchRelevance.block`, of captions that are learnt from; for `caption` image i is captions[i]'s."""
        rows = self._row[captions]
        assert rows.min(initial=0) >= 0, "a caption that is not learnt from"
        return RelevanceBlock(
            self.fitted.score(self._image[images], rows) if self._between is None else self._between(rows)
        )
