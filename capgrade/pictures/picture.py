"""One picture, wherever its bytes lie, read when it is asked for."""

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.schemas.errors import InputError
from capgrade.schemas.pictures import SIDEWAYS, decode_image, open_picture, orientation
from capgrade.schemas.tars import Member

_MOST_BYTES = 2**28  # of a picture in a zip, which may be small packed and endless unpacked
# row groups of Parquet files that are kept: pictures are mostly asked for in their order
_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Picture:
    """An image by its id: a file, a member of a zip or tar, or a row of a table; small, as it is
    sent about."""

    image_id: str
    file: str
    row: int | None = None
    member: str | None = None
    path: str | None = None  # with folders, inside of its source; None where an id is all there is
    offset: int | None = None  # of a member of a tar
    length: int = 0
    column: str = "png"  # of a table

    @property
    def place(self) -> str | None:
        """Where in the file; None where the file is the picture and nothing else."""
        return self.member if self.row is None else f"[{self.row}]"

    @property
    def name(self) -> str:
        """The file without its folder, which differs between machines."""
        name = Path(self.file).name
        if self.member is not None:
            return f"{name} {self.member}"
        return name if self.row is None else f"{name} row [{self.row}]"

    @property
    def is_file(self) -> bool:
        """Whether the file is the picture and nothing else."""
        return self.place is None

    def read(self) -> bytes:
        """Its bytes as stored. InputError when they cannot be read, or are in a zip and more than
        MOST_BYTES."""
        try:
            if self.offset is not None:
                return Member(self.file, str(self.member), self.offset, self.length).read()
            if self.row is not None:
                return self._of_row(_cell(self.file, self.column, self.row))
            if self.member is None:
                return Path(self.file).read_bytes()
            if open_zip(self.file).getinfo(self.member).file_size > _MOST_BYTES:
                raise InputError(
                    f"more than {_MOST_BYTES:,} bytes", file=self.file, row=self.member
                )
            return open_zip(self.file).read(self.member)
        except (
            OSError,
            zipfile.BadZipFile,
            zlib.error,
            RuntimeError,
            NotImplementedError,
            EOFError,
            pa.ArrowException,
        ) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot be read ({reason})", file=self.file, row=self.place
            ) from error

    def _of_row(self, cell: Any) -> bytes:
        """Bytes, or a struct of bytes or of the path of a file."""
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if data is None and isinstance(cell, dict) and cell.get("path"):
            return (Path(self.file).parent / cell["path"]).read_bytes()
        if data is None:
            raise InputError("no picture in this row", file=self.file, row=self.place)
        return bytes(data)

    def decode(self) -> tuple[np.ndarray, str]:
        """uint8 (H, W, 3) RGB and the SHA-256 of the stored bytes. InputError for a picture that is
        no picture."""
        data = self.read()
        return decode_image(data, self.file, self.place), hashlib.sha256(data).hexdigest()

    def size(self) -> tuple[int, int] | None:
        """Width and height as its header has them, pixels not decoded; None when there is no header
        to read."""
        try:
            with open_picture(Path(self.file) if self.is_file else self.read()) as image:
                return (image.height, image.width) if orientation(image) in SIDEWAYS else image.size
        except Exception:  # whatever is wrong is said when it is decoded
            return None

    def stamp(self) -> str:
        """What changes when the picture does, or who may read it: id, place, and size and change
        time of the file."""
        try:
            stat = Path(self.file).stat()
        except OSError:
            return f"{self.image_id} missing"
        return f"{self.image_id} {stat.st_size} {stat.st_ctime_ns} {self.place}"


@lru_cache(maxsize=4)
def open_table(file: str) -> pa.Table:
    """An Arrow file, mapped: our own kind, or the streams that `datasets` writes."""
    mapped = pa.memory_map(file)
    try:
        return pa.ipc.open_file(mapped).read_all()
    except pa.ArrowInvalid:
        mapped.seek(0)
        return pa.ipc.open_stream(mapped).read_all()


@lru_cache(maxsize=1)
def open_zip(file: str) -> zipfile.ZipFile:
    """Kept open while its members are read."""
    return zipfile.ZipFile(file)


def _cell(file: str, column: str, row: int) -> Any:
    if not file.endswith(".parquet"):
        return open_table(file)[column][row].as_py()
    ends = _group_ends(file)
    group = int(np.searchsorted(ends, row, side="right"))
    return _group(file, column, group)[row - (int(ends[group - 1]) if group else 0)].as_py()


@lru_cache(maxsize=1024)
def _group_ends(file: str) -> np.ndarray:
    metadata = pq.read_metadata(file)
    return np.cumsum([metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)])


@lru_cache(maxsize=_GROUPS)
def _group(file: str, column: str, group: int) -> pa.ChunkedArray:
    return pq.ParquetFile(file).read_row_group(group, [column])[column]
