"""Relevance of a batch's captions to its images: looked up in sampled shards, or computed by a fitted measure."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numba import njit

from pipelines.measures import Fitted
from schemas.captions import Captions
from schemas.errors import InputError
from schemas.shards import Shards, pair_columns

SPREAD_IMAGES = 2000  # images whose own captions `own_spread` compares


class BatchRelevance(Protocol):
    """Relevance between any images and captions of one split."""

    def block(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Image numbers [n] and caption rows [m], int64 -> float32 [n, m] and where it is known (None: everywhere)."""
        ...


@njit(cache=True)
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

    12 bytes a pair in memory. InputError for shards of other captions, and a measure they do not have.
    """

    def __init__(self, shards: Shards, captions: Captions, measure: str) -> None:
        shards.require(captions)
        if measure not in shards.measures:
            remedy = f"choose from: {', '.join(shards.measures)}"
            raise InputError(f"no measure '{measure}' in these shards", file=shards.folder, remedy=remedy)
        images, kept, values, reasons = [], [], [], []
        for batch in shards.batches():
            rows, flat = pair_columns(batch)
            images.append(batch["image"].to_numpy()[rows])
            kept.append(flat["captions"].to_numpy())
            values.append(flat[measure].to_numpy())
            reasons.append(flat["reasons"].to_numpy())
        image = np.concatenate(images)
        order = np.lexsort((np.concatenate(kept), image))
        self.captions = np.concatenate(kept)[order]
        self.values = np.concatenate(values)[order]
        self.reasons = np.concatenate(reasons)[order]
        self.start = np.searchsorted(image[order], np.arange(captions.n_images + 1))

    def block(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        values = np.zeros((len(images), len(captions)), np.float32)
        known = np.zeros(values.shape, np.bool_)
        _look_up(images, captions, self.start, self.captions, self.values, values, known)
        return values, known

    def of_image(self, image: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kept captions of an image in rising order, their relevance and reasons."""
        part = slice(self.start[image], self.start[image + 1])
        return self.captions[part], self.values[part], self.reasons[part]


class ExactRelevance:
    """Computed from a measure fitted on the split: every pair is known."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted

    def block(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self.fitted.score(images, captions), None


def own_spread(fitted: Fitted, captions: Captions) -> float:
    """BCLS's automatic alpha: standard deviation of the relevance of own captions, over at most SPREAD_IMAGES images.

    `fitted` must leave a caption out of the references it is held against (self_reference: left_out). The paper
    takes the similarities between the captions of an image two by two (section III-D); so does this where the
    measure's `references` say mean or first, and with max it takes each caption's nearest.
    """
    images = np.unique(np.linspace(0, captions.n_images - 1, min(SPREAD_IMAGES, captions.n_images)).astype(np.int64))
    sets = [captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]] for i in images]
    own = [fitted.score(np.array([i]), rows)[0] for i, rows in zip(images, sets, strict=True)]
    return float(np.concatenate(own).std())
