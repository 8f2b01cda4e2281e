"""Tab-separated rows with base64 arrays: bottom-up-attention's layout, and LXMERT's, which adds
classes and attributes."""

import base64
import binascii
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from capgrade.pipelines.features.damage import (
    KEYS_OF_LISTS,
    ImageEntry,
    cast_exactly,
    feature_array,
    require_boxes,
)
from capgrade.pipelines.features.numbers import FLOATS, bytes_of, float_types
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading
from capgrade.schemas.regions import LISTS, Regions

TSV = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
LXMERT = ("img_id", "img_h", "img_w", *KEYS_OF_LISTS, "num_boxes", "boxes", "features")
_IDS = tuple(key for key, name in KEYS_OF_LISTS.items() if LISTS[name] == "int32")
INTEGERS = ("<i4", "<i8")
WIDTHS = {"boxes": 4, **dict.fromkeys(KEYS_OF_LISTS, 1)}  # how many numbers a region has
_FIRST = 20  # how many rows decide the types of a file's numbers
_AGAIN = "download or make the file again, or delete this row"
LARGEST_ROW = 2**25  # bytes: no row has as many, but a file without line feeds may
Types = dict[str, tuple[str, int]]  # field -> numpy's code of its numbers, and bytes a region

log = logging.getLogger(__name__)


def read_tsv(path: Path, input_dtype: str | None = None) -> Iterator[ImageEntry]:
    """Rows of `image_id image_w image_h num_boxes boxes features` without a header, as
    tools/generate_tsv.py of bottom-up-attention writes them.

    boxes [n, 4] and features [n, d] are base64 of little-endian numbers, float32 or, as
    `_detect_types` finds out or `input_dtype` says, float16 or float64. Raises InputError for a row
    with other fields, bad base64, a wrong number of bytes, and a row cut short.
    """
    return _read(path, TSV, input_dtype)


def read_lxmert(path: Path, input_dtype: str | None = None) -> Iterator[ImageEntry]:
    """LXMERT's rows (src/utils.py, load_obj_tsv): height before width, then base64 of objects_id
    and attrs_id (int64 [n]) and of their confidences (float32 [n]), else as in `read_tsv`. Id 0 is
    the first class, not the background."""
    return _read(path, LXMERT, input_dtype)


def write_tsv(path: Path, images: Iterable[Regions]) -> int:
    """Write the layout that `read_tsv` reads; returns its rows. float16 becomes float32 without a
    change. InputError for an image without boxes or size, or an id that csv readers misread."""
    rows = 0
    with atomic(path) as temporary, temporary.open("wb") as f:
        for regions in images:
            require_boxes(regions.check())
            assert regions.boxes is not None
            if regions.image_id.startswith('"'):
                problem = f"image id {regions.image_id!r} begins with a quote"
                problem += ", which csv readers take for their own"
                raise InputError(problem, remedy="export as npz or scan")
            numbers = (regions.image_id, regions.width, regions.height, len(regions))
            cells = [str(number).encode() for number in numbers]
            for array in (regions.boxes, regions.features):
                cells.append(base64.b64encode(array.astype("<f4").tobytes()))
            f.write(b"\t".join(cells) + b"\n")
            rows += 1
    return rows


def _read(path: Path, names: tuple[str, ...], input_dtype: str | None) -> Iterator[ImageEntry]:
    with open_bytes(path) as f:
        lines = enumerate(iter(partial(_read_line, f, path), b""), 1)
        first = list(islice(lines, _FIRST))
        if not first:
            raise InputError("an empty file", file=path, remedy=_AGAIN)
        types = _detect_types(first, names, path, input_dtype)
        for row, line in chain(first, lines):
            image_id = line.partition(b"\t")[0].decode("utf-8", "replace")
            yield ImageEntry(
                image_id, path, row, partial(_parse_row, line, names, types, path, row)
            )


def _read_line(f: BinaryIO, path: Path) -> bytes:
    """A row with its line feed, or nothing at the end of the file."""
    with reading(path):
        line = f.readline(LARGEST_ROW)
    if len(line) == LARGEST_ROW:
        raise InputError(f"a row of more than {LARGEST_ROW} bytes", file=path, remedy=_AGAIN)
    return line


