"""Text files read strictly: UTF-8 or an error that says where. Rows are separated by line feeds and
nothing else.

Cells of the CSV files that people open in a spreadsheet carry out a text that begins as a formula.
Captions and ids come from anybody: `=HYPERLINK(...)` is one. So `without_formulas` marks them.
OWASP's list of first characters, "CSV Injection".
"""

from __future__ import annotations

import bz2
import codecs
import csv
import fcntl
import gzip
import json
import lzma
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader, StringIO
from pathlib import Path
from typing import IO, Any, NoReturn

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import OUT, writing
from capgrade.schemas.reading import require_file

# What files begin with -> the kind, how to unpack it at a shell, and the reader of text that is
# packed so. Without a reader it is refused.
PACKED: dict[bytes, tuple[str, str, Callable[[IO[bytes]], Any] | None]] = {
    b"\x1f\x8b": ("gzip", "gunzip -c", lambda file: gzip.GzipFile(fileobj=file)),
    b"BZh91AY&SY": ("bzip2", "bunzip2 -c", bz2.BZ2File),
    b"\xfd7zXZ": ("xz", "xz -dc", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": ("zstandard", "zstd -dc", None),
    b"PK\x03\x04": ("zip", "unzip -p", None),
}
_POINTER = b"version https://git-lfs.github.com/spec/"  # which a file of Git LFS begins with
PULL = "git lfs pull, in the repository that it is of"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MOST_IN_A_ROW = 2**28  # bytes: no caption is longer, nor a picture written as text
CORRECT = "correct this row; a file that ends early has to be downloaded or written again"
EMPTY, DELETE = "an empty row", "delete it"
TABS = "a tab inside a field? write a space for it, or make the table a csv"
COMMAS = 'a comma or quote inside a field? put the field in "...", doubling quotes inside'
LARGEST_FLOAT32 = 3.4e38  # of float32's numbers, about
_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?[,;]*')
_MARK = "'"  # a spreadsheet takes what follows as text
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def read_lines(path: Path, *, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    r"""Rows of a text file, numbered from 1, read as they are asked for.

    A byte order mark is dropped, `\n` and `\r\n` end a row; U+2028, U+0085, form feeds and the like
    are text, although `str.splitlines` would split there. A file packed by gzip, bzip2 or xz is
    unpacked. Raises InputError for a file that cannot be opened or unpacked, for bytes that are not
    UTF-8, for a row of more than MOST_IN_A_ROW bytes, and for a file whose rows end with carriage
    returns alone: it would be a single row.
    """
    with open_bytes(path) as file:
        start = file.peek(8)
        kind, _, reader = next(
            (one for mark, one in PACKED.items() if start.startswith(mark)), ("", "", None)
        )
        f = reader(file) if reader else file
        for row, raw in enumerate(_raw_rows(f, path, kind), start=1):
            if row == 1 and b"\r" in (raw[:-2] if raw.endswith(b"\r\n") else raw) and not f.peek(1):
                remedy = f"end them with line feeds: tr '\\r' '\\n' < {path.name} > converted"
                raise InputError(
                    "rows end with carriage returns alone, as on old Macs", file=path, remedy=remedy
                )
            line = decoded(
                raw.removeprefix(codecs.BOM_UTF8) if row == 1 else raw, path, first_row=row
            )
            if not keep_ends and line.endswith("\n"):
                line = line[:-1].removesuffix("\r")
            yield row, line


def _raw_rows(file: Any, path: Path, kind: str) -> Iterator[bytes]:
    """The rows of a file, which is packed by `kind`, if that is not empty."""
    for row, raw in enumerate(iter(partial(_next_row, file, path, kind), b""), start=1):
        if len(raw) > MOST_IN_A_ROW:
            problem = f"a row of more than {MOST_IN_A_ROW // 2**20} MB"
            raise InputError(problem, file=path, row=row, remedy=CORRECT)
        yield raw


def _next_row(file: Any, path: Path, kind: str) -> bytes:
    try:
        return bytes(file.readline(MOST_IN_A_ROW + 1))
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        problem = f"not whole, packed by {kind} ({error})" if kind else f"cannot be read ({error})"
        raise InputError(problem, file=path, remedy="download or write it again") from error


def append_line(path: Path, line: Mapping[str, Any], allow: str = OUT) -> None:
    """As `append_lines`, of one line."""
    append_lines(path, [line], allow)


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]], allow: str = OUT) -> None:
    """Add JSON lines to a file; they are on the disk on return.

    Any number of processes may add at the same time. InputError as `writing`.
    """
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path, allow), path.open("ab+") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)  # closing the file gives the lock back
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            file.write(b"\n")  # ends a line that a crash cut short
        file.write(
            b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
        )
        file.flush()
        os.fsync(file.fileno())


