"""What readers of feature files share: an image's place in its file, and checks of its arrays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import LISTS, Regions

FETCH_AGAIN = "download or make the file again"
# MILVLG's npz files and LXMERT's rows have these names for the lists of `Regions`.
KEYS_OF_LISTS = dict(
    zip(("objects_id", "objects_conf", "attrs_id", "attrs_conf"), LISTS, strict=True)
)


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """An image of a feature file, not read yet: `read` returns its regions or raises InputError."""

    image_id: str  # empty where the row is too damaged to have one
    file: Path
    row: int | str | None
    read: Callable[[], Regions]


def quote_names(names: Iterable[object]) -> str:
    """Names in a file, quoted, because those of a damaged one may be unprintable or no text."""
    return ", ".join(map(repr, names)) or "none"


def feature_array(array: np.ndarray, what: str, path: Path) -> np.ndarray:
    """Features as float16 or float32 in the machine's byte order. float64 becomes float32, and what
    is beyond its range infinity, which `Regions.check` refuses. InputError for any other type."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        remedy = "convert it with numpy: astype('float32')"
        raise InputError(f"{what} is of type {array.dtype}, not float32", file=path, remedy=remedy)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(
            array, np.float32 if array.dtype.itemsize == 8 else array.dtype.newbyteorder("=")
        )


def box_array(array: np.ndarray, what: str, path: Path) -> np.ndarray:
    """Boxes as float32, from floats or integers. Rounding moves a corner by less than 1e-4
    pixel."""
    if array.dtype.kind not in "fiu":
        raise InputError(
            f"{what} is of type {array.dtype}, not numbers", file=path, remedy=FETCH_AGAIN
        )
    return np.ascontiguousarray(array, np.float32)


def cast_exactly(
    array: np.ndarray, dtype: str, what: str, path: Path, row: int | None = None
) -> np.ndarray:
    """The array as `dtype`; InputError where that changes a number."""
    if array.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            cast: np.ndarray = array.astype(dtype)
        if np.array_equal(cast, array, equal_nan=True):
            return cast
    raise InputError(
        f"{what} of type {array.dtype} is not {dtype}", file=path, row=row, remedy=FETCH_AGAIN
    )


def files_in(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder in order of name. InputError where there is no folder or no file."""
    if not folder.is_dir():
        raise InputError("no such folder", file=folder, remedy="check the path")
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise InputError(
            f"no {pattern} in this folder", file=folder, remedy="give the folder that holds them"
        )
    return paths


def require_boxes(regions: Regions) -> None:
    """InputError for regions without boxes or image size, which the layouts tsv and npz need."""
    if regions.boxes is None or regions.width is None or regions.height is None:
        problem = f"image {regions.image_id!r} has no boxes or no size, and this layout needs both"
        raise InputError(problem, remedy="export as scan, which needs neither")
