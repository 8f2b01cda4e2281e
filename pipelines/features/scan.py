"""SCAN's `{split}_ims.npy` with `{split}_ids.txt`: one array of every image's features, no
boxes."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from capgrade.pipelines.features.damage import (
    FETCH_AGAIN,
    ImageEntry,
    feature_array,
    quote_names,
)
from capgrade.schemas.arrays import map_npy, read_npz
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading
from capgrade.schemas.regions import Regions
from capgrade.schemas.scan_ids import match_ids, read_ids

SUFFIX = "_ims.npy"
WHAT = "rows of features"
OF_ANY_NUMBER = (
    "export as tsv or npz, which hold any number of regions: a small picture may have fewer than"
    " --boxes asked for"
)
# Numbers of one image: none has as many, but a damaged shape may claim more than fits in memory.
_LARGEST = 2**28


def read_scan(path: Path) -> Iterator[ImageEntry]:
    """`{split}_ims.npy` float32 [rows, n, d], memory-mapped, with the image ids of
    `{split}_ids.txt` beside it.

    An image is a row or five equal rows, as the ids tell: see `read_ids`. Boxes and sizes are None.
    Raises InputError for a truncated array, another shape or type, ids that do not fit its rows,
    and five rows that differ.
    """
    ids_path = ids_file(path, SUFFIX)
    rows = map_npy(path)
    yield from _read_rows(rows, path, lambda: read_ids(ids_path, len(rows), WHAT))


def read_own_array(path: Path, ids_path: Path | None = None) -> Iterator[ImageEntry]:
    """A user's own array [N, n, d], or [N, d] with one region an image: a .npy file with one id a
    line in `ids_path`, or an .npz file that also holds `ids` [N]. An image may be five equal rows,
    as in `read_scan`.

    Raises InputError as `read_scan` does, and where the ids are missing.
    """
    rows, stored = _load_npz(path) if path.suffix == ".npz" else (map_npy(path), None)
    if (stored is None) == (ids_path is None):
        problem = "a file of ids beside a file that has ids"
        if stored is None:
            problem = "an array without its image ids"
        remedy = (
            "give --set regions.ids=FILE, a text file with one id a line in the order of the array,"
            " or leave it out of an .npz"
        )
        raise InputError(problem, file=path, remedy=remedy)
    if ids_path is not None and not ids_path.is_file():
        raise InputError("no such file", file=ids_path, remedy="check the path")

    def ids_of() -> tuple[list[str], int]:
        if ids_path is not None:
            return read_ids(ids_path, len(rows), WHAT)
        assert stored is not None  # else the ids were missing
        return match_ids([str(image_id) for image_id in stored.tolist()], len(rows), WHAT, path)

    yield from _read_rows(rows[:, None] if rows.ndim == 2 else rows, path, ids_of)


def _load_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The features and the ids of an .npz file."""

    def choose(names: list[str]) -> list[str]:
        others = [key for key in names if key != "ids"]
        if len(others) != 1 or "ids" not in names:
            remedy = "save it with np.savez(file, features=array, ids=ids)"
            problem = f"not one array and `ids`: it has {quote_names(names)}"
            raise InputError(problem, file=path, remedy=remedy)
        return [*others, "ids"]

    features, ids = read_npz(path, choose).values()
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        problem = f"ids of shape {ids.shape} and type {ids.dtype}, not a list of numbers or texts"
        remedy = "save ids as one array of whole numbers or texts"
        raise InputError(problem, file=path, remedy=remedy)
    return features, ids


def write_scan(path: Path, images: Iterable[Regions]) -> int:
    """Write `{split}_ims.npy` and `{split}_ids.txt`; returns the rows.

    float16 becomes float32 without a change. InputError where images differ in their number of
    regions, because one array holds them all.
    """
    ids_path = ids_file(path, SUFFIX)
    rows = 0
    shape: tuple[int, ...] | None = None
    with (
        atomic(ids_path) as ids_temporary,
        atomic(path) as temporary,
        ids_temporary.open("wb") as ids,
        temporary.open("wb") as f,
    ):
        start = 0
        for regions in images:
            x = regions.check().features.astype("<f4")
            if shape is None:
                shape, start = x.shape, _write_header(f, (0, *x.shape))
            if x.shape != shape:
                problem = f"image {regions.image_id!r} has {x.shape} features, {shape} before"
                raise InputError(problem, remedy=OF_ANY_NUMBER)
            f.write(x.tobytes())
            ids.write(f"{regions.image_id}\n".encode())
            rows += 1
        if shape is None:
            raise InputError("no image to write", file=path, remedy="check the input")
        f.seek(0)
        if _write_header(f, (rows, *shape)) != start:
            raise RuntimeError("numpy's header of a longer array has another length")
    return rows


