"""Tab-separated rows with base64 arrays: the bottom-up layout, and LXMERT's, which adds classes and attributes."""

import base64
import binascii
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from capgrade.pipelines.features.damage import KEYS_OF_LISTS, Found, exact, refused, require_boxes
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.regions import LISTS, Regions

TSV = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
LXMERT = ("img_id", "img_h", "img_w", *KEYS_OF_LISTS, "num_boxes", "boxes", "features")
AGAIN = "download or make the file again, or delete this row"
MOST_BYTES = 2**30  # of a row: far beyond any, and less than a file without line feeds asks for


def read_tsv(path: Path) -> Iterator[Found]:
    """Rows of `image_id image_w image_h num_boxes boxes features`, no header; base64 of little-endian float32.

    boxes are n x 4 and features n x d, d the same in every row (bottom-up-attention, tools/generate_tsv.py).
    Raises InputError for a row with other fields, bad base64, a wrong number of bytes and a row cut short.
    """
    return _read(path, TSV)


def read_lxmert(path: Path) -> Iterator[Found]:
    """LXMERT's rows (src/utils.py, load_obj_tsv): height before width, objects_id and attrs_id base64 of int64 [n],
    their confidences of float32 [n], then as in `read_tsv`. Ids count from 0 without the background class."""
    return _read(path, LXMERT)


def write_tsv(path: Path, images: Iterable[Regions]) -> int:
    """Write the layout that `read_tsv` reads; returns its rows. float16 features become float32, the same numbers.

    InputError for an image without boxes or size, which this layout needs, or an id that csv readers misread.
    """
    rows = 0
    with atomic(path) as temporary, temporary.open("wb") as f:
        for regions in images:
            require_boxes(regions.check())
            assert regions.boxes is not None
            if regions.image_id.startswith('"'):
                problem = f"image id {regions.image_id!r} begins with a quote, which csv readers take for their own"
                raise InputError(problem, remedy="export as npz or scan")
            numbers = (regions.image_id, regions.width, regions.height, len(regions))
            arrays = [base64.b64encode(x.astype("<f4").tobytes()) for x in (regions.boxes, regions.features)]
            f.write(b"\t".join([*(str(x).encode() for x in numbers), *arrays]) + b"\n")
            rows += 1
    return rows


def _read(path: Path, names: tuple[str, ...]) -> Iterator[Found]:
    with refused(path):
        f = path.open("rb")
    with f:
        row = 0
        while line := _line(f, path, row := row + 1):
            yield _parse(line, names, path, row), path, row
    if row == 1:
        raise InputError("an empty file", file=path, remedy=AGAIN)


def _line(f: BinaryIO, path: Path, row: int) -> bytes:
    """A row with its line feed, or nothing at the end of the file."""
    with refused(path, row):
        line = f.readline(MOST_BYTES)
        if len(line) == MOST_BYTES:
            raise ValueError(f"a row of more than {MOST_BYTES} bytes")
    if line and not line.endswith(b"\n"):
        remedy = f"{AGAIN}; if the row is whole, end it with a line feed"
        raise InputError("cut short: no line feed at its end", file=path, row=row, remedy=remedy)
    return line


def _parse(line: bytes, names: tuple[str, ...], path: Path, row: int) -> Regions:
    cells = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(cells) != len(names):
        problem = f"{len(cells)} fields between tabs, not the {len(names)} of {' '.join(names)}"
        raise InputError(problem, file=path, row=row, remedy=f"{AGAIN}; check --format")
    fields = dict(zip(names, cells, strict=True))
    try:
        image_id = cells[0].decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{names[0]} is not UTF-8", file=path, row=row, remedy=AGAIN) from None
    prefix = "image" if names is TSV else "img"
    width, height, n = (_whole(fields, name, path, row) for name in (f"{prefix}_w", f"{prefix}_h", "num_boxes"))
    extra: dict[str, np.ndarray] = {}
    if names is LXMERT:
        for key, name in KEYS_OF_LISTS.items():
            values = _array(fields, key, "<i8" if LISTS[name] == "int32" else "<f4", n, 1, path, row)[:, 0]
            extra[name] = exact(values, LISTS[name], key, path, row)
    boxes = _array(fields, "boxes", "<f4", n, 4, path, row)
    features = _array(fields, "features", "<f4", n, None, path, row)
    return Regions(image_id, width, height, boxes, features, **extra)


def _whole(fields: dict[str, bytes], name: str, path: Path, row: int) -> int:
    value = fields[name]
    if not value.isdigit() or len(value) > 9 or int(value) == 0:
        problem = f"{name} is {value[:20].decode('utf-8', 'replace')!r}, not a whole number from 1"
        raise InputError(problem, file=path, row=row, remedy=AGAIN)
    return int(value)


def _array(
    fields: dict[str, bytes], name: str, dtype: str, n: int, width: int | None, path: Path, row: int
) -> np.ndarray:
    """Field `name` as [n, width], width None: whatever the bytes give."""
    try:
        raw = base64.b64decode(fields[name], validate=True)
    except binascii.Error as error:
        raise InputError(f"{name} is not base64 ({error})", file=path, row=row, remedy=AGAIN) from None
    step = n * np.dtype(dtype).itemsize * (width or 1)
    if len(raw) % step or not raw or (width and len(raw) != step):
        wanted = f"{step}" if width else f"a multiple of {step}"
        problem = f"{name} has {len(raw)} bytes where num_boxes {n} asks for {wanted}"
        raise InputError(problem, file=path, row=row, remedy=AGAIN)
    return np.frombuffer(raw, dtype).reshape(n, -1)
