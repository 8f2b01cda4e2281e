"""Regions of images: what a detector found in each, checked, written as Arrow shards, and read from
them one image at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from capgrade.schemas.arrow import ArrowFile, metadata_of, with_metadata, write_arrow
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import by_size, in_order, read_manifest, write_manifest
from capgrade.schemas.image_matching import ImageMatches, match_images, well_formed
from capgrade.schemas.left_out import UNREADABLE
from capgrade.schemas.output import output_folder

REGIONS_KIND = "regions"
BATCH_BYTES = 32 * 2**20  # a record batch of a shard: what the writer holds in memory
# Below it float16 has steps of one size, so that a relative error says nothing.
FLOAT16_NORMAL = 2.0**-14
# Pixels, and a share of the side: rounded resize factors push boxes a little beyond the edge.
OUTSIDE = (2.0, 0.02)
IN_SHARES = 1.5  # pixels: all boxes of an image end before it only if they are in 0..1
LEAST_SIDE = 8  # pixels, of a picture in which that tells
IN_PIXELS = "multiply x1 and x2 by the picture's width, y1 and y2 by its height"
DAMAGED = "the file is damaged or in another format: make it again, or leave this image out"

Dtype = Literal["float16", "float32"]
LISTS = {
    "classes": "int32",
    "confidences": "float32",
    "attributes": "int32",
    "attribute_confidences": "float32",
}
_COLUMNS = ("image_id", "width", "height", "boxes", "features", *LISTS)


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """The regions of one image; None for what a format does not have.

    boxes float32 [n, 4]: x1, y1, x2, y2 in pixels of the original image; features float32 or
    float16 [n, d]; classes and attributes int32 [n], counted from 0 without the background class
    and without "no attribute"; the confidences float32 [n]. n is at least 1 and may differ between
    images, d may not.
    """

    image_id: str
    width: int | None
    height: int | None
    boxes: np.ndarray | None
    features: np.ndarray
    classes: np.ndarray | None = None
    confidences: np.ndarray | None = None
    attributes: np.ndarray | None = None
    attribute_confidences: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.features)

    def check(self, *, file: str | Path | None = None, row: int | str | None = None) -> Regions:
        """Itself, when every count, shape, type and value is right. InputError names the image."""
        problem = next(self._problems(), None)
        if problem is None:
            return self
        remedy = IN_PIXELS if "in shares" in problem else DAMAGED
        raise InputError(f"image {self.image_id!r}: {problem}", file=file, row=row, remedy=remedy)

    def _problems(self) -> Iterator[str]:
        if not well_formed(self.image_id):
            yield "an image id has visible characters and no space around it"
        for side in (self.width, self.height):
            if side is not None and not 0 < side < 2**31:
                yield f"a size of {self.width} x {self.height} pixels"
        x = self.features
        if x.ndim != 2 or 0 in x.shape or x.dtype.name not in ("float16", "float32"):
            yield f"features of shape {x.shape} and type {x.dtype}, not float [n, d] with n >= 1"
        if not np.isfinite(x).all():
            yield f"{np.count_nonzero(~np.isfinite(x))} feature values are NaN or infinite"
        yield from self._box_problems()
        for name, dtype in LISTS.items():
            values = getattr(self, name)
            if values is None:
                continue
            if values.shape != (len(x),) or values.dtype != dtype:
                yield (
                    f"{name} of shape {values.shape} and type {values.dtype} for {len(x)} regions,"
                    f" not {dtype}"
                )
            if not np.isfinite(values).all():
                yield f"{name} has a value that is NaN or infinite"
            if dtype == "int32" and values.min(initial=0) < 0:
                yield f"{name} has a negative number"

    def _box_problems(self) -> Iterator[str]:
        boxes, n = self.boxes, len(self)
        if boxes is None:
            return
        if boxes.shape != (n, 4) or boxes.dtype != np.float32:
            yield (
                f"boxes of shape {boxes.shape} and type {boxes.dtype} for {n} regions, not float32"
                f" [{n}, 4]"
            )
        if not np.isfinite(boxes).all():
            yield "a box has a coordinate that is NaN or infinite"
        if (boxes[:, :2] > boxes[:, 2:]).any():
            yield (
                f"box {boxes[(boxes[:, :2] > boxes[:, 2:]).any(1)][0].tolist()} is not x1, y1,"
                " x2, y2"
            )
        if (
            boxes.max() <= IN_SHARES
            and max(self.width or LEAST_SIDE, self.height or LEAST_SIDE) >= LEAST_SIDE
        ):
            yield (
                f"no box reaches beyond {boxes.max():g} pixels: boxes in shares of the sides"
                " (0..1), not in pixels"
            )
        if self.width and self.height:
            side = np.tile(np.array([self.width, self.height], np.float32), 2)
            slack = OUTSIDE[0] + OUTSIDE[1] * side
            out = ((boxes < -slack) | (boxes > side + slack)).any(1)
            if out.any():
                yield (
                    f"box {boxes[out][0].tolist()} lies outside the image of {self.width} x"
                    f" {self.height} pixels"
                )


def region_schema(dim: int, dtype: Dtype, metadata: dict[str, Any] | None = None) -> pa.Schema:
    """The schema of a row per image, with `dim` features per region.

    Their list has 64-bit offsets, so no shard is too large.
    """
    feature = pa.list_(pa.float16() if dtype == "float16" else pa.float32(), dim)
    fields = [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("boxes", pa.list_(pa.list_(pa.float32(), 4))),
        pa.field("features", pa.large_list(feature), nullable=False),
    ]
    for name, kind in LISTS.items():
        fields.append(pa.field(name, pa.list_(pa.from_numpy_dtype(kind))))
    return with_metadata(
        pa.schema(fields), {"kind": REGIONS_KIND, "dtype": dtype, "dim": dim, **(metadata or {})}
    )


@dataclass
class Rounding:
    """How many regions were stored, and the largest errors of their features.

    Errors are absolute, and relative to values that float16 holds as normal numbers.
    """

    regions: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0

    def stored(self, regions: Regions, dtype: Dtype) -> np.ndarray:
        """The features as `dtype`, their error counted. InputError for a value that float16 cannot
        hold."""
        x = regions.features
        self.regions += len(x)
        if x.dtype == dtype or dtype == "float32":
            return x.astype(dtype, copy=False)
        with np.errstate(over="ignore"):
            y = x.astype(np.float16)
        if not np.isfinite(y).all():
            problem = (
                f"image {regions.image_id!r}: feature value {np.abs(x).max():g} is beyond float16"
                " (65504)"
            )
            raise InputError(problem, remedy="store the features as float32")
        size = np.abs(x)
        error = np.abs(y.astype(np.float32) - x)
        relative = np.divide(error, size, out=np.zeros_like(error), where=size >= FLOAT16_NORMAL)
        self.max_abs = max(self.max_abs, float(error.max()))
        self.max_rel = max(self.max_rel, float(relative.max()))
        return y


def write_regions(
    out: Path,
    images: Iterable[Regions],
    *,
    dtype: Dtype = "float16",
    target_mb: int = 512,
    metadata: dict[str, Any] | None = None,
    inputs: dict[str, str] | None = None,
    stage: str = REGIONS_KIND,
    left_out: Sequence[dict[str, str]] = (),
) -> dict[str, Any]:
    """Write shards `regions-00000.arrow`, ... of about `target_mb`, and the manifest; return it.

    `stage` says what wrote the folder: only the same may replace it (`output_folder`). `left_out`
    lists the images that are not among `images`; it may grow while they are read. The manifest's
    `rounding` is as of `Rounding`. Image ids have to differ, and feature lengths to be one. Raises
    InputError for no image, and as `output_folder` and `Regions.check`.
    """
    if dtype not in ("float16", "float32") or target_mb < 1:
        raise InputError(
            f"dtype {dtype}, target_mb {target_mb}",
            remedy="choose float16 or float32, at least 1 MB",
        )
    with output_folder(out, stage) as folder:
        source = iter(images)
        first = next(source, None)
        if first is None:
            raise InputError("no image to write", file=out, remedy="check the input")
        schema = region_schema(first.check().features.shape[1], dtype, metadata)
        rounding = Rounding()
        target = target_mb * 2**20
        checked = (regions.check() for regions in chain([first], source))
        batches = region_batches(checked, schema, rounding, min(target, BATCH_BYTES))
        rows = {}
        for k, batch in enumerate(batches):
            name = region_shard_name(k)
            rows[name] = write_arrow(folder / name, schema, _up_to(target, chain([batch], batches)))
        params = {"dtype": dtype, "target_mb": target_mb, **(metadata or {})}
        return write_manifest(
            folder,
            REGIONS_KIND,
            params=params,
            inputs=inputs or {},
            rows=rows,
            regions=rounding.regions,
            dim=metadata_of(schema)["dim"],
            stage=stage,
            left_out=list(left_out),
            rounding={"max_abs": rounding.max_abs, "max_rel": rounding.max_rel},
        )


def region_shard_name(number: int) -> str:
    """The name of the shard with this number, from 0."""
    return f"regions-{number:05d}.arrow"


def region_batches(
    images: Iterable[Regions], schema: pa.Schema, rounding: Rounding, limit: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Images as record batches of `region_schema`, each of about `limit` bytes of features.

    The images are checked, and their features as long as the schema says. InputError as
    `Rounding.stored`.
    """
    dtype = metadata_of(schema)["dtype"]
    kind, width = schema.field("features").type, np.dtype(dtype).itemsize
    for group in by_size(images, lambda regions: regions.features.size * width, limit):
        features, ends = [], [0]
        for regions in group:
            features.append(rounding.stored(regions, dtype))
            ends.append(ends[-1] + len(regions))
        numbers = pa.array(np.concatenate(features).reshape(-1))
        of_regions = pa.FixedSizeListArray.from_arrays(numbers, type=kind.value_type)
        columns = []
        for field in schema:
            if field.name == "features":
                ends_column = pa.array(ends, pa.int64())
                columns.append(pa.LargeListArray.from_arrays(ends_column, of_regions, type=kind))
                continue
            values = [getattr(regions, field.name) for regions in group]
            if field.name == "boxes":  # Arrow takes a list of rows, but no matrix.
                values = [boxes if boxes is None else list(boxes) for boxes in values]
            columns.append(pa.array(values, field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _up_to(target: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        yield batch
        size += batch.nbytes
        if size >= target:
            return


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
        readers = [ArrowFile(self.folder / name) for name in in_order(self.manifest["files"])]
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
