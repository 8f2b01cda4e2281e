"""Text files read strictly: UTF-8 or an error that says where, rows separated by line feeds and nothing else."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams


def source_path(params: CaptionsParams) -> Path:
    """The file or folder that holds the captions. InputError when none was given."""
    if params.input is None:
        raise InputError(f"source {params.source} needs an input", remedy="name it with --input")
    return Path(params.input)


def read_lines(path: Path, *, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    r"""Rows of a text file, numbered from 1, read as they are asked for.

    A byte order mark is dropped, `\n` and `\r\n` end a row; U+2028, U+0085, form feeds and the like are text,
    although `str.splitlines` would split there. Raises InputError for a file that cannot be opened, for bytes that are
    not UTF-8, and for a file whose rows end with carriage returns alone: it would be a single row.
    """
    with _open(path) as f:
        for row, raw in enumerate(f, start=1):
            if row == 1 and b"\r" in (raw[:-2] if raw.endswith(b"\r\n") else raw) and not f.peek(1):
                remedy = f"end them with line feeds: tr '\\r' '\\n' < {path.name} > converted"
                raise InputError("rows end with carriage returns alone, as on old Macs", file=path, remedy=remedy)
            line = _decode(raw.removeprefix(codecs.BOM_UTF8) if row == 1 else raw, path, first_row=row)
            yield row, line if keep_ends else _without_end(line)


def read_json(path: Path) -> Any:
    """A whole JSON file. InputError for a missing file, bytes that are not UTF-8, or malformed JSON."""
    with _open(path) as f:
        text = _decode(f.read().removeprefix(codecs.BOM_UTF8), path, first_row=1)
    return parse_json(text, path, first_row=1)


def parse_json(text: str, path: Path, *, first_row: int) -> Any:
    """JSON that starts in row `first_row` of a file. InputError with row and column when malformed."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON at column {error.colno}: {error.msg}"
        remedy = "correct this row; a file that ends early has to be downloaded or written again"
        raise InputError(problem, file=path, row=first_row + error.lineno - 1, remedy=remedy) from None
    except (RecursionError, ValueError):  # brackets without end; a number of thousands of digits
        problem = "not valid JSON: nested too deep, or a number of more digits than any id has"
        raise InputError(problem, file=path, row=first_row, remedy="write the file again") from None


def _open(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy="check the path") from None
    except IsADirectoryError:
        raise InputError("a folder where a file is needed", file=path, remedy="name the file in it") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=path, remedy="check its permissions") from None


def _decode(raw: bytes, path: Path, *, first_row: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - before.rfind(b"\n")  # bytes, from 1
        problem = f"byte 0x{raw[error.start]:02x} at position {column} is not UTF-8"
        remedy = f"convert the file: iconv -f ENCODING -t UTF-8 {path.name} > converted"
        raise InputError(problem, file=path, row=first_row + before.count(b"\n"), remedy=remedy) from None


def _without_end(line: str) -> str:
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line
