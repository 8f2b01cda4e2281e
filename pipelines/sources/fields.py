"""What sources read: the fields of an entry, checked, and the splits asked for.

Every refusal names the file and the row; `capgrade.schemas.lines` reads rows and JSON.
"""

import ast
import json
import re
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, ValidationError

from capgrade.schemas.captions import Caption, parts_of
from capgrade.schemas.errors import InputError


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    try:
        value.encode("utf-8")
    except (
        UnicodeEncodeError
    ):  # JSON's \ud83d without its second half parses, yet no file can hold it
        raise ValueError("with half of a surrogate pair, usually an emoji cut in two") from None
    return value


def _id(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas makes 1.0 of the id 1 where another one is absent
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise ValueError("not an id, which is an integer or a text that is not empty")
    if value != value.strip():  # "7" and "7 " would be two images
        raise ValueError("with a space around it")
    return _text(value)


def _file(value: Any) -> str | None:
    return None if value in (None, "") else _text(str(value) if isinstance(value, int) else value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# a caption, unchanged; whether it may be empty is the stage's choice
Text = Annotated[str, PlainValidator(_text)]
Id = Annotated[str, PlainValidator(_id)]  # an integer is written in decimal
File = Annotated[str | None, PlainValidator(_file)]  # an image's file, where it is known
# one alone is a list of one
TextList = Annotated[list[Text], BeforeValidator(_listed), Field(min_length=1)]
# absent: an empty one
CaptionText = Annotated[Text, BeforeValidator(lambda value: "" if value is None else value)]
CaptionTexts = Annotated[list[CaptionText], BeforeValidator(lambda value: _listed(value) or [""])]
IdList = Annotated[list[Id], BeforeValidator(_listed)]
# as Python writes a text
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_WITHOUT_COMMA = re.compile(r'""\s*""')
_Fields = TypeVar("_Fields", bound=BaseModel)


def listed_cell(text: str) -> Any:
    """The list that a cell holds as JSON or Python write one; other text as it is. ValueError for
    what only looks like a list, and for numpy's way without commas, which Python would read as one
    text."""
    if not text.strip().startswith("["):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if read is ast.literal_eval and _WITHOUT_COMMA.search(_TEXT.sub('""', text)):
            break
        return found
    raise ValueError("a list that neither JSON nor Python reads")


def entry(
    fields: type[_Fields], value: Any, file: str | Path, row: int | str, remedy: str
) -> _Fields:
    """The fields of a mapping, checked. InputError that names the first one that is missing or
    wrong."""
    try:
        return fields.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    place, given = list(first["loc"]), first["input"]
    if first["type"] == "model_type":
        problem = f"{reprlib.repr(given)} is not a JSON object"
    else:
        while isinstance(place[-1], int):  # one of several texts
            place.pop()
        name = place.pop()
        if first["type"] == "missing":
            problem = f"no '{name}' (there is {', '.join(map(str, given)) or 'nothing'})"
        else:
            problem = (
                f"'{name}' is {reprlib.repr(given)}, {first['msg'].removeprefix('Value error, ')}"
            )
            remedy = f"correct '{name}' there"
    below = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    raise InputError(
        problem, file=file, row=f"{row}{below}".removeprefix(".") if below else row, remedy=remedy
    )


def entries(
    document: Any, key: str, fields: type[_Fields], path: Path, remedy: str
) -> Iterator[tuple[str, _Fields]]:
    """The objects listed under `key` of a JSON object, checked, and where each stands, such as
    "images[3]".

    Raises InputError when `document` is no object, has no list there, or lists something else.
    """
    listed = document.get(key) if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InputError(f"no list '{key}'", file=path, remedy=remedy)
    for index, value in enumerate(listed):
        row = f"{key}[{index}]"
        yield row, entry(fields, value, path, row, remedy)


def keep_splits(captions: Iterable[Caption], split: str | None, file: str) -> Iterator[Caption]:
    """The captions of `split`, say "test" or "train+restval", in their order; all of them for None.

    Splits keep the names they have in the source. All of `captions` is read, so its own checks run
    to the end. Raises InputError when a split asked for never came.
    """
    if split is None:
        yield from captions
        return
    read = list(captions)  # where there are none, the stage says so
    known = list(dict.fromkeys(caption.split for caption in read))
    wanted = parts_of(split, known, file) if known else []
    yield from (caption for caption in read if caption.split in wanted)
