"""One picture in a file, an archive or a table, which is read when it is asked for: its bytes, and
its pixels as 8-bit RGB."""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.parquet import PARQUET, open_parquet
from capgrade.schemas.reading import MOST_BYTES, read_member, reading, refuse_archive
from capgrade.schemas.tars import Member

# By Pillow's names. All others are refused: Pillow hands EPS to Ghostscript, and has decoders that
# few people test.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm"),
}
SUFFIXES = frozenset(suffix for suffixes in FORMATS.values() for suffix in suffixes)
STARTS_WITHIN = 16  # bytes by which a format is known
_WEBP_HEAD = 30  # bytes of a WebP that have its sides
_STARTS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"II+\0",
    b"MM\0+",
)
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height
# Formats that are not read, by what stands in their fifth byte and after it, and for those without
# any by how they begin.
_BRANDS = {
    b"ftypavi": "AVIF",
    b"ftyphei": "HEIC",
    b"ftyphev": "HEIC",
    b"ftypmif": "HEIC",
    b"ftypmsf": "HEIC",
    b"JXL ": "JPEG XL",
    b"jP  ": "JPEG 2000",
}
_OTHER_STARTS = {b"\xff\x0a": "JPEG XL", b"8BPS": "Photoshop", b"%!PS": "EPS"}
# A picture may have so many pixels, and more where it has bytes for them: cameras write fewer than
# ten a byte.
FREE_PIXELS, _PIXELS_OF_A_BYTE = 40_000_000, 150
# Row groups of Parquet files that stay in memory. A few suffice: pictures are mostly read in order.
_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Picture:
    """Where an image's bytes are: a file, a member of a zip or tar, or a row of a table."""

    image_id: str
    file: str
    row: int | None = None
    member: str | None = None
    path: str | None = None  # within its source, with folders; None where only the id is known
    offset: int | None = None  # of the bytes of a tar's member
    length: int = 0  # of the bytes of a tar's member
    column: str = "png"  # of a table
    named: str | None = None  # the file that a row of a table may name in place of bytes

    @property
    def place(self) -> str | None:
        """The place in the file; None where the file is the picture and nothing else."""
        return self.member if self.row is None else f"[{self.row}]"

    @property
    def name(self) -> str:
        """The file without its folder, which differs between machines."""
        name = Path(self.file).name
        if self.member is not None:
            return f"{name} {self.member}"
        return name if self.row is None else f"{name} row [{self.row}]"

    @property
    def named_file(self) -> Path | None:
        """The file that a row names; of its bytes, where the row has none itself."""
        return None if self.named is None else Path(self.file).parent / self.named

    def read(self) -> bytes:
        """Its bytes as stored. InputError when they cannot be read, or are more than MOST_BYTES."""
        if self.offset is not None:
            return Member(self.file, str(self.member), self.offset, self.length).read()
        if self.row is not None:
            return self._read_cell(self.row)
        if self.member is not None:
            return read_member(open_zip(self.file), self.member, self.file)
        return _read_file(Path(self.file))

    def _read_cell(self, row: int) -> bytes:
        """The bytes in a row of a table: bytes, or a struct with bytes or the path of a file."""
        kind = PARQUET if self.file.endswith(".parquet") else "Arrow file"
        with reading(self.file, kind, row=self.place):
            if self.file.endswith(".parquet"):
                ends = _group_ends(self.file)
                group = int(np.searchsorted(ends, row, side="right"))
                row -= int(ends[group - 1]) if group else 0
                cell = _group(self.file, self.column, group)[row].as_py()
            else:
                cell = open_picture_table(self.file)[self.column][row].as_py()
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if data is None and self.named_file is not None:
            return _read_file(self.named_file)
        if not isinstance(data, bytes):
            problem = "no picture in this row"
            if data is not None:
                problem = f"{type(data).__name__} in column '{self.column}', not a picture's bytes"
            raise InputError(problem, file=self.file, row=self.place)
        return data

    def decode(self) -> tuple[np.ndarray, str]:
        """uint8 (H, W, 3) RGB and the SHA-256 of the stored bytes. InputError for a picture that is
        no picture."""
        data = self.read()
        return decode_image(data, self.file, self.place), hashlib.sha256(data).hexdigest()

    def size(self) -> tuple[int, int] | None:
        """Width and height by the header, without decoding pixels; None when the header cannot be
        read."""
        try:
            source = open_bytes(Path(self.file)) if self.place is None else io.BytesIO(self.read())
            with source, _open_picture(source) as image:
                return (image.height, image.width) if orientation(image) in SIDEWAYS else image.size
        except Exception:  # Decoding the picture reports the problem.
            return None

    def stamp(self) -> str:
        """A text that changes with the picture and with its access rights: id, place, and of each
        file that may have its bytes size, change time and inode."""
        named = self.named_file
        files = [Path(self.file)] if named is None else [Path(self.file), named]
        return f"{self.image_id} {self.place} {' '.join(map(_state, files))}"


def _state(file: Path) -> str:
    try:
        stat = file.stat()
    except (OSError, ValueError):  # not there, or no path
        return "missing"
    return f"{stat.st_size} {stat.st_ctime_ns} {stat.st_ino}"


@lru_cache(maxsize=4)
def open_picture_table(file: str) -> pa.Table:
    """A memory-mapped Arrow file: an IPC file as ours, or a stream as `datasets` writes it."""
    open_bytes(Path(file)).close()
    with reading(file, "Arrow file"):
        mapped = pa.memory_map(file)
        try:
            return pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped).read_all()


