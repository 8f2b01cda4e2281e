"""How labels are stored, and how the cells of a batch are looked up: sampled pairs, or every pair.

Pairs and matrices lie in parts, each of some images after others. Nothing is copied out of Arrow
files but what is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from capgrade.schemas.relevance import Relevance, by_part
from capgrade.schemas.shards import scored_reason

if TYPE_CHECKING:
    import torch


class RelevanceBlock(NamedTuple):
    """Relevance of captions to images, as numpy arrays or as tensors; where it is not known it is 0
    and means nothing.

    A weight is the inverse of the probability that sampling kept the pair: so many pairs it stands
    for. It is 1 for what was kept for certain, and 0 for what is not known.
    """

    relevance: Any  # float32 [images, captions]
    known: Any = None  # bool [images, captions]; None: everywhere
    weights: Any = None  # float32 [images, captions]; None: 1

    @classmethod
    def complete(cls, relevance: np.ndarray) -> RelevanceBlock:
        """A block of which every pair is known."""
        return cls(
            relevance, np.ones(relevance.shape, np.bool_), np.ones(relevance.shape, np.float32)
        )


class ValuedPairs(NamedTuple):
    """image and caption int64, value float32, weight float64 (how many pairs each stands for), all
    [n]."""

    image: np.ndarray
    caption: np.ndarray
    value: np.ndarray
    weight: np.ndarray

    def take(self, rows: Any) -> ValuedPairs:
        """Some of the pairs: rows int [m] or bool [n]."""
        return ValuedPairs(*(column[rows] for column in self))

    def of_others(self, owner: np.ndarray) -> ValuedPairs:
        """Those that are no own pairs; owner int64 [n_captions]."""
        return self.take(owner[self.caption] != self.image)

    @staticmethod
    def concatenate(parts: Iterable[ValuedPairs]) -> ValuedPairs:
        """One table of them all."""
        return ValuedPairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True)
class SampledPart:
    """Kept pairs of some images in order: where each one's run starts, int64 [images + 1]; captions
    int32 [pairs], no caption twice in a run; how many pairs each stands for, float32; why it was
    kept, uint32, a bit a reason; and each measure, float32, NaN where it is not known. Arrays are
    in memory or mapped."""

    start: np.ndarray
    captions: np.ndarray
    weights: np.ndarray
    reasons: np.ndarray
    values: Mapping[str, np.ndarray]


@dataclass
class Sampled:
    """The pairs that sampling kept: of every image a run, wherever it lies."""

    measures: Sequence[str]
    n_captions: int
    parts: Sequence[SampledPart]
    reasons: Sequence[str]  # the name of each bit
    sampled: bool = True
    # By measure and rule, the value of each image's unknown pairs (`unsampled.stand_ins`).
    stand_ins: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> np.ndarray:
        """int64 [n_images]: captions kept of each image."""
        return np.concatenate([np.diff(part.start) for part in self.parts])

    @cached_property
    def _first(self) -> np.ndarray:
        return np.cumsum([0, *(len(part.start) - 1 for part in self.parts)])

    def partial(self, measure: str) -> bool:
        """Whether the measure scores some pairs alone: the kept pairs tell nothing of the others,
        which can have any value."""
        return scored_reason(measure) in self.reasons

    def kept_for(self, *names: str) -> Iterator[np.ndarray]:
        """bool [pairs] of each part: kept for one of these reasons."""
        wanted = np.uint32(sum(1 << bit for bit, name in enumerate(self.reasons) if name in names))
        return (part.reasons & wanted > 0 for part in self.parts)

    def limits(self, measure: str) -> np.ndarray:
        """float32 [n_images]: the least of an image's top captions, which no caption that was not
        kept exceeds; infinite for an image without top captions of the measure."""
        lasts = []
        for part, top in zip(self.parts, self.kept_for(f"top_{measure}"), strict=True):
            values = np.append(
                np.where(top, part.values[measure], np.float32(np.inf)), np.float32(np.inf)
            )
            least = np.minimum.reduceat(values, part.start[:-1])
            lasts.append(np.where(np.diff(part.start) > 0, least, np.inf))
        return np.concatenate(lasts).astype(np.float32)

    def kept_pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Image and caption of each kept pair, int64, some images after others: of each part."""
        for first, part in zip(self._first, self.parts, strict=False):
            image = np.repeat(np.arange(first, first + len(part.start) - 1), np.diff(part.start))
            yield image, part.captions.astype(np.int64)

    def span(self, measure: str) -> tuple[float, float]:
        columns = [part.values[measure] for part in self.parts if len(part.captions)]
        return float(min(np.nanmin(values) for values in columns)), float(
            max(np.nanmax(values) for values in columns)
        )

    def block(self, images: np.ndarray, captions: np.ndarray, measure: str) -> RelevanceBlock:
        """What is known of images [n] and captions [m], none of them empty; either may come
        twice."""
        places, column = np.arange(len(captions)), np.full(self.n_captions, -1, np.int32)
        column[captions] = places  # a caption that comes twice has its last place here
        last = column[captions]
        cells = [
            np.zeros((len(images), len(captions)), kind)
            for kind in (np.float32, np.bool_, np.float32)
        ]
        for number, asked, rows in by_part(self._first, images):
            part = self.parts[number]
            sizes = part.start[rows + 1] - part.start[rows]
            pair = np.repeat(part.start[rows + 1] - np.cumsum(sizes), sizes) + np.arange(
                sizes.sum()
            )
            place = column[part.captions[pair]]
            wanted = place >= 0
            row, place, pair = np.repeat(asked, sizes)[wanted], place[wanted], pair[wanted]
            values = part.values[measure][pair]
            known = ~np.isnan(values)
            row, place, pair = row[known], place[known], pair[known]
            for cell, values_of_pairs in zip(
                cells, (values[known], True, part.weights[pair]), strict=True
            ):
                cell[row, place] = values_of_pairs
        if (repeated := np.flatnonzero(last != places)).size:
            for cell in cells:
                cell[:, repeated] = cell[:, last[repeated]]
        return RelevanceBlock(*cells)

    def pairs(self, measure: str, *reasons: str) -> Iterator[ValuedPairs]:
        """All that is known, or of it what was kept for one of these reasons, some images after
        others: of each part."""
        masks = self.kept_for(*reasons) if reasons else repeat(np.True_)
        for (image, caption), part, wanted in zip(
            self.kept_pairs(), self.parts, masks, strict=False
        ):
            values, weights = part.values[measure], part.weights.astype(np.float64)
            rows = np.flatnonzero(wanted & ~np.isnan(values))
            yield ValuedPairs(image, caption, values, weights).take(rows)

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The captions whose label is known, int, and their values, float32."""
        ((number, _, (row,)),) = by_part(self._first, np.array([image]))
        part = self.parts[number]
        run = slice(part.start[row], part.start[row + 1])
        values = part.values[measure][run]
        return part.captions[run][~np.isnan(values)], values[~np.isnan(values)]

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The images whose label is known, int, and their values, float32."""
        images, values = [], []
        for first, part in zip(self._first, self.parts, strict=False):
            at = np.flatnonzero((part.captions == caption) & ~np.isnan(part.values[measure]))
            images.append(first + np.searchsorted(part.start, at, side="right") - 1)
            values.append(part.values[measure][at])
        return np.concatenate(images), np.concatenate(values)


