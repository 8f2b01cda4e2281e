"""SCAN's `{split}_ims.npy` with `{split}_ids.txt`: one array of every image's features, no boxes."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from capgrade.pipelines.features.damage import AGAIN, Found, feature_array, quoted, refused
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.regions import Regions
from capgrade.schemas.scan_ids import read_ids

SUFFIX = "_ims.npy"
LARGEST = 2**28  # numbers per image: far beyond any, and a damaged shape asks for more memory than there is


def read_scan(path: Path) -> Iterator[Found]:
    """`{split}_ims.npy` float32 [rows, n, d], mapped and not loaded, and the image ids of `{split}_ids.txt` beside it.

    A row is an image, or five equal rows in turn are; the ids tell which: see `read_ids`. Boxes and sizes are None.
    Raises InputError for a truncated array, another shape or type, ids that do not fit its rows, and five rows that
    differ.
    """
    ids_path = ids_file(path, SUFFIX)
    with refused(path):
        rows = np.lib.format.open_memmap(path, mode="r")
    extra = path.stat().st_size - rows.offset - rows.nbytes
    if extra:
        raise InputError(f"{extra} bytes after the end of the array", file=path, remedy=AGAIN)
    yield from read_rows(rows, ids_path, path)


def write_scan(path: Path, images: Iterable[Regions]) -> int:
    """Write `{split}_ims.npy` and `{split}_ids.txt`; returns the rows.

    float16 becomes float32, the same numbers. InputError when images differ in their number of
    regions: this layout has one for all.
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
                shape, start = x.shape, _header(f, (0, *x.shape))
            if x.shape != shape:
                problem = f"image {regions.image_id!r} has {x.shape} features, {shape} before"
                raise InputError(problem, remedy="export as tsv or npz: this layout has one number of regions for all")
            f.write(x.tobytes())
            ids.write(f"{regions.image_id}\n".encode())
            rows += 1
        if shape is None:
            raise InputError("no image to write", file=path, remedy="check the input")
        f.seek(0)
        if _header(f, (rows, *shape)) != start:
            raise RuntimeError("numpy's header of a longer array has another length")
    return rows


def _header(f: BinaryIO, shape: tuple[int, ...]) -> int:
    """Write an npy header, which numpy pads so that the first side can grow; returns where the data begins."""
    np.lib.format.write_array_header_1_0(f, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return f.tell()


def ids_file(path: Path, suffix: str) -> Path:
    """`{split}_ids.txt` beside `{split}` + suffix. InputError for another name."""
    if not path.name.endswith(suffix):
        remedy = f"name the file itself, {{split}}{suffix}; its ids are read from {{split}}_ids.txt beside it"
        raise InputError(f"not a {suffix} file", file=path, remedy=remedy)
    return path.with_name(path.name.removesuffix(suffix) + "_ids.txt")


def read_rows(rows: Any, ids_path: Path, path: Path) -> Iterator[Found]:
    """Images of an array-like [rows, n, d] that is read a few rows at a time."""
    if len(rows.shape) != 3 or 0 in rows.shape or math.prod(rows.shape[1:]) > LARGEST:
        raise InputError(f"an array of shape {rows.shape}, not [images, regions, d]", file=path, remedy=AGAIN)
    feature_array(np.empty(0, rows.dtype), "the array", path)  # before any object in it is made
    ids, times = read_ids(ids_path, rows.shape[0], "rows of features")
    for k, image_id in enumerate(ids):
        first = k * times
        with refused(path, f"[{first}]"):
            block = np.asarray(rows[first : first + times])
        block = feature_array(block, "the array", path)
        yield Regions(image_id, None, None, None, block[0]), path, f"[{first}]"
        if times > 1 and not (block == block[0]).all():  # of what was found to be numbers
            problem = f"rows {first} to {first + times - 1} are one image by their ids and differ"
            raise InputError(problem, file=path, row=f"[{first}]", remedy="give the ids that belong to this array")


DATASET = "feat"
MOST_BYTES = 2**30  # of a chunk, unpacked: it is read whole for one row


def read_h5(path: Path) -> Iterator[Found]:
    """Dataset `feat` float32 [rows, n, d] of `{split}.h5`, read a few rows at a time (DAA, np2h.py).

    It is `{split}_ims.npy` under another name, so the image ids are those of SCAN's `{split}_ids.txt`, which has to
    lie beside it, and rows may come five times. Raises InputError as `read_scan` does, and for a missing dataset.
    Known limit: libhdf5 itself may not return from opening a dataset whose headers are damaged.
    """
    import h5py  # only this format needs it

    ids_path = ids_file(path, ".h5")
    with refused(path):
        path.open("rb").close()  # h5py's words for a missing file are long
        file = h5py.File(path, "r")
    with file:
        with refused(path):
            names = list(file)
            dataset = file.get(DATASET) if isinstance(file.get(DATASET, getlink=True), h5py.HardLink) else None
            elsewhere = isinstance(dataset, h5py.Dataset) and (dataset.external or dataset.is_virtual)
        if elsewhere:
            raise InputError(f"{DATASET!r} takes its numbers from other files", file=path, remedy="copy them into it")
        if not isinstance(dataset, h5py.Dataset):
            problem = f"no dataset {DATASET!r}: it has {quoted(names)}"
            raise InputError(problem, file=path, remedy="give the file that DAA's np2h.py writes")
        if dataset.chunks and math.prod(dataset.chunks) * dataset.dtype.itemsize > MOST_BYTES:
            raise InputError(f"chunks of shape {dataset.chunks}", file=path, remedy="write it again in smaller chunks")
        yield from read_rows(dataset, ids_path, path)
