"""What a folder of labels holds, and how the cells of a batch are looked up: in the pairs that
sampling kept, or where every pair is known.

Pairs and matrices lie in parts, each of some images after others. Nothing is copied out of Arrow
files but what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from capgrade.schemas.captions import Captions
from capgrade.schemas.pairs import PairLists, Pairs, scored_reason
from capgrade.schemas.relevance import by_part

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


@dataclass
class Sampled:
    """The pairs that sampling kept: of every image a run, wherever it lies."""

    measures: Sequence[str]
    n_captions: int
    parts: Sequence[PairLists]
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
        return np.cumsum([0, *map(len, self.parts)])

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

    def tables(self, *measures: str) -> Iterator[Pairs]:
        """All pairs with their values by these measures, some images after others: of each part."""
        return (
            part.pairs(first, measures)
            for first, part in zip(self._first.tolist(), self.parts, strict=False)
        )

    def span(self, measure: str) -> tuple[float, float]:
        """The smallest and the largest value of the kept pairs."""
        columns = [part.values[measure] for part in self.parts if len(part.caption)]
        return float(min(np.nanmin(values) for values in columns)), float(
            max(np.nanmax(values) for values in columns)
        )

    def block(self, images: np.ndarray, captions: np.ndarray, measure: str) -> RelevanceBlock:
        """What is known of images int64 [n] and captions int64 [m], none of them empty; either
        may come twice."""
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
            place = column[part.caption[pair]]
            wanted = place >= 0
            row, place, pair = np.repeat(asked, sizes)[wanted], place[wanted], pair[wanted]
            values = part.values[measure][pair]
            known = ~np.isnan(values)
            row, place, pair = row[known], place[known], pair[known]
            for cell, values_of_pairs in zip(
                cells, (values[known], True, part.weight[pair]), strict=True
            ):
                cell[row, place] = values_of_pairs
        if (repeated := np.flatnonzero(last != places)).size:
            for cell in cells:
                cell[:, repeated] = cell[:, last[repeated]]
        return RelevanceBlock(*cells)

    def pairs(self, measure: str, *reasons: str) -> Iterator[Pairs]:
        """All whose value is known, or of them what was kept for one of these reasons, some images
        after others: of each part. Weights are float64."""
        masks = self.kept_for(*reasons) if reasons else repeat(np.True_)
        for pairs, wanted in zip(self.tables(measure), masks, strict=False):
            rows = np.flatnonzero(wanted & ~np.isnan(pairs.value))
            known = replace(pairs, reasons=None).take(rows)
            yield replace(known, weight=known.weight.astype(np.float64))

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The captions whose label is known, int [known], and their values, float32 [known]."""
        ((number, _, (row,)),) = by_part(self._first, np.array([image]))
        part = self.parts[number]
        run = slice(part.start[row], part.start[row + 1])
        values = part.values[measure][run]
        return part.caption[run][~np.isnan(values)], values[~np.isnan(values)]

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The images whose label is known, int [known], and their values, float32 [known]."""
        images, values = [], []
        for first, part in zip(self._first, self.parts, strict=False):
            at = np.flatnonzero((part.caption == caption) & ~np.isnan(part.values[measure]))
            images.append(first + np.searchsorted(part.start, at, side="right") - 1)
            values.append(part.values[measure][at])
        return np.concatenate(images), np.concatenate(values)


class Matrix(Protocol):
    """Where every pair is known by one measure: a file, or what computes it."""

    @property
    def n_images(self) -> int: ...

    @property
    def n_captions(self) -> int: ...

    @property
    def step(self) -> int:
        """Images whose pairs are read at once."""

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """float32 [n, m] of images [n] and captions [m]."""

    def rows(self, images: np.ndarray) -> np.ndarray:
        """float32 [n, n_captions] of images [n]."""

    def span(self) -> tuple[float, float]:
        """The smallest and the largest value, or what bounds them."""

    def tensor(self, images: np.ndarray, captions: np.ndarray) -> torch.Tensor | None:
        """`cells` on the device where they are made; None where they are made in memory."""


class Complete:
    """Labels that know every pair."""

    sampled = False

    def __init__(self, matrices: Mapping[str, Matrix]) -> None:
        self.matrices, self.measures = matrices, list(matrices)
        first = next(iter(matrices.values()))
        self.n_images, self.n_captions = first.n_images, first.n_captions

    def partial(self, measure: str) -> bool:
        """As of `Sampled`."""
        return False

    def limits(self, measure: str) -> np.ndarray:
        """As of `Sampled`: nothing bounds labels beside themselves."""
        return np.full(self.n_images, np.inf, np.float32)

    def span(self, measure: str) -> tuple[float, float]:
        return self.matrices[measure].span()

    def block(self, images: np.ndarray, captions: np.ndarray, measure: str) -> RelevanceBlock:
        return RelevanceBlock.complete(self.matrices[measure].cells(images, captions))

    def on_device(
        self, device: str | torch.device, images: np.ndarray, captions: np.ndarray, measure: str
    ) -> RelevanceBlock | None:
        """A block of tensors that never leave the device where they are made; None where they are
        made in memory."""
        if not len(images) or not len(captions):
            return None
        values = self.matrices[measure].tensor(images, captions)
        if values is None:
            return None
        import torch  # what is on a device has imported it

        values = values.to(device)
        known = torch.ones_like(values, dtype=torch.bool)
        return RelevanceBlock(values, known, torch.ones_like(values))

    def pairs(self, measure: str) -> Iterator[Pairs]:
        """All of them, some images after others."""
        matrix = self.matrices[measure]
        for first in range(0, self.n_images, matrix.step):
            images = np.arange(first, min(first + matrix.step, self.n_images))
            yield Pairs.from_dense(images, {measure: matrix.rows(images)})

    def rows(self, images: np.ndarray, measure: str) -> np.ndarray:
        """float32 [n, n_captions] of images [n]."""
        return self.matrices[measure].rows(images)

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.n_captions), self.rows(np.array([image]), measure)[0]

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        images = np.arange(self.n_images)
        return images, self.matrices[measure].cells(images, np.array([caption]))[:, 0]


Stored = Sampled | Complete  # labels of images (rows) and captions (columns) by number


@dataclass(frozen=True)
class Opened:
    """Labels by number, and what is known of their images and captions. What a folder does not say
    is None."""

    file: Path | str
    stored: Stored
    image_ids: list[str]  # the id of each image row
    n_captions: int  # how many captions there are
    owners: np.ndarray | None = None  # int64 [n_captions]: the image of each caption
    captions: Captions | None = None
    made_with: dict[str, Any] | None = None  # the parameters of each measure
    inputs: Mapping[str, Any] = field(default_factory=dict)  # digests of the files they are from
    # The measure of each column that a calibration made.
    calibrated: Mapping[str, str] = field(default_factory=dict)
