"""Pairs of a data set with their values: from dense relevance, or from sampled shards with their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capgrade.measures.own_pairs import LEFT_OUT, read_own_pairs
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from capgrade.schemas.relevance import Relevance, read_relevance
from capgrade.schemas.shards import pair_columns, read_shards

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

    @staticmethod
    def joined(parts: Sequence[ValuedPairs]) -> ValuedPairs:
        """One table, the highest value first."""
        whole = ValuedPairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return whole.take(np.lexsort((whole.caption, whole.image, -whole.value)))


@dataclass(frozen=True)
class ValueSource:
    """Where values are read, the parameters of each measure, and of which split they are."""

    folder: Path
    measures: dict[str, Any]
    split: str
    shards: bool

    def blocks(self, measure: str, captions: Captions) -> Iterator[ValuedPairs]:
        """All known pairs but the own ones, image after image. InputError when made for other captions."""
        for pairs in self._sampled(measure, captions) if self.shards else self._every(measure, captions):
            yield pairs.take(captions.owner[pairs.caption] != pairs.image)

    def values(self, measure: str, captions: Captions, wanted: ValuedPairs) -> np.ndarray:
        """float64 [n]: of a few pairs; NaN where shards did not keep one."""
        if not self.shards:
            dense = self._dense(measure, captions)
            pairs = zip(wanted.image.tolist(), wanted.caption.tolist(), strict=True)
            return np.array([dense.rows(np.array([i]))[0, c] for i, c in pairs], np.float64)
        values = dict.fromkeys(zip(wanted.image.tolist(), wanted.caption.tolist(), strict=True), np.nan)
        for block in self.blocks(measure, captions):
            some = block.take(np.isin(block.image, wanted.image) & np.isin(block.caption, wanted.caption))
            kept = zip(some.image.tolist(), some.caption.tolist(), some.value.tolist(), strict=True)
            values.update({(i, c): value for i, c, value in kept if (i, c) in values})
        return np.array(list(values.values()))

    def own(self, measure: str, captions: Captions) -> np.ndarray | None:
        """float64 [n_captions]: each caption against the others of its image, NaN without others; None where the folder
        does not have it."""
        values = None if self.shards else read_own_pairs(self.folder).get(measure + LEFT_OUT)
        return None if values is None or len(values) != captions.n_captions else values.astype(np.float64)

    def no_own(self, measure: str) -> str:
        """Why `own` has none, and what to do."""
        if self.shards:
            return "shards have no value of a caption without itself among the references: give --relevance"
        return f"the relevance folder has no value of {measure} of a caption without itself: compute it again"

    def _dense(self, measure: str, captions: Captions) -> Relevance:
        dense = read_relevance(self.folder / f"{measure}.arrow")
        dense.require(captions)
        return dense

    def _every(self, measure: str, captions: Captions) -> Iterator[ValuedPairs]:
        dense = self._dense(measure, captions)
        for start in range(0, captions.n_images, BLOCK):
            images = np.arange(start, min(start + BLOCK, captions.n_images))
            values = dense.rows(images)
            image = np.repeat(images, captions.n_captions)
            caption = np.tile(np.arange(captions.n_captions), len(images))
            yield ValuedPairs(image, caption, values.ravel(), np.ones(values.size))

    def _sampled(self, measure: str, captions: Captions) -> Iterator[ValuedPairs]:
        shards = read_shards(self.folder)
        shards.require(captions)
        for batch in shards.batches():
            row, flat = pair_columns(batch)
            image = batch["image"].to_numpy().astype(np.int64)[row]
            caption, value, weight = (flat[name].to_numpy() for name in ("captions", measure, "weight"))
            yield ValuedPairs(image, caption.astype(np.int64), value, weight.astype(np.float64))


def open_source(relevance: Path | None, shards: Path | None) -> ValueSource:
    """InputError unless exactly one folder is given, and for one that is not finished."""
    folder = relevance or shards
    if folder is None or (relevance and shards):
        raise InputError("one folder of values is needed", remedy="give --relevance DIR or --shards DIR")
    manifest = read_manifest(folder, "relevance" if relevance else "shards")
    measures, split = dict(manifest["params"]["measures"]), str(manifest["inputs"]["split"])
    return ValueSource(folder, measures, split, shards=not relevance)
