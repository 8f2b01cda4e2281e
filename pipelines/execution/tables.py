"""What a stage makes of a block of images: tables, whole or of groups of captions that are merged later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from capgrade.pipelines.measures import Fitted

Batches = dict[str, pa.RecordBatch]  # by table name


@dataclass(frozen=True)
class Opened:
    """What a worker has opened: the fitted measures, and the folder with whatever else the stage saved for it."""

    fitted: Mapping[str, Fitted]
    folder: Path


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
