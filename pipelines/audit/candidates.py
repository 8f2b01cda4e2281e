"""Pairs of a data set with their values: from dense relevance, or from sampled shards with their weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.labels import Labels
from capgrade.labels.stored import ValuedPairs
from capgrade.measures.own_pairs import LEFT_OUT, read_own_pairs
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest


def falling(parts: Iterable[ValuedPairs]) -> ValuedPairs:
    """One table, the highest value first."""
    whole = ValuedPairs.joined(parts)
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
        return (known.of_others(self.labels.owner) for known in self.labels.stored.pairs(measure))

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