def _write_header(f: BinaryIO, shape: tuple[int, ...]) -> int:
    """Write an npy header, which numpy pads so that the first side can grow; returns where the data
    begins."""
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(f, fields)
    return f.tell()


def ids_file(path: Path, suffix: str) -> Path:
    """`{split}_ids.txt` beside `{split}` + suffix. InputError for another name."""
    if not path.name.endswith(suffix):
        remedy = f"name the file itself, {{split}}{suffix}"
        remedy += "; its ids are read from {split}_ids.txt beside it"
        if suffix == SUFFIX:
            remedy += "; an array of your own is of the format npy, with a file of ids"
        raise InputError(f"not a {suffix} file", file=path, remedy=remedy)
    return path.with_name(path.name.removesuffix(suffix) + "_ids.txt")


def _read_rows(
    rows: Any, path: Path, ids_of: Callable[[], tuple[list[str], int]]
) -> Iterator[ImageEntry]:
    """Images of an array-like [rows, n, d] that is read a few rows at a time; `ids_of` returns
    their ids, and how many equal rows each image has."""
    shape = rows.shape or ()  # None of an h5 dataset without numbers
    if len(shape) != 3 or 0 in shape or math.prod(shape[1:]) > _LARGEST:
        problem = f"an array of shape {shape}, not [images, regions, d]"
        raise InputError(problem, file=path, remedy=FETCH_AGAIN)
    # The type is checked here, before a row of it is read: Python objects could be in it.
    feature_array(np.empty(0, rows.dtype), "the array", path)
    ids, times = ids_of()
    for k, image_id in enumerate(ids):
        first, row = k * times, f"[{k * times}]"
        read = partial(_read_image, rows, first, times, image_id, path, row)
        yield ImageEntry(image_id, path, row, read)


def _read_image(rows: Any, first: int, times: int, image_id: str, path: Path, row: str) -> Regions:
    with reading(path, row=row):
        block = np.asarray(rows[first : first + times])
    block = feature_array(block, "the array", path)
    if np.isfinite(block[0]).all() and not (block == block[0]).all():
        problem = f"rows {first} to {first + times - 1} are one image by their ids and differ"
        remedy = "give the ids that belong to this array"
        raise InputError(problem, file=path, row=row, remedy=remedy)
    return Regions(image_id, None, None, None, block[0])


DATASET = "feat"
_MOST_BYTES = 2**28  # of an unpacked chunk, all of which is read for one row


def read_h5(path: Path) -> Iterator[ImageEntry]:
    """Dataset `feat` float32 [rows, n, d] of `{split}.h5`, read a few rows at a time (DAA,
    np2h.py).

    It is `{split}_ims.npy` in another format: image ids are those of SCAN's `{split}_ids.txt`
    beside it, and an image may be five equal rows. Raises InputError as `read_scan` does, and for a
    missing dataset. libhdf5 itself may hang on a dataset whose headers are damaged.
    """
    import h5py  # Only this format needs h5py.

    ids_path = ids_file(path, ".h5")
    open_bytes(path).close()
    with reading(path):
        file = h5py.File(path, "r")
    with file:
        with reading(path):
            names = list(file)
            is_hard = isinstance(file.get(DATASET, getlink=True), h5py.HardLink)
            dataset = file.get(DATASET) if is_hard else None
            is_elsewhere = isinstance(dataset, h5py.Dataset) and (
                dataset.external or dataset.is_virtual
            )
        if is_elsewhere:
            problem = f"{DATASET!r} takes its numbers from other files"
            raise InputError(problem, file=path, remedy="copy them into it")
        if not isinstance(dataset, h5py.Dataset):
            problem = f"no dataset {DATASET!r}: it has {quote_names(names)}"
            raise InputError(problem, file=path, remedy="give the file that DAA's np2h.py writes")
        with reading(path):
            chunks, of_number = dataset.chunks, dataset.dtype.itemsize
        if chunks and math.prod(chunks) * of_number > _MOST_BYTES:
            problem = f"chunks of shape {chunks}"
            raise InputError(problem, file=path, remedy="write it again in smaller chunks")
        yield from _read_rows(dataset, path, lambda: read_ids(ids_path, len(dataset), WHAT))
