"""What readers share: an image and its place, and what libraries raise on damaged files as the one
error users see."""

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import LISTS, Regions

FETCH_AGAIN = "download or make the file again"
# What MILVLG's npz files and LXMERT's rows call the lists of `Regions`.
KEYS_OF_LISTS = dict(
    zip(("objects_id", "objects_conf", "attrs_id", "attrs_conf"), LISTS, strict=True)
)
_RAISED = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)


@dataclass(frozen=True, slots=True)
class Found:
    """An image of a feature file and its place, not read yet: `read` gives its regions, or raises
    InputError."""

    image_id: str  # empty where the row does not even give that
    file: Path
    row: int | str | None
    read: Callable[[], Regions]


@contextmanager
def refused(path: Path, row: int | str | None = None) -> Iterator[None]:
    """Turn an error of numpy, zipfile, h5py or the system inside the block into InputError about
    `path`."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", file=path, row=row, remedy="check the path") from None
    except IsADirectoryError:
        raise InputError(
            "a folder where a file is needed", file=path, row=row, remedy="name the file in it"
        ) from None
    except _RAISED as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot be read ({text})", file=path, row=row, remedy=FETCH_AGAIN
        ) from None


def quoted(names: Iterable[object]) -> str:
    """What a file has, quoted: a damaged one may have names that are not printable, or not text."""
    return ", ".join(map(repr, names)) or "none"


def feature_array(array: np.ndarray, what: str, path: Path) -> np.ndarray:
    """float16 or float32 as it is, in the machine's byte order; float64 rounded to float32, what is
    beyond it to infinity, which is refused later. InputError for any other type."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        remedy = "convert it with numpy: astype('float32')"
        raise InputError(f"{what} is of type {array.dtype}, not float32", file=path, remedy=remedy)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(
            array, np.float32 if array.dtype.itemsize == 8 else array.dtype.newbyteorder("=")
        )


def box_array(array: np.ndarray, what: str, path: Path) -> np.ndarray:
    """Boxes as float32; whole numbers and float64 are accepted, to within float32's 1e-4 of a
    pixel."""
    if array.dtype.kind not in "fiu":
        raise InputError(
            f"{what} is of type {array.dtype}, not numbers", file=path, remedy=FETCH_AGAIN
        )
    return np.ascontiguousarray(array, np.float32)


def exact(
    array: np.ndarray, dtype: str, what: str, path: Path, row: int | None = None
) -> np.ndarray:
    """The same numbers as `dtype`; InputError where they are not."""
    if array.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            same: np.ndarray = array.astype(dtype)
        if np.array_equal(same, array, equal_nan=True):
            return same
    raise InputError(
        f"{what} of type {array.dtype} is not {dtype}", file=path, row=row, remedy=FETCH_AGAIN
    )


def files_in(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder in order of name. InputError when there is no such folder or none in
    it."""
    if not folder.is_dir():
        raise InputError("no such folder", file=folder, remedy="check the path")
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise InputError(
            f"no {pattern} in this folder", file=folder, remedy="give the folder that holds them"
        )
    return paths


def require_boxes(regions: Regions) -> None:
    """InputError for regions without boxes or image size, which a layout needs."""
    if regions.boxes is None or regions.width is None or regions.height is None:
        problem = f"image {regions.image_id!r} has no boxes or no size, and this layout needs both"
        raise InputError(problem, remedy="export as scan, which needs neither")
