"""What sources read: the path that was given, JSON, the fields of one entry, checked, and the splits asked for.

Every refusal names the file and the row; rows of text files are read by `capgrade.schemas.lines`.
"""

from __future__ import annotations

import codecs
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import decoded, open_bytes, read_lines
from capgrade.schemas.params import CaptionsParams

__all__ = ["parse_json", "read_json", "read_lines", "source_path"]


def source_path(params: CaptionsParams) -> Path:
    """The file or folder that holds the captions. InputError when none was given."""
    if params.input is None:
        raise InputError(f"source {params.source} needs an input", remedy="name it with --input")
    return Path(params.input)


def read_json(path: Path) -> Any:
    """A whole JSON file. InputError for a missing file, bytes that are not UTF-8, or malformed JSON."""
    with open_bytes(path) as f:
        text = decoded(f.read().removeprefix(codecs.BOM_UTF8), path, first_row=1)
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


class Position(NamedTuple):
    """Where an entry stands: the file, and the row as an editor or a JSON path shows it; "" is the whole file."""

    file: str
    row: int | str = ""

    def within(self, part: str) -> Position:
        """The position of a part of this entry, such as "images[3].sentences[1]"."""
        return Position(self.file, f"{self.row}.{part}" if self.row else part)

    def refuse(self, problem: str, remedy: str) -> InputError:
        """The InputError that names this position, for the caller to raise."""
        return InputError(problem, file=self.file, row=self.row or None, remedy=remedy)


def entries(value: Any, key: str, position: Position, remedy: str) -> Iterator[tuple[Position, dict[str, Any]]]:
    """The objects listed under `key` of a JSON object, each with its position, such as "images[3]".

    Raises InputError when `value` is no object, has no list there, or lists something else than objects.
    """
    listed = value.get(key) if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise position.refuse(f"no list '{key}'", remedy)
    for index, entry in enumerate(listed):
        inner = position.within(f"{key}[{index}]")
        if not isinstance(entry, dict):
            raise inner.refuse(f"{reprlib.repr(entry)} is not a JSON object", remedy)
        yield inner, entry


def required(entry: Mapping[str, Any], key: str, position: Position, remedy: str) -> Any:
    """The value under `key`. InputError when the entry has none."""
    if key not in entry:
        raise position.refuse(f"no '{key}' (there is {', '.join(map(str, entry)) or 'nothing'})", remedy)
    return entry[key]


def as_id(value: Any, name: str, position: Position) -> str:
    """An id as a string; an integer is written in decimal. InputError for anything else and for ""."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        problem = f"'{name}' is {reprlib.repr(value)}, not an id"
        raise position.refuse(problem, f"give '{name}' as a text that is not empty or as an integer")
    return _encodable(value, name, position)


def as_text(value: Any, name: str, position: Position) -> str:
    """A caption, unchanged. InputError when it is no string. (Whether it may be empty is the stage's choice.)"""
    if not isinstance(value, str):
        raise position.refuse(f"'{name}' is {reprlib.repr(value)}, not a text", f"give '{name}' as a string")
    return _encodable(value, name, position)


def _encodable(value: str, name: str, position: Position) -> str:
    # JSON's \ud83d without its second half parses, yet no UTF-8 file, Arrow included, can hold it.
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        problem = f"'{name}' holds half of a surrogate pair, which is no character"
        raise position.refuse(problem, "repair the text, usually an emoji cut in two") from None
    return value


def keep_splits(captions: Iterable[Caption], split: str | None, file: str | Path) -> Iterator[Caption]:
    """The captions of `split`, say "test" or "train+restval", in their order; all of them for None.

    Splits keep the names they have in the source. All of `captions` is read, so its own checks run to the end.
    Raises InputError when a split asked for never came.
    """
    if split is None:
        yield from captions
        return
    read = list(captions)
    if not read:
        return  # the stage says that there are no captions
    known = list(dict.fromkeys(caption.split for caption in read))
    wanted = [split] if split in known else split.split("+")  # a split may itself be called "train+restval"
    missing = [part for part in wanted if part not in known]
    if missing:
        remedy = f"choose with --split from: {', '.join(known)}"
        raise InputError(f"no split '{missing[0]}'", file=file, remedy=remedy)
    yield from (caption for caption in read if caption.split in wanted)
