"""Tab-separated rows with base64 arrays: the bottom-up layout, and LXMERT's, which adds classes and
attributes."""

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
    Found,
    exact,
    feature_array,
    refused,
    require_boxes,
)
from capgrade.pipelines.features.numbers import FLOATS, float_types, size_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.regions import LISTS, Regions

TSV = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
LXMERT = ("img_id", "img_h", "img_w", *KEYS_OF_LISTS, "num_boxes", "boxes", "features")
_IDS = tuple(key for key, name in KEYS_OF_LISTS.items() if LISTS[name] == "int32")
INTEGERS = ("<i4", "<i8")
WIDTHS = {"boxes": 4, **dict.fromkeys(KEYS_OF_LISTS, 1)}  # numbers a region
_FIRST = 20  # rows that tell what the numbers of a file are
_AGAIN = "download or make the file again, or delete this row"
LARGEST_ROW = 2**30  # of a row: far beyond any, and less than a file without line feeds asks for
Types = dict[str, tuple[str, int]]  # of a field: numpy's code of its numbers, and bytes a region

log = logging.getLogger(__name__)


def read_tsv(path: Path, input_dtype: str | None = None) -> Iterator[Found]:
    """Rows of `image_id image_w image_h num_boxes boxes features`, no header; base64 of
    little-endian numbers.

    boxes are n x 4 and features n x d, d the same in every row (bottom-up-attention,
    tools/generate_tsv.py). They are float32 there; float16 and float64 are told by their size, see
    `_types`. `input_dtype` says the features' type. Raises InputError for a row with other fields,
    bad base64, a wrong number of bytes and a row cut short.
    """
    return _read(path, TSV, input_dtype)


def read_lxmert(path: Path, input_dtype: str | None = None) -> Iterator[Found]:
    """LXMERT's rows (src/utils.py, load_obj_tsv): height before width, objects_id and attrs_id
    base64 of int64 [n], their confidences of float32 [n], then as in `read_tsv`. Ids count from 0
    without the background class."""
    return _read(path, LXMERT, input_dtype)


def write_tsv(path: Path, images: Iterable[Regions]) -> int:
    """Write the layout that `read_tsv` reads; returns its rows. float16 features become float32,
    the same numbers.

    InputError for an image without boxes or size, which this layout needs, or an id that csv
    readers misread.
    """
    rows = 0
    with atomic(path) as temporary, temporary.open("wb") as f:
        for regions in images:
            require_boxes(regions.check())
            assert regions.boxes is not None
            if regions.image_id.startswith('"'):
                problem = (
                    f"image id {regions.image_id!r} begins with a quote, which csv readers take for"
                    " their own"
                )
                raise InputError(problem, remedy="export as npz or scan")
            numbers = (regions.image_id, regions.width, regions.height, len(regions))
            arrays = [
                base64.b64encode(x.astype("<f4").tobytes())
                for x in (regions.boxes, regions.features)
            ]
            f.write(b"\t".join([*(str(x).encode() for x in numbers), *arrays]) + b"\n")
            rows += 1
    return rows


def _read(path: Path, names: tuple[str, ...], input_dtype: str | None) -> Iterator[Found]:
    with refused(path):
        f = path.open("rb")
    with f:
        lines = enumerate(iter(partial(_line, f, path), b""), 1)
        first = list(islice(lines, _FIRST))
        if not first:
            raise InputError("an empty file", file=path, remedy=_AGAIN)
        types = _types(first, names, path, input_dtype)
        for row, line in chain(first, lines):
            image_id = line.partition(b"\t")[0].decode("utf-8", "replace")
            yield Found(image_id, path, row, partial(_parse, line, names, types, path, row))


def _line(f: BinaryIO, path: Path) -> bytes:
    """A row with its line feed, or nothing at the end of the file."""
    with refused(path):
        line = f.readline(LARGEST_ROW)
        if len(line) == LARGEST_ROW:
            raise ValueError(f"a row of more than {LARGEST_ROW} bytes")
    return line