def appended_lines(path: Path, first: str) -> Iterator[tuple[int, bytes]]:
    """What `append_lines` wrote, numbered from 1, but for lines whose writing a crash stopped:
    those begin with the key `first` and do not end as an object."""
    with open_bytes(path) as file:
        texts = file.read().split(b"\n")
    for row, text in enumerate(texts, start=1):
        if text and (
            text.endswith(b"}") or not text.startswith(f'{{"{first}"'.encode()[: len(text)])
        ):
            yield row, text


def open_bytes(path: Path) -> BufferedReader:
    """A file opened to read its bytes. InputError when it cannot be, as `require_file`, and for a
    pointer of Git LFS in place of the file."""
    require_file(path)
    try:
        file = path.open("rb")
        if _is_pointer(file.peek(len(_POINTER))):
            file.close()
            _refuse_pointer(path)
        return file
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", file=path, remedy="check its permissions"
        ) from None


def _is_pointer(start: bytes) -> bool:
    """Whether a file that begins so is a pointer of Git LFS, in place of the file."""
    return start.startswith(_POINTER)


def _refuse_pointer(path: Path) -> NoReturn:
    """The InputError of a pointer of Git LFS."""
    raise InputError("a pointer of Git LFS, the file itself is not here", file=path, remedy=PULL)


def decoded(raw: bytes, path: Path, *, first_row: int) -> str:
    """UTF-8 bytes as text.

    InputError that names the row, the first of `raw` being `first_row`, and the place in it.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - before.rfind(b"\n")  # bytes, from 1
        problem = f"byte 0x{raw[error.start]:02x} at position {column} is not UTF-8"
        remedy = f"convert the file: iconv -f ENCODING -t UTF-8 {path.name} > converted"
        if first_row == 1:
            for mark, (kind, unpack, _) in PACKED.items():
                if raw.startswith(mark):
                    problem, remedy = f"compressed by {kind}", f"{unpack} {path.name} > converted"
            if raw.startswith(UTF_16):
                problem = "text in UTF-16, as spreadsheets write it"
                remedy = f"convert the file: iconv -f UTF-16 -t UTF-8 {path.name} > converted"
        raise InputError(
            problem, file=path, row=first_row + before.count(b"\n"), remedy=remedy
        ) from None


def read_text(path: Path) -> str:
    """A whole text file without its byte order mark. InputError as `open_bytes` and `decoded`."""
    with open_bytes(path) as file:
        return decoded(file.read().removeprefix(codecs.BOM_UTF8), path, first_row=1)


def read_json(path: Path, remedy: str = CORRECT) -> Any:
    """A whole JSON file. InputError as `read_text` and `parse_json`."""
    return parse_json(read_text(path), path, first_row=1, remedy=remedy)


def parse_json(text: str, path: Path, *, first_row: int, remedy: str = CORRECT) -> Any:
    """JSON that starts in row `first_row` of a file. InputError with row and column when malformed,
    and for an object with a key twice, of which json would keep the last."""

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            twice = next(
                name for name, count in Counter(name for name, _ in pairs).items() if count > 1
            )
            row = None if "\n" in text else first_row
            raise InputError(
                f"'{twice}' comes twice in one object",
                file=path,
                row=row,
                remedy="keep one of the two",
            )
        return found

    try:
        return json.loads(text, object_pairs_hook=whole)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON at column {error.colno}: {error.msg}"
        raise InputError(
            problem, file=path, row=first_row + error.lineno - 1, remedy=remedy
        ) from None
    except InputError:
        raise
    except Exception:  # brackets without end; a number of thousands of digits
        problem = "not valid JSON: nested too deep, or a number of more digits than any id has"
        raise InputError(problem, file=path, row=first_row, remedy=remedy) from None


def open_table(
    path: Path, separator: str = ","
) -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """The columns of a table, and its rows by column, each with the number of the line where it
    starts.

    Between commas a field may be quoted as in RFC 4180, and span lines; a first line such as
    `sep=;`, which Excel writes and reads, names another separator. A tab always separates: a
    quotation mark is text. InputError as `read_lines`; for no columns or one twice; for broken
    quotes, an empty row, and a row of more or fewer fields than the header.
    """
    tabs = separator == "\t"
    rows: Iterator[tuple[int, list[str]]]
    if tabs:
        rows = ((row, line.split("\t")) for row, line in read_lines(path))
    else:
        rows = _csv_rows(path, _declared_separator(path))
    row, header = next(rows, (1, []))
    if not header:
        raise InputError(
            "no header", file=path, row=row, remedy="name the columns in the first row"
        )
    if len(header) == 1 and any(mark in header[0] for mark in ",;\t|"):
        remedy = f"part columns by {'tabs' if tabs else 'commas'}: csv has commas, tsv has tabs"
        if ";" in header[0] and not tabs:
            remedy += "; or write sep=; as the first line"
        if header[0].startswith("image_name|"):
            remedy = "this is Flickr30K's table: --source flickr"
        raise InputError(f"one column, '{header[0]}'", file=path, row=row, remedy=remedy)
    if twice := [column for column, count in Counter(header).items() if count > 1]:
        raise InputError(
            f"column '{twice[0]}' comes twice", file=path, row=row, remedy="rename one of the two"
        )
    return header, _records(path, header, rows, TABS if tabs else COMMAS)


def _declared_separator(path: Path) -> str | None:
    """The separator that Excel's line `sep=;` names; None where the file begins otherwise."""
    match = _SEPARATOR.fullmatch(next(read_lines(path), (1, ""))[1])
    return match[1] if match else None