@lru_cache(maxsize=1)
def open_zip(file: str) -> zipfile.ZipFile:
    """An archive, which is kept open because its members are read one by one. InputError for a
    damaged one, and for one that unpacks to more than `refuse_unpacked` lets pass."""
    open_bytes(Path(file)).close()
    with reading(file, "zip"):
        archive = zipfile.ZipFile(file)
        refuse_archive(archive, Path(file))
        return archive


@lru_cache(maxsize=1024)
def _group_ends(file: str) -> np.ndarray:
    metadata = open_parquet(Path(file)).metadata
    return np.cumsum([metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)])


@lru_cache(maxsize=_GROUPS)
def _group(file: str, column: str, group: int) -> pa.ChunkedArray:
    return open_parquet(Path(file)).read_row_group(group, [column])[column]


def _read_file(path: Path) -> bytes:
    with open_bytes(path) as file, reading(path):
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"more than {MOST_BYTES:,} bytes", file=path)
    return data


def is_picture(start: bytes) -> bool:
    """Whether a file that begins so, with STARTS_WITHIN bytes, is of one of FORMATS: whole or
    damaged."""
    if start.startswith(_STARTS) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return True
    # Texts begin with two letters too; in a picture the size follows, and four bytes that are zero.
    if start[:2] == b"BM":
        return start[6:10] == bytes(4)
    return start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace()


def format_not_read(start: bytes) -> str | None:
    """The format of a picture that begins so, with STARTS_WITHIN bytes, if it is a known one that
    is not read."""
    named = {**_OTHER_STARTS, **{start[:4] + brand: name for brand, name in _BRANDS.items()}}
    return next((name for mark, name in named.items() if start.startswith(mark)), None)


def _open_picture(source: BinaryIO) -> Image.Image:
    """A picture whose header is read and whose pixels are not, of FORMATS only. Errors are
    Pillow's; DecompressionBombError also for more pixels than so many bytes have."""
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    # Pillow makes room for the pixels of a WebP as it opens one.
    _require_bytes(*_webp_sides(source.read(_WEBP_HEAD)), size)
    source.seek(0)
    image = Image.open(source, formats=tuple(FORMATS))
    _require_bytes(*image.size, size)
    return image


def _require_bytes(width: int, height: int, size: int) -> None:
    if width * height > max(FREE_PIXELS, _PIXELS_OF_A_BYTE * size):
        raise Image.DecompressionBombError(f"{width:,} x {height:,} in {size:,} bytes")


def _webp_sides(start: bytes) -> tuple[int, int]:
    """The width and height in a WebP's header (RFC 9649, section 2); 0 and 0 of another file."""
    number = partial(int.from_bytes, byteorder="little")
    if start[8:16] == b"WEBPVP8X":
        return 1 + number(start[24:27]), 1 + number(start[27:30])
    if start[8:16] == b"WEBPVP8L":
        bits = number(start[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if start[8:16] == b"WEBPVP8 ":
        return number(start[26:28]) & 0x3FFF, number(start[28:30]) & 0x3FFF
    return 0, 0


def orientation(image: Image.Image) -> int:
    """EXIF's; 1 where there is none or it is damaged, and for a TIFF, which Pillow turns itself.
    Its own `exif_transpose` would take XMP's, which cv2.imread does not read."""
    exif = Image.Exif()
    if "exif" not in image.info or isinstance(image, TiffImageFile):
        return 1
    try:
        exif.load(image.info["exif"])
        turn = exif.get(ORIENTATION)
    except (
        Exception
    ):  # the parser lets through whatever damaged bytes make it raise; the pixels may be whole
        return 1
    return turn if turn in TURNS else 1


def decode_image(data: bytes, name: str | Path, row: int | str | None = None) -> np.ndarray:
    """A picture as uint8 (H, W, 3) in R, G, B order, turned by its EXIF orientation as cv2.imread
    does.

    Grey, palette and CMYK pictures become RGB; of 16 bits per channel the upper 8 are kept, as
    cv2.imread does. InputError, with `name` and `row`, for a picture of another format, of more
    than 16 bits, damaged, or oversized.
    """
    try:
        with _open_picture(io.BytesIO(data)) as image:
            image.info.pop("xmp", None)  # else Pillow would turn a TIFF by it
            image.load()  # which turns a TIFF
            turn = TURNS.get(orientation(image))
            turned = image if turn is None else image.transpose(turn)
            if not image.mode.startswith(("I", "F")):
                return np.array(turned if turned.mode == "RGB" else turned.convert("RGB"))
            # Pillow gives a TIFF's 12 bits as 16, and others' 32 as mode I.
            right = image.mode.startswith("I")
            if isinstance(image, TiffImageFile):
                right = image.mode.startswith("I;16") and image.tag_v2.get(BITSPERSAMPLE) == (16,)
            if not right:
                problem = f"pixels of mode {image.mode}; only 8 or 16 bits per channel are read"
                raise InputError(
                    problem, file=name, row=row, remedy="convert it to 8 bits per channel"
                )
            # Its own conversion cuts grey values above 255 to 255, which makes a 16-bit picture
            # white.
            return np.repeat((np.asarray(turned) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    except Image.DecompressionBombError as error:
        raise InputError(
            f"too many pixels ({error})", file=name, row=row, remedy="make it smaller"
        ) from error
    except UnidentifiedImageError:
        other = format_not_read(data[:STARTS_WITHIN])
        but = f", but {other}" if other else ""
        problem = f"not a readable picture (none of {', '.join(FORMATS)}{but})"
        raise InputError(problem, file=name, row=row, remedy="convert it to one of these") from None
    except InputError:
        raise
    except (
        Exception
    ) as error:  # Pillow's decoders let through whatever damaged bytes make them raise
        text = str(error) or type(error).__name__
        raise InputError(f"not a readable picture ({text})", file=name, row=row) from error