def _detect_types(
    rows: list[tuple[int, bytes]], names: tuple[str, ...], path: Path, input_dtype: str | None
) -> Types:
    """The type and the bytes a region of every base64 field, as most of the first rows have them.

    The bytes a region decide the type, except that of features, because d is not known: there
    `float_types` looks at the values. InputError where that leaves no type or several, and
    `input_dtype` does not say it.
    """
    arrays: dict[str, list[tuple[int, bytes]]] = {
        name: [] for name in names if name in (*WIDTHS, "features")
    }
    for row, line in rows:
        with suppress(InputError):  # A bad row raises its error later, when it is read.
            fields = _split_fields(line, names, path, row)
            n = _parse_integer(fields, "num_boxes", path, row)
            for name, cells in arrays.items():
                raw = _decode(fields, name, path, row)
                if raw and not len(raw) % n:
                    cells.append((len(raw) // n, raw))
    types = {}
    for name, cells in arrays.items():
        sizes = Counter(step for step, _ in cells)
        if name in WIDTHS:
            width = WIDTHS[name]
            numbers = INTEGERS if name in _IDS else FLOATS.values()
            codes = {width * np.dtype(code).itemsize: code for code in numbers}
            usual = width * (8 if name in _IDS else 4)
            step = next((step for step, _ in sizes.most_common() if step in codes), usual)
            types[name] = codes[step], step
        elif not sizes:
            types[name] = FLOATS["float32"], 0  # No row is good, so that each raises its error.
        else:
            step = sizes.most_common(1)[0][0]
            rows_of_step = [raw for size, raw in cells if size == step]
            dtype = input_dtype or _detect_float_type(rows_of_step, step, path)
            if step % bytes_of(dtype):
                problem = f"features of {step} bytes a region are no {dtype}"
                raise InputError(
                    problem, file=path, remedy="give another regions.input_dtype, or none"
                )
            types[name] = FLOATS[dtype], step
            if dtype != "float32":
                log.info(
                    "%s: %d features of %s a region", path.name, step // bytes_of(dtype), dtype
                )
    return types


def _detect_float_type(rows: list[bytes], step: int, path: Path) -> str:
    """The one type that `float_types` leaves. InputError for none or several."""
    possible = float_types(rows, step)
    if len(possible) == 1:
        return possible[0]
    fitting = possible or [dtype for dtype in FLOATS if not step % bytes_of(dtype)]
    sizes = [f"{dtype}, {step // bytes_of(dtype)} a region" for dtype in fitting]
    problem = f"{step} bytes of features a region, which may be {' or '.join(sizes)}"
    if not possible:
        types = "; ".join(sizes) or ", ".join(FLOATS)
        problem = f"{step} bytes of features a region are plausible as none of {types}"
    say = f"say which they are: --set regions.input_dtype={'|'.join(fitting)}"
    remedy = say if fitting else _AGAIN
    raise InputError(problem, file=path, remedy=remedy)


def _split_fields(line: bytes, names: tuple[str, ...], path: Path, row: int) -> dict[str, bytes]:
    """The cells of a row by name; InputError for another number of them, and for a row that is cut
    short."""
    if not line.endswith(b"\n"):
        remedy = f"{_AGAIN}; if the row is whole, end it with a line feed"
        raise InputError("cut short: no line feed at its end", file=path, row=row, remedy=remedy)
    cells = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(cells) != len(names):
        problem = f"{len(cells)} fields between tabs, not the {len(names)} of {' '.join(names)}"
        remedy = f"{_AGAIN}; check regions.format"
        for format, columns in (("tsv", TSV), ("lxmert", LXMERT)):
            if len(cells) == len(columns):
                remedy = f"this looks like the format {format}: name it in place of the other"
        raise InputError(problem, file=path, row=row, remedy=remedy)
    return dict(zip(names, cells, strict=True))


def _parse_row(line: bytes, names: tuple[str, ...], types: Types, path: Path, row: int) -> Regions:
    fields = _split_fields(line, names, path, row)
    try:
        image_id = fields[names[0]].decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{names[0]} is not UTF-8", file=path, row=row, remedy=_AGAIN) from None
    prefix = "image" if names is TSV else "img"
    sizes = f"{prefix}_w", f"{prefix}_h", "num_boxes"
    width, height, n = (_parse_integer(fields, name, path, row) for name in sizes)
    arrays = {name: _decode_array(fields, name, *types[name], n, path, row) for name in types}
    lists = {}
    for key, name in KEYS_OF_LISTS.items():
        if key in arrays:
            values = arrays[key][:, 0]
            if key in _IDS:
                lists[name] = cast_exactly(values, "int32", key, path, row)
            else:
                lists[name] = _as_float32(values)
    features = feature_array(arrays["features"], "features", path)
    return Regions(image_id, width, height, _as_float32(arrays["boxes"]), features, **lists)


def _as_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # `Regions.check` refuses the infinity that it becomes.
        return values.astype(np.float32)


def _parse_integer(fields: dict[str, bytes], name: str, path: Path, row: int) -> int:
    value = fields[name]
    if not value.isdigit() or len(value) > 9 or int(value) == 0:
        problem = f"{name} is {value[:20].decode('utf-8', 'replace')!r}, not a whole number from 1"
        raise InputError(problem, file=path, row=row, remedy=_AGAIN)
    return int(value)


def _decode(fields: dict[str, bytes], name: str, path: Path, row: int) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except binascii.Error as error:
        problem = f"{name} is not base64 ({error})"
        raise InputError(problem, file=path, row=row, remedy=_AGAIN) from None


def _decode_array(
    fields: dict[str, bytes], name: str, code: str, step: int, n: int, path: Path, row: int
) -> np.ndarray:
    """Field `name` as [n, width]; `step` is its bytes a region, 0 where no row tells them."""
    raw = _decode(fields, name, path, row)
    if len(raw) != n * step or not raw:
        wanted = str(n * step) if step else f"a multiple of {n * np.dtype(code).itemsize}"
        problem = f"{name} has {len(raw)} bytes where num_boxes {n} asks for {wanted}"
        raise InputError(problem, file=path, row=row, remedy=_AGAIN)
    return np.frombuffer(raw, code).reshape(n, -1)
