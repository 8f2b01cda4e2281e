"""A regions folder read through the page cache, one image at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import in_order, metadata_of, open_arrow, read_manifest
from capgrade.schemas.image_matching import ImageMatches, match_images
from capgrade.schemas.left_out import UNREADABLE
from capgrade.schemas.regions import LISTS, REGIONS_KIND, Regions, region_schema

_COLUMNS = ("image_id", "width", "height", "boxes", "features", *LISTS)


class RegionStore:
    """A finished regions folder: `store[17]` or `store["391895"]` is one image, mapped from disk
    and not copied.

    Arrays are read-only views; opening reads no feature, and a store may be sent to other
    processes. Raises InputError for a folder that is unfinished or damaged, and for an id that it
    does not have.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, REGIONS_KIND)
        readers = [open_arrow(self.folder / name) for name in in_order(self.manifest["files"])]
        readers[0].need(pa.schema([]), ["dim", "dtype"])
        self.metadata = metadata_of(readers[0].schema)
        for reader in readers:
            with reader.refuse_damaged():
                reader.need(region_schema(self.metadata["dim"], self.metadata["dtype"]))
        table = pa.concat_tables([reader.read_all().select(_COLUMNS) for reader in readers])
        self._columns = {name: table[name] for name in _COLUMNS}
        self.ids: list[str] = table["image_id"].to_pylist()  # in stored order
        self.names = self.ids  # what the images are called

    def __reduce__(self) -> tuple[type[RegionStore], tuple[Path]]:
        return RegionStore, (self.folder,)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Regions]:
        return map(self.__getitem__, range(len(self)))

    def __contains__(self, image_id: str) -> bool:
        return image_id in self._index

    def __getitem__(self, key: int | str) -> Regions:
        k = self.index(key) if isinstance(key, str) else int(key)
        if not 0 <= k < len(self):
            raise IndexError(f"image {k} of {len(self)}")
        return Regions(**{name: _value(column[k]) for name, column in self._columns.items()})

    def require(self, captions: Captions) -> None:
        """InputError for regions of other splits if ids are row numbers, which fit any split."""
        split, asked = self.metadata.get("split"), {captions.split, *captions.split.split("+")}
        if not split or not asked.isdisjoint({split, *split.split("+")}):
            return
        if set(self.ids) == {str(k) for k in range(len(self))}:
            problem = (
                f"regions of split '{split}' for captions of '{captions.split}', and ids that are"
                " row numbers"
            )
            raise InputError(
                problem, file=self.folder, remedy="give the regions of the captions' split"
            )

    def match(self, images: Mapping[str, str | None]) -> ImageMatches:
        """The row of each image in the store, by `match_images`."""
        return match_images(images, self.ids, self.folder)

    def reasons(self, images: Mapping[str, str | None]) -> dict[str, str]:
        """Why these images are not here, of those that the stage left out: the reason by image
        id."""
        known = {
            one["image_id"]: one.get("reason", UNREADABLE)
            for one in self.manifest.get("left_out") or ()
        }
        numbers, why = match_images(images, known, self.folder).numbers, list(known.values())
        return {image_id: why[k] for image_id, k in numbers.items()}

    def unreadable(self, numbers: Sequence[int]) -> set[int]:
        """None: what is stored was read."""
        return set()

    def index(self, image_id: str) -> int:
        if image_id not in self._index:
            raise InputError(
                f"no image {image_id!r}", file=self.folder, remedy="extract its regions"
            )
        return self._index[image_id]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {image_id: k for k, image_id in enumerate(self.ids)}


def _value(cell: pa.Scalar) -> Any:
    """A list as a numpy array [n] or [n, width] that copies nothing; None for null.

    A value that is no list stays as it is.
    """
    if not isinstance(cell, pa.ListScalar) or not cell.is_valid:
        return cell.as_py()
    values = cell.values
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy().reshape(-1, values.type.list_size)
    return values.to_numpy()
