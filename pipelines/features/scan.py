"""SCAN's `{split}_ims.npy` with `{split}_ids.txt`: one array of every image's features, no
boxes."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from capgrade.pipelines.features.damage import FETCH_AGAIN, Found, feature_array, quoted, refused
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.regions import Regions
from capgrade.schemas.scan_ids import match_ids, read_ids

SUFFIX = "_ims.npy"
WHAT = "rows of features"
OF_ANY_NUMBER = (
    "export as tsv or npz, which hold any number of regions: a small picture may have fewer than"
    " --boxes asked for"
)
# numbers per image: far beyond any, and a damaged shape asks for more memory than there is
_LARGEST = 2**28


def read_scan(path: Path) -> Iterator[Found]:
    """`{split}_ims.npy` float32 [rows, n, d], mapped and not loaded, and the image ids of
    `{split}_ids.txt` beside it.

    A row is an image, or five equal rows in turn are; the ids tell which: see `read_ids`. Boxes and
    sizes are None. Raises InputError for a truncated array, another shape or type, ids that do not
    fit its rows, and five rows that differ.
    """
    ids_path = ids_file(path, SUFFIX)
    rows = _mapped(path)
    yield from read_rows(rows, path, lambda: read_ids(ids_path, len(rows), WHAT))


def read_npy(path: Path, ids_path: Path | None = None) -> Iterator[Found]:
    """One's own array [N, n, d], or [N, d] with one region an image: a .npy file, and one id a line
    in `ids_path`; or an .npz file of two arrays, the other one `ids` [N]. Rows may come five times
    in turn, as in `read_scan`.

    Raises InputError as `read_scan` does, and where the ids are missing.
    """
    rows, stored = _of_npz(path) if path.suffix == ".npz" else (_mapped(path), None)
    if (stored is None) == (ids_path is None):
        problem = (
            "an array without its image ids"
            if stored is None
            else "--ids beside a file that has ids"
        )
        remedy = (
            "give --ids FILE, a text file with one id a line in the order of the array, or leave it"
            " out of an .npz"
        )
        raise InputError(problem, file=path, remedy=remedy)
    if ids_path is None:
        ids = [str(one) for one in ([] if stored is None else stored.tolist())]
        names: Callable[[], tuple[list[str], int]] = lambda: match_ids(ids, len(rows), WHAT, path)  # noqa: E731
    else:
        if not ids_path.is_file():
            raise InputError("no such file", file=ids_path, remedy="check the path")
        where = ids_path
        names = lambda: read_ids(where, len(rows), WHAT)  # noqa: E731
    yield from read_rows(rows[:, None] if rows.ndim == 2 else rows, path, names)


def _mapped(path: Path) -> np.ndarray:
    """The array of a .npy file, which is not loaded; InputError for one that is cut short or goes
    on."""
    with refused(path):
        rows = np.lib.format.open_memmap(path, mode="r")
    extra = path.stat().st_size - rows.offset - rows.nbytes
    if extra:
        raise InputError(f"{extra} bytes after the end of the array", file=path, remedy=FETCH_AGAIN)
    return rows


def _of_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The features and the ids of an .npz file."""
    with refused(path), np.load(path, allow_pickle=False) as npz:
        others = [key for key in npz.files if key != "ids"]
        if len(others) != 1 or "ids" not in npz.files:
            remedy = "save it with np.savez(file, features=array, ids=ids)"
            raise InputError(
                f"not one array and `ids`: it has {quoted(npz.files)}", file=path, remedy=remedy
            )
        features, ids = npz[others[0]], npz["ids"]
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        problem = f"ids of shape {ids.shape} and type {ids.dtype}, not a list of numbers or texts"
        raise InputError(
            problem, file=path, remedy="save ids as one array of whole numbers or texts"
        )
    return features, ids


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
                raise InputError(problem, remedy=OF_ANY_NUMBER)
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
    """Write an npy header, which numpy pads so that the first side can grow; returns where the data
    begins."""
    np.lib.format.write_array_header_1_0(
        f, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    return f.tell()


def ids_file(path: Path, suffix: str) -> Path:
    """`{split}_ids.txt` beside `{split}` + suffix. InputError for another name."""
    if not path.name.endswith(suffix):
        remedy = (
            f"name the file itself, {{split}}{suffix}; its ids are read from {{split}}_ids.txt"
            " beside it"
        )
        remedy += "; for an array of your own: --format npy --ids FILE" if suffix == SUFFIX else ""
        raise InputError(f"not a {suffix} file", file=path, remedy=remedy)
    return path.with_name(path.name.removesuffix(suffix) + "_ids.txt")


def read_rows(
    rows: Any, path: Path, ids_of: Callable[[], tuple[list[str], int]]
) -> Iterator[Found]:
    """Images of an array-like [rows, n, d] that is read a few rows at a time; `ids_of` gives their
    ids, and how many rows in turn are an image."""
    if len(rows.shape) != 3 or 0 in rows.shape or math.prod(rows.shape[1:]) > _LARGEST:
        raise InputError(
            f"an array of shape {rows.shape}, not [images, regions, d]",
            file=path,
            remedy=FETCH_AGAIN,
        )
    feature_array(np.empty(0, rows.dtype), "the array", path)  # before any object in it is made
    ids, times = ids_of()
    for k, image_id in enumerate(ids):
        row = f"[{k * times}]"
        yield Found(
            image_id, path, row, partial(_read_rows, rows, k * times, times, image_id, path, row)
        )


def _read_rows(rows: Any, first: int, times: int, image_id: str, path: Path, row: str) -> Regions:
    with refused(path, row):
        block = np.asarray(rows[first : first + times])
    block = feature_array(block, "the array", path)
    if np.isfinite(block[0]).all() and not (block == block[0]).all():
        problem = f"rows {first} to {first + times - 1} are one image by their ids and differ"
        raise InputError(
            problem, file=path, row=row, remedy="give the ids that belong to this array"
        )
    return Regions(image_id, None, None, None, block[0])


DATASET = "feat"
_MOST_BYTES = 2**30  # of a chunk, unpacked: it is read whole for one row


def read_h5(path: Path) -> Iterator[Found]:
    """Dataset `feat` float32 [rows, n, d] of `{split}.h5`, read a few rows at a time (DAA,
    np2h.py).

    It is `{split}_ims.npy` under another name, so the image ids are those of SCAN's
    `{split}_ids.txt`, which has to lie beside it, and rows may come five times. Raises InputError
    as `read_scan` does, and for a missing dataset. Known limit: libhdf5 itself may not return from
    opening a dataset whose headers are damaged.
    """
    import h5py  # only this format needs it

    ids_path = ids_file(path, ".h5")
    with refused(path):
        path.open("rb").close()  # h5py's words for a missing file are long
        file = h5py.File(path, "r")
    with file:
        with refused(path):
            names = list(file)
            dataset = (
                file.get(DATASET)
                if isinstance(file.get(DATASET, getlink=True), h5py.HardLink)
                else None
            )
            elsewhere = isinstance(dataset, h5py.Dataset) and (
                dataset.external or dataset.is_virtual
            )
        if elsewhere:
            raise InputError(
                f"{DATASET!r} takes its numbers from other files",
                file=path,
                remedy="copy them into it",
            )
        if not isinstance(dataset, h5py.Dataset):
            problem = f"no dataset {DATASET!r}: it has {quoted(names)}"
            raise InputError(problem, file=path, remedy="give the file that DAA's np2h.py writes")
        if dataset.chunks and math.prod(dataset.chunks) * dataset.dtype.itemsize > _MOST_BYTES:
            raise InputError(
                f"chunks of shape {dataset.chunks}",
                file=path,
                remedy="write it again in smaller chunks",
            )
        yield from read_rows(dataset, path, lambda: read_ids(ids_path, len(dataset), WHAT))
