"""Arrays of others in numpy's files: mapped .npy files, and .npz archives within a limit."""

import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import FETCH_AGAIN, reading, refuse_archive

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
