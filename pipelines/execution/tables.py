"""What a stage makes of a block of images: tables, whole or of groups of captions that are merged later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from capgrade.pipelines.measures import Fitted
from capgrade.pipelines.measures.tops.find import Finder, finder
from capgrade.schemas.ties import Ties

Batches = dict[str, pa.RecordBatch]  # by table name


@dataclass(frozen=True)
class Opened:
    """What a worker has opened: the fitted measures, and the folder with whatever else the stage saved for it."""

    fitted: Mapping[str, Fitted]
    folder: Path
    _finders: dict[str, Finder] = field(default_factory=dict)

    def finder(self, name: str, ties: Ties) -> Finder:
        """What finds the captions of highest relevance by a measure, made once."""
        if name not in self._finders:
            self._finders[name] = finder(self.fitted[name], ties)
        return self._finders[name]


class Tables(Protocol):
    """What a stage makes of a block of images: record batches by table name. Sent to workers, so small."""

    def whole(self, images: np.ndarray, opened: Opened) -> Batches:
        """Of all captions."""
        ...


class Mergeable(Tables, Protocol):
    """Tables that can be made of groups of captions."""

    def partial(self, images: np.ndarray, opened: Opened, start: int, stop: int) -> Batches:
        """Of captions start..stop: what `merged` needs of them."""
        ...

    def merged(self, images: np.ndarray, folder: Path, parts: Sequence[Batches]) -> Batches:
        """`whole`, of the partial tables of all captions."""
        ...