class CompleteLabels(ABC):
    """Labels that know every pair."""

    sampled = False
    step = 64  # images whose pairs are read at once
    measures: Sequence[str]
    n_images: int
    n_captions: int

    def partial(self, measure: str) -> bool:
        """As of `Sampled`."""
        return False

    def limits(self, measure: str) -> np.ndarray:
        """As of `Sampled`: nothing bounds labels beside themselves."""
        return np.full(self.n_images, np.inf, np.float32)

    @abstractmethod
    def cells(self, images: np.ndarray, captions: np.ndarray, measure: str) -> np.ndarray:
        """float32 [n, m] of images [n] and captions [m]."""

    @abstractmethod
    def span(self, measure: str) -> tuple[float, float]:
        """The smallest and the largest value, or what bounds them."""

    def block(self, images: np.ndarray, captions: np.ndarray, measure: str) -> RelevanceBlock:
        return RelevanceBlock.complete(self.cells(images, captions, measure))

    def on_device(
        self, device: str | torch.device, images: np.ndarray, captions: np.ndarray
    ) -> RelevanceBlock | None:
        """A block of tensors that are made on a device; None where it is made in memory."""
        return None

    def pairs(self, measure: str) -> Iterator[ValuedPairs]:
        """All of them, some images after others."""
        for first in range(0, self.n_images, self.step):
            images = np.arange(first, min(first + self.step, self.n_images))
            image, caption = (
                cells.ravel()
                for cells in np.meshgrid(images, np.arange(self.n_captions), indexing="ij")
            )
            yield ValuedPairs(
                image, caption, self.rows(images, measure).ravel(), np.ones(len(image))
            )

    def rows(self, images: np.ndarray, measure: str) -> np.ndarray:
        """float32 [n, n_captions] of images [n]."""
        return self.cells(images, np.arange(self.n_captions), measure)

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.n_captions), self.rows(np.array([image]), measure)[0]

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        images = np.arange(self.n_images)
        return images, self.cells(images, np.array([caption]), measure)[:, 0]


class Dense(CompleteLabels):
    """Whole matrices, mapped."""

    def __init__(self, matrices: Mapping[str, Relevance]) -> None:
        self.matrices, self.measures = matrices, list(matrices)
        first = next(iter(matrices.values()))
        self.n_images, self.n_captions = sum(map(len, first.parts)), first.n_captions

    def cells(self, images: np.ndarray, captions: np.ndarray, measure: str) -> np.ndarray:
        return self.matrices[measure].cells(images, captions)

    def span(self, measure: str) -> tuple[float, float]:
        parts = self.matrices[measure].parts
        return float(min(values.min() for values in parts)), float(
            max(values.max() for values in parts)
        )


Stored = Sampled | CompleteLabels  # labels of images (rows) and captions (columns) by number
