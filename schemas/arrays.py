"""Arrays of others: tensors, mapped .npy files, and .npz archives within a limit."""

import mmap
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import FETCH_AGAIN, reading, refuse_archive

Array: TypeAlias = npt.NDArray[Any]
_PART = 2**24  # cells

# numpy writes no other. Those unpack whatever they are given, however little is asked of them.
_PACKED_BY = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


def map_npy(path: Path, remedy: str = FETCH_AGAIN) -> np.ndarray:
    """The array of a .npy file, memory-mapped. InputError for another file, for Python objects, and
    for one that is too short or too long."""
    open_bytes(path).close()
    with reading(path, remedy=remedy):
        array = np.lib.format.open_memmap(path, mode="r")
        extra = path.stat().st_size - array.offset - array.nbytes
    if extra:
        problem = f"{extra} bytes after the end of the array"
        raise InputError(problem, file=path, remedy=FETCH_AGAIN)
    return array


def read_npy(path: Path, remedy: str = FETCH_AGAIN) -> np.ndarray:
    """The array of a .npy file, in memory. InputError as `map_npy`."""
    return np.array(map_npy(path, remedy))


def release(array: np.ndarray) -> None:
    """Take what was read of a mapped .npy file out of this process's memory; the system may keep
    it. Of any other array nothing happens. A process that reads a file of 17 GB in parts so holds a
    part at a time."""
    read_only, base = False, cast(Any, array)
    while isinstance(base, np.ndarray):
        read_only |= isinstance(base, np.memmap) and base.mode == "r"
        base = base.base
    if read_only and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def as_numpy(values: Any) -> np.ndarray:
    """The numbers as a numpy array. A tensor may lie on any device, and its bfloat16 become
    float32. InputError for a masked array, whose masked cells numpy would take as numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError("a masked array", remedy="fill it: scores.filled(-numpy.inf)")
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
        return np.asarray(values.numpy())
    return np.asarray(values)


def row_parts(matrix: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of a matrix one after the other, as many at a time as have `_PART` cells; those of a
    mapped file leave the memory of this process again."""
    step = max(1, _PART // max(1, matrix[:1].size))
    for start in range(0, len(matrix), step):
        yield matrix[start : start + step]
        release(matrix)


def read_npz(
    path: Path,
    choose: Callable[[list[str]], Iterable[str]],
    *,
    most: int | None = None,
    remedy: str = FETCH_AGAIN,
) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name; `choose` gets all names, and those that it returns are read.

    InputError for another file, for Python objects, for a member that is no array, and for one that
    unpacks to more than `refuse_unpacked` lets pass, or than `most` bytes.
    """
    with open_bytes(path) as file:
        with reading(path, remedy=remedy):
            archive = zipfile.ZipFile(file)
            sizes = [member.file_size for member in archive.infolist()]
            packed = {member.compress_type for member in archive.infolist()}
        refuse_archive(archive, path)
        if most is not None and sum(sizes) > most:
            problem = f"{sum(sizes):,} bytes when unpacked; at most {most:,} are read"
            raise InputError(problem, file=path, remedy=remedy)
        if packed - _PACKED_BY:
            problem = "packed in a way that numpy does not pack"
            raise InputError(problem, file=path, remedy=remedy)
        with reading(path, remedy=remedy):
            stored = np.lib.npyio.NpzFile(file, allow_pickle=False)
        names = list(choose(stored.files))
        with reading(path, remedy=remedy):
            arrays = {name: stored[name] for name in names}
    # NpzFile returns the bytes of a member that is no array.
    if odd := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise InputError(f"{odd[0]!r} is a key that is not a numpy array", file=path, remedy=remedy)
    return arrays
