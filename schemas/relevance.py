"""Dense relevance: one Arrow file per measure, one row per image, a fixed-size list over all
captions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from capgrade.schemas.arrow import ArrowFile, metadata_of, numpy_type, with_metadata
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

DTYPES = {"float32": pa.float32(), "float16": pa.float16()}


def relevance_schema(n_captions: int, dtype: str, metadata: dict[str, Any]) -> pa.Schema:
    """The schema of image_id and relevance: a fixed-size list in the order of the captions."""
    fields = [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("relevance", pa.list_(DTYPES[dtype], n_captions), nullable=False),
    ]
    return with_metadata(pa.schema(fields), {"kind": "relevance", **metadata})


def relevance_batch(
    image_ids: Sequence[str], values: np.ndarray, schema: pa.Schema
) -> pa.RecordBatch:
    """One record batch from float32 [len(image_ids), n_captions]."""
    kind = schema.field("relevance").type
    flat = pa.array(values.astype(numpy_type(kind.value_type), copy=False).ravel())
    # `type=` keeps the item field's name and nullability
    lists = pa.FixedSizeListArray.from_arrays(flat, type=kind)
    return pa.record_batch([pa.array(image_ids, pa.string()), lists], schema=schema)


def by_part(first: np.ndarray, images: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The parts that hold some of the images: number, places in `images`, and rows in the part.

    `first` is int64 [parts + 1], the first image of each part.
    """
    part = np.searchsorted(first, images, side="right") - 1
    order = np.argsort(part, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(part[order])) + 1) if len(images) else ():
        number = int(part[places[0]])
        yield number, places, images[places] - first[number]


@dataclass(frozen=True)
class Relevance:
    """A dense relevance file, opened by memory map: rows are read when they are asked for."""

    path: Path
    batches: list[pa.RecordBatch]
    schema: pa.Schema
    step: ClassVar[int] = 64  # images whose rows are read at once

    @property
    def metadata(self) -> dict[str, Any]:
        """What made the file: measure, parameters, captions digest, versions."""
        return metadata_of(self.schema)

    @property
    def n_captions(self) -> int:
        return self.schema.field("relevance").type.list_size

    @property
    def n_images(self) -> int:
        return sum(map(len, self.parts))

    @property
    def image_ids(self) -> list[str]:
        return [i for batch in self.batches for i in batch["image_id"].to_pylist()]

    @cached_property
    def parts(self) -> list[np.ndarray]:
        """The rows of each batch, [images, n_captions], in the memory map."""
        return [
            batch["relevance"].flatten().to_numpy().reshape(-1, self.n_captions)
            for batch in self.batches
        ]

    def rows(self, images: np.ndarray) -> np.ndarray:
        """float32 [len(images), n_captions]: the rows of these image numbers."""
        return self.cells(images, slice(None))

    def cells(self, images: np.ndarray, captions: slice | np.ndarray) -> np.ndarray:
        """As `rows`, of a run of captions or of caption numbers alone: nothing else is read."""
        width = (
            len(range(self.n_captions)[captions]) if isinstance(captions, slice) else len(captions)
        )
        out = np.empty((len(images), width), np.float32)
        for number, places, rows in by_part(np.cumsum([0, *map(len, self.parts)]), images):
            out[places] = self.parts[number][
                rows if isinstance(captions, slice) else rows[:, None], captions
            ]
        return out

    def matrix(self) -> np.ndarray:
        """float32 [n_images, n_captions], all in memory."""
        return self.rows(np.arange(self.n_images))

    def span(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        least, most = ([one(part) for part in self.parts] for one in (np.min, np.max))
        return float(min(least)), float(max(most))

    def tensor(self, images: np.ndarray, captions: np.ndarray) -> None:
        """Nothing: its cells are in memory, not on a device."""

    def require(self, captions: Captions) -> None:
        """Refuse a file made for other captions: InputError when sizes, image ids or the digest
        differ."""
        if self.n_captions != captions.n_captions:
            problem = (
                f"{self.n_captions} captions per row, where the captions table has"
                f" {captions.n_captions}"
            )
        elif self.image_ids != captions.image_ids:
            problem = "its image ids are not those of the captions table, in the same order"
        elif self.metadata.get("captions", captions.digest) != captions.digest:
            problem = "computed for another version of the captions table (the checksums differ)"
        else:
            return
        raise InputError(
            problem, file=self.path, remedy="compute it for these captions: capgrade relevance"
        )


def read_relevance(path: Path) -> Relevance:
    """Open a dense relevance file. InputError when it is missing, truncated or of another kind."""
    reader = ArrowFile(path)
    names, kind = reader.schema.names, reader.columns.get("relevance", pa.null())
    if names != ["image_id", "relevance"] or not (
        pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type)
    ):
        raise InputError(f"not a relevance file (columns {', '.join(names)})", file=path)
    batches = [reader.get_batch(k) for k in range(reader.num_record_batches)]
    if any(
        batch["relevance"].null_count or batch["relevance"].flatten().null_count
        for batch in batches
    ):
        raise InputError("not a relevance file: values are missing", file=path)
    return Relevance(path, batches, reader.schema)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)
