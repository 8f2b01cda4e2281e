"""Fields of one entry, checked: present, an id, a text; every refusal names the file and the row."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from capgrade.schemas.errors import InputError


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