def _csv_rows(path: Path, declared: str | None) -> Iterator[tuple[int, list[str]]]:
    lines = (line for _, line in read_lines(path, keep_ends=True))
    if declared:
        next(lines)
    csv.field_size_limit(MOST_IN_A_ROW)  # of all readers: the module has no other way
    reader = csv.reader(lines, strict=True, delimiter=declared or ",")
    while True:
        # Where the record starts; reader.line_num is where it ends.
        row = reader.line_num + (2 if declared else 1)
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = "close the quotes that open in this record, and double quotes inside quotes"
            raise InputError(f"not valid CSV: {error}", file=path, row=row, remedy=remedy) from None
        yield row, values


def _records(
    path: Path, header: list[str], rows: Iterator[tuple[int, list[str]]], remedy: str
) -> Iterator[tuple[int, dict[str, str]]]:
    for row, values in rows:
        if not any(values):
            raise InputError(EMPTY, file=path, row=row, remedy=DELETE)
        if len(values) != len(header):
            problem = f"the row has {len(values)} fields, the header {len(header)}"
            raise InputError(problem, file=path, row=row, remedy=remedy)
        yield row, dict(zip(header, values, strict=True))


def number(text: str | None, path: Path, line: int, what: str = "score") -> float:
    """The number in a field of a row, called `what`, which float32 can hold. InputError for
    anything else."""
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST_FLOAT32:
        problem = "is not a number" if math.isnan(value) else f"is beyond {LARGEST_FLOAT32:g}"
        raise InputError(f"{what} {text!r} {problem}", file=path, row=line)
    return value


def without_formulas(row: Sequence[Any]) -> list[Any]:
    """A row in which no text is a formula: one that begins with = + - @, tab or CR gets a mark.

    Numbers stay.
    """
    return [
        _MARK + cell
        if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
        else cell
        for cell in row
    ]


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]], end: str = "\n") -> str:
    """A CSV file in which no text is a formula."""
    text = StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerow(head)
    writer.writerows(map(without_formulas, rows))
    return text.getvalue()


def text_of_cell(cell: str) -> str:
    """The text that `without_formulas` wrote as this cell."""
    return cell[1:] if cell.startswith(_MARK) and _FORMULA.match(cell) else cell
