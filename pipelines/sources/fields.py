"""Checks of the fields of an entry, which readers share.

Every error names the file and the row. `capgrade.schemas.lines` reads rows and JSON.
"""

import ast
import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, ValidationError

from capgrade.schemas.errors import InputError

_EXACT = 2**53  # from here on not every whole number is a float
_ROUNDED = re.compile(r"[+-]?\d+([.,]\d+)?[eE]\+\d+")  # 1.23457E+11
_FLOAT = re.compile(r"\d+\.0")


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # JSON's \ud83d without its second half parses, yet no UTF-8 file can hold it.
        raise ValueError("with half of a surrogate pair, usually an emoji cut in two") from None
    return value


def is_absent(value: Any) -> bool:
    """None, or NaN, which pandas writes for it."""
    return value is None or (isinstance(value, float) and value != value)


def _check_id(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        if abs(value) >= _EXACT:
            raise ValueError(f"a float, whose last digits are lost from {_EXACT:,} on")
        value = int(value)  # pandas turns a column of integer ids with a gap into floats
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise ValueError("not an id, which is an integer or a text that is not empty")
    if value != value.strip():  # "7" and "7 " would be two images
        raise ValueError("with a space around it")
    if _ROUNDED.fullmatch(value) or (_FLOAT.fullmatch(value) and float(value) >= _EXACT):
        # Two ids may look the same then: 123456789012 and 123457000000 are 1.23457E+11.
        raise ValueError("a number that a spreadsheet or a float has rounded; write ids as text")
    return _check_text(value)


def _check_file(value: Any) -> str | None:
    if is_absent(value) or value == "":
        return None
    if isinstance(value, Mapping) and {"bytes", "path"} <= set(value):
        return _check_file(value["path"])  # a picture as `datasets` writes it
    return _check_text(str(value) if isinstance(value, int) else value)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# A caption is kept unchanged: the stage decides whether it may be empty.
Text = Annotated[str, PlainValidator(_check_text)]
Id = Annotated[str, PlainValidator(_check_id)]  # an integer is written in decimal
File = Annotated[str | None, PlainValidator(_check_file)]  # an image's file, where it is known
# A single value is read as a list of one.
TextList = Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1)]
# An absent caption is read as an empty one, which the stage counts.
CaptionText = Annotated[Text, BeforeValidator(lambda value: "" if is_absent(value) else value)]
CaptionTexts = Annotated[list[CaptionText], BeforeValidator(lambda value: _as_list(value) or [""])]
IdList = Annotated[list[Id], BeforeValidator(_as_list)]
# A string as Python writes it. `""` after `""` is then a list without commas.
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ARRAY = re.compile(r"\s*array\((.*?)(,\s*dtype=\S+)?\s*\)\s*", re.DOTALL)
_WITHOUT_COMMA = re.compile(r'""\s*""')
_Fields = TypeVar("_Fields", bound=BaseModel)


def parse_list_cell(text: str) -> Any:
    """The list that a cell holds as JSON or Python write one, a tuple and numpy's array(...) too;
    other text unchanged.

    Raises ValueError for what only looks like a list. That includes a list without commas, as numpy
    prints it: Python would join its strings into one.
    """
    array = _ARRAY.fullmatch(text)
    inner = (array[1] if array else text).strip()
    if inner.startswith("("):
        try:
            values = ast.literal_eval(inner)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return text
        return list(values) if isinstance(values, tuple) else text
    if not inner.startswith("["):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            values = read(inner)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if read is ast.literal_eval and _WITHOUT_COMMA.search(_TEXT.sub('""', inner)):
            break
        return values
    raise ValueError("a list that neither JSON nor Python reads")


def validate_entry(
    fields: type[_Fields], value: Any, file: str | Path, row: int | str, remedy: str
) -> _Fields:
    """The fields of a mapping, checked. InputError names the first that is missing or wrong."""
    try:
        return fields.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    place, actual = list(first["loc"]), first["input"]
    if first["type"] == "model_type":
        problem = f"{reprlib.repr(actual)} is not a JSON object"
    else:
        while isinstance(place[-1], int):  # an index in a list of texts
            place.pop()
        name = place.pop()
        if first["type"] == "missing":
            problem = f"no '{name}' (there is {', '.join(map(str, actual)) or 'nothing'})"
        else:
            reason = first["msg"].removeprefix("Value error, ")
            problem = f"'{name}' is {reprlib.repr(actual)}, {reason}"
            remedy = f"correct '{name}' there"
    suffix = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    if suffix:
        row = f"{row}{suffix}".removeprefix(".")
    raise InputError(problem, file=file, row=row, remedy=remedy)


def read_entries(
    document: Any, key: str, fields: type[_Fields], path: Path, remedy: str
) -> Iterator[tuple[str, _Fields]]:
    """Each object in the list under `key` of a JSON object, checked, after its place "images[3]".

    Raises InputError where `document` is not an object, has no such list, or an item is wrong.
    """
    values = document.get(key) if isinstance(document, dict) else None
    if not isinstance(values, list):
        raise InputError(f"no list '{key}'", file=path, remedy=remedy)
    for index, value in enumerate(values):
        row = f"{key}[{index}]"
        yield row, validate_entry(fields, value, path, row, remedy)