def _types(
    rows: list[tuple[int, bytes]], names: tuple[str, ...], path: Path, input_dtype: str | None
) -> Types:
    """Of every base64 field its type and its bytes a region, which are those of most of the first
    rows.

    The bytes a region tell the type, except that of features, as d is not known: `float_types`
    looks at their values. InputError where that leaves more than one type, or none, and
    `input_dtype` does not say it.
    """
    arrays: dict[str, list[tuple[int, bytes]]] = {
        name: [] for name in names if name in (*WIDTHS, "features")
    }
    for row, line in rows:
        with suppress(InputError):  # a bad row is told when it is read
            fields = _fields(line, names, path, row)
            n = _whole(fields, "num_boxes", path, row)
            for name, found in arrays.items():
                raw = _raw(fields, name, path, row)
                found += [(len(raw) // n, raw)] if raw and not len(raw) % n else []
    types = {}
    for name, found in arrays.items():
        sizes = Counter(step for step, _ in found)
        if name in WIDTHS:
            width = WIDTHS[name]
            codes = {
                width * np.dtype(code).itemsize: code
                for code in (INTEGERS if name in _IDS else FLOATS.values())
            }
            usual = next(
                (step for step, _ in sizes.most_common() if step in codes),
                width * (8 if name in _IDS else 4),
            )
            types[name] = codes[usual], usual
        elif not sizes:
            types[name] = FLOATS["float32"], 0  # of no row: each is refused
        else:
            step = sizes.most_common(1)[0][0]
            dtype = input_dtype or _one_type(
                [raw for size, raw in found if size == step], step, path
            )
            if step % size_of(dtype):
                problem = f"features of {step} bytes a region are no {dtype}"
                raise InputError(problem, file=path, remedy="give another --input-dtype, or none")
            types[name] = FLOATS[dtype], step
            if dtype != "float32":
                log.info("%s: %d features of %s a region", path.name, step // size_of(dtype), dtype)
    return types


def _one_type(rows: list[bytes], step: int, path: Path) -> str:
    possible = float_types(rows, step)
    if len(possible) == 1:
        return possible[0]
    fitting = possible or [dtype for dtype in FLOATS if not step % size_of(dtype)]
    sizes = [f"{dtype}, {step // size_of(dtype)} a region" for dtype in fitting]
    problem = f"{step} bytes of features a region, which may be {' or '.join(sizes)}"
    if not possible:
        problem = (
            f"{step} bytes of features a region are plausible as none of"
            f" {'; '.join(sizes) or ', '.join(FLOATS)}"
        )
    remedy = f"say which they are: --input-dtype {'|'.join(fitting)}" if fitting else _AGAIN
    raise InputError(problem, file=path, remedy=remedy)


def _fields(line: bytes, names: tuple[str, ...], path: Path, row: int) -> dict[str, bytes]:
    """The cells of a row by name; InputError for another number of them, and for a row that is cut
    short."""
    if not line.endswith(b"\n"):
        remedy = f"{_AGAIN}; if the row is whole, end it with a line feed"
        raise InputError("cut short: no line feed at its end", file=path, row=row, remedy=remedy)
    cells = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(cells) != len(names):
        problem = f"{len(cells)} fields between tabs, not the {len(names)} of {' '.join(names)}"
        remedy = f"{_AGAIN}; check --format"
        for format, others in (("tsv", TSV), ("lxmert", LXMERT)):
            if len(cells) == len(others):
                remedy = f"this looks like the format {format}: name it in place of the other"
        raise InputError(problem, file=path, row=row, remedy=remedy)
    return dict(zip(names, cells, strict=True))


def _parse(line: bytes, names: tuple[str, ...], types: Types, path: Path, row: int) -> Regions:
    fields = _fields(line, names, path, row)
    try:
        image_id = fields[names[0]].decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{names[0]} is not UTF-8", file=path, row=row, remedy=_AGAIN) from None
    prefix = "image" if names is TSV else "img"
    width, height, n = (
        _whole(fields, name, path, row) for name in (f"{prefix}_w", f"{prefix}_h", "num_boxes")
    )
    arrays = {name: _array(fields, name, *types[name], n, path, row) for name in types}
    lists = {
        name: (
            exact(arrays[key][:, 0], "int32", key, path, row)
            if key in _IDS
            else _float32(arrays[key][:, 0])
        )
        for key, name in KEYS_OF_LISTS.items()
        if key in arrays
    }
    features = feature_array(arrays["features"], "features", path)
    return Regions(image_id, width, height, _float32(arrays["boxes"]), features, **lists)


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # to infinity, which is refused
        return values.astype(np.float32)


def _whole(fields: dict[str, bytes], name: str, path: Path, row: int) -> int:
    value = fields[name]
    if not value.isdigit() or len(value) > 9 or int(value) == 0:
        problem = f"{name} is {value[:20].decode('utf-8', 'replace')!r}, not a whole number from 1"
        raise InputError(problem, file=path, row=row, remedy=_AGAIN)
    return int(value)


def _raw(fields: dict[str, bytes], name: str, path: Path, row: int) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except binascii.Error as error:
        raise InputError(
            f"{name} is not base64 ({error})", file=path, row=row, remedy=_AGAIN
        ) from None


def _array(
    fields: dict[str, bytes], name: str, code: str, step: int, n: int, path: Path, row: int
) -> np.ndarray:
    """Field `name` as [n, width]; `step` is 0 where no row tells the width."""
    raw = _raw(fields, name, path, row)
    if len(raw) != n * step or not raw:
        wanted = str(n * step) if step else f"a multiple of {n * np.dtype(code).itemsize}"
        problem = f"{name} has {len(raw)} bytes where num_boxes {n} asks for {wanted}"
        raise InputError(problem, file=path, row=row, remedy=_AGAIN)
    return np.frombuffer(raw, code).reshape(n, -1)
