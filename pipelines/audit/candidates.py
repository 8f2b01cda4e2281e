"""Pairs of a data set with their values: from dense relevance, or from sampled shards with their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capgrade.labels import Labels
from capgrade.labels.stored import Sampled
from capgrade.measures.own_pairs import LEFT_OUT, read_own_pairs
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest

BLOCK = 64


class ValuedPairs(NamedTuple):
    """image and caption int64, value float32, weight float64 (how many pairs each stands for), all [n]."""

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
    def joined(parts: Sequence[ValuedPairs]) -> ValuedPairs:
        """One table, the highest value first."""
        whole = ValuedPairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return whole.take(np.lexsort((whole.caption, whole.image, -whole.value)))


@dataclass(frozen=True)
class ValueSource:
    """Labels whose values are read, and the parameters of each measure."""

    labels: Labels
    folder: Path
    measures: dict[str, Any]

    @property
    def shards(self) -> bool:
        """Whether only some pairs are known."""
        return self.labels.stored.sampled

    def blocks(self, measure: str) -> Iterator[ValuedPairs]:
        """All known pairs but the own ones, image after image."""
        stored, captions, at = self.labels.stored, np.arange(self.labels.n_captions), 0
        if isinstance(stored, Sampled):
            for part in stored.parts:
                sizes = np.diff(part.start)
                image, caption = np.repeat(np.arange(at, at + len(sizes)), sizes), part.captions.astype(np.int64)
                at += len(sizes)
                weights = part.weights.astype(np.float64)
                yield ValuedPairs(image, caption, part.values[measure], weights).of_others(self.labels.owner)
            return
        for first in range(0, n := len(self.labels.image_ids), BLOCK):
            images = np.arange(first, min(first + BLOCK, n))
            values = stored.block(images, captions, measure).relevance.ravel()
            image, caption = np.repeat(images, len(captions)), np.tile(captions, len(images))
            yield ValuedPairs(image, caption, values, np.ones(len(values))).of_others(self.labels.owner)

    def values(self, measure: str, wanted: ValuedPairs) -> np.ndarray:
        """float32 [n]: of a few pairs; NaN where shards did not keep one."""
        pairs = zip(wanted.image[:, None], wanted.caption[:, None], strict=True)
        cells = [self.labels.stored.block(*pair, measure) for pair in pairs]
        return np.array([one.relevance[0, 0] if one.known[0, 0] else np.nan for one in cells], np.float32)

    def own(self, measure: str) -> np.ndarray | None:
        """float64 [n_captions]: each caption against the others of its image, NaN without others; None where the folder
        does not have it."""
        values = None if self.shards else read_own_pairs(self.folder).get(measure + LEFT_OUT)
        return None if values is None or len(values) != self.labels.n_captions else values.astype(np.float64)


def open_source(relevance: Path | None, shards: Path | None, captions_dir: Path, split: str | None) -> ValueSource:
    """InputError unless exactly one folder is given, for one that is not finished, and for one made for other
    captions."""
    folder = relevance or shards
    if folder is None or (relevance and shards):
        raise InputError("one folder of values is needed", remedy="give --relevance DIR or --shards DIR")
    manifest = read_manifest(folder, "relevance" if relevance else "shards")
    labels = Labels.load(folder, split=split, captions=captions_dir)
    return ValueSource(labels, folder, dict(manifest["params"]["measures"]))
