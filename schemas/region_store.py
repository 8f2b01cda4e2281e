"""A regions folder read through the page cache, one image at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import in_order, metadata_of, open_arrow, read_manifest
from capgrade.schemas.regions import KIND, LISTS, Regions, region_schema


class RegionStore:
    """A finished regions folder: `store[17]` or `store["391895"]` is one image, mapped from disk and not copied.

    Arrays are read-only views; opening reads no feature, and a store may be sent to other processes.
    Raises InputError for a folder that is unfinished or damaged, and for an id that it does not have.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, KIND)
        readers = [open_arrow(self.folder / name) for name in in_order(self.manifest["files"])]
        for reader in readers:
            reader.need(pa.schema([]), ["dim", "dtype"])
            meta = metadata_of(reader.schema)
            with reader.whole():
                reader.need(region_schema(meta["dim"], meta["dtype"]))
        self.schema = readers[0].schema
        self.metadata = metadata_of(self.schema)
        batches = [reader.get_batch(k) for reader in readers for k in range(reader.num_record_batches)]
        self._batches = [_Batch(batch) for batch in batches]
        self._ends = np.cumsum([batch.num_rows for batch in batches])

    def __reduce__(self) -> tuple[type[RegionStore], tuple[Path]]:
        return RegionStore, (self.folder,)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __iter__(self) -> Iterator[Regions]:
        return chain.from_iterable(map(batch.row, range(batch.rows)) for batch in self._batches)

    def __contains__(self, image_id: str) -> bool:
        return image_id in self._index

    def __getitem__(self, key: int | str) -> Regions:
        k = self.index(key) if isinstance(key, str) else int(key)
        if not 0 <= k < len(self):
            raise IndexError(f"image {k} of {len(self)}")
        b = int(np.searchsorted(self._ends, k, side="right"))
        first = int(self._ends[b]) - self._batches[b].rows
        return self._batches[b].row(k - first)

    def require(self, captions: Captions) -> None:
        """InputError for regions of other splits whose image ids are row numbers, which fit every split."""
        split, numbers = self.metadata.get("split"), {str(k) for k in range(len(self))}
        asked = {captions.split, *captions.split.split("+")}
        if split and asked.isdisjoint({split, *split.split("+")}) and set(self.ids) == numbers:
            problem = f"regions of split '{split}' for captions of '{captions.split}', and ids that are row numbers"
            raise InputError(problem, file=self.folder, remedy="give the regions of the captions' split")

    def index(self, image_id: str) -> int:
        if image_id not in self._index:
            raise InputError(f"no image {image_id!r}", file=self.folder, remedy="extract its regions")
        return self._index[image_id]

    @cached_property
    def ids(self) -> list[str]:
        """Every image id in stored order."""
        return [image_id for batch in self._batches for image_id in batch.ids]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {image_id: k for k, image_id in enumerate(self.ids)}


class _Batch:
    """One record batch as numpy views, made when its first image is asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.rows = batch.num_rows
        self._batch = batch

    @property
    def ids(self) -> list[str]:
        return self._batch["image_id"].to_pylist()

    def row(self, i: int) -> Regions:
        return Regions(**{name: value_of(i) for name, value_of in self._columns.items()})

    @cached_property
    def _columns(self) -> dict[str, Callable[[int], Any]]:
        plain = {name: self._batch[name].to_pylist().__getitem__ for name in ("image_id", "width", "height")}
        return {**plain, **{name: _list_view(self._batch[name]) for name in ("boxes", "features", *LISTS)}}


def _list_view(column: pa.Array) -> Callable[[int], np.ndarray | None]:
    """From a row of a list column to its numpy array, or None where it is null; nothing is copied."""
    offsets = column.offsets.to_numpy()
    values = column.values
    if pa.types.is_fixed_size_list(values.type):
        flat = values.values.to_numpy().reshape(-1, values.type.list_size)
    else:
        flat = values.to_numpy()
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    return lambda i: flat[offsets[i] : offsets[i + 1]] if valid is None or valid[i] else None
