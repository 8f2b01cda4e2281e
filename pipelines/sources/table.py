"""Captions in a user's own table: .tsv, .csv, JSON Lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, create_model

from capgrade.pictures.picture import SUFFIXES
from capgrade.pipelines.sources.fields import (
    CaptionTexts,
    File,
    Id,
    IdList,
    parse_list_cell,
    validate_entry,
)
from capgrade.pipelines.sources.rows import Record, open_rows
from capgrade.pipelines.stages.captions import CaptionsParams, Columns
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError, choose_from

_KINDS = {
    "image_id": Id,
    "caption": CaptionTexts,
    "caption_id": IdList,
    "split": Id,
    "image_file": File,
}
# The default names of each field's column: the first that the table has is taken.
_NAMES = {
    "image_id": ("image_id",),
    "caption": ("caption",),
    "caption_id": ("caption_id",),
    "split": ("split",),
    "image_file": ("image_file", "file_name", "filename"),
}
# Fields that are in every row or in none.
_OPTIONAL = ("caption_id", "split", "image_file")
# A cell that holds a list, or what Python or numpy write for one: of texts, and of ids also one of
# whole numbers.
_LISTS = {
    "caption": re.compile(
        r"""\s*(array\(\s*)?[\[(]\s*['"].*['"]\s*,?\s*[\])](,\s*dtype=\S+\s*\)|\s*\))?\s*$""",
        re.DOTALL,
    ),
    "caption_id": re.compile(
        r"""\s*\[\s*(['"].*['"]|-?\d+(\s*,\s*-?\d+)*)\s*,?\s*\]\s*$""", re.DOTALL
    ),
}
_FLOAT = re.compile(r"(-?\d{1,15})\.0")  # which float64 has to the last digit
_NONE = re.compile(r"\s*(\[\s*\])?\s*")  # a cell without any
IN_ALL = "give it in every row, or in none"
_REMEDY = "give every row the fields of the first, an optional one in every row or in none"
COLUMN = "name the right one with --columns {field}=NAME"


def columns_of(
    columns: Columns, present: Collection[str], file: str, row: int | str, how: str = COLUMN
) -> dict[str, str]:
    """The column of each field: the one asked for, else the first of `_NAMES` that is present.

    InputError names the first that is missing; its remedy `how` says how to name another.
    """
    column_of: dict[str, str] = {}
    for field, names in _NAMES.items():
        asked = getattr(columns, field)
        name = next((name for name in ((asked,) if asked else names) if name in present), None)
        if name is not None:
            column_of[field] = name
        elif asked or field in ("image_id", "caption"):
            problem = f"no column '{asked or names[0]}' for the {field}"
            remedy = f"{how.format(field=field)}; {choose_from(asked or names[0], present)}"
            if any("://" in name for name in present):
                remedy = (
                    "the first row has no names but data (a URL): write a row of names above it"
                )
            raise InputError(problem, file=file, row=row, remedy=remedy)
    return column_of


def captions_of(
    records: Iterable[Record],
    columns: Mapping[str, str],
    split: str,
    file: str,
    counts: Counter[str] | None = None,
) -> Iterator[Caption]:
    """One caption for each text of each record, in order, in the record's split or else `split`.

    Captions without an id are called `<image id>#<k>`, where k counts that image's captions from 0,
    or on from `counts`, which files of one source share.
    Raises InputError for a missing field, a wrong type, another number of ids than of captions, and
    an optional field that only some records have.
    """
    kinds: dict[str, Any] = {
        field: (_KINDS[field], Field(alias=name)) for field, name in columns.items()
    }
    fields = create_model("Fields", **kinds)
    counts = Counter[str]() if counts is None else counts
    absent = [name for field in _OPTIONAL if field not in columns for name in _NAMES[field]]
    for row, record in records:
        for name in absent:
            if name in record:
                problem = f"'{name}', which rows before this one do not have"
                raise InputError(problem, file=file, row=row, remedy=IN_ALL)
        values: Any = validate_entry(fields, record, file, row, _REMEDY)
        image_id, texts = values.image_id, values.caption
        start = counts[image_id]
        counts[image_id] += len(texts)
        ids = [f"{image_id}#{k}" for k in range(start, start + len(texts))]
        if "caption_id" in columns:
            # An empty list of captions became one empty caption, and needs no id of its own.
            ids = values.caption_id or (ids[:1] if texts == [""] else [])
            if len(ids) != len(texts):
                problem = (
                    f"{len(ids)} caption ids in '{columns['caption_id']}' for {len(texts)} captions"
                )
                remedy = "give an id for each caption, or leave the column out"
                raise InputError(problem, file=file, row=row, remedy=remedy)
        own_split = values.split if "split" in columns else split
        image_file = getattr(values, "image_file", None)
        if image_file is None and PurePath(image_id).suffix.lower() in SUFFIXES:
            image_file = image_id  # the id is itself the path of a picture
        for caption_id, text in zip(ids, texts, strict=True):
            yield Caption(image_id, caption_id, own_split, text, file, row, image_file)


def read_table(name: str, params: CaptionsParams, _: Counter[str]) -> Iterator[Caption]:
    """Captions of a .tsv (a tab always separates, a quotation mark is text), .csv (quoted as in RFC
    4180; a record in quotes may span rows) or .jsonl file, a row each. In JSON Lines a row may have
    a list of captions.

    An optional field is in every row or in none. Raises InputError for a missing column, a row with
    more or fewer fields, broken quoting, malformed JSON, and a value of the wrong type.
    """
    rows = open_rows(Path(name), f".{params.source}")
    if rows is None:
        return  # the stage has its own error for a source without captions
    columns = columns_of(params.columns, rows.columns, name, 1)
    records = rows.read(columns.values())
    if params.source != "jsonl":
        records = parse_cells(records, columns, name)
    yield from captions_of(records, columns, params.split or "all", name)


def parse_cells(
    records: Iterator[Record], fields: Mapping[str, str], file: str
) -> Iterator[Record]:
    """Records with the lists and ids that cells of .csv and .tsv, which are texts, stand for.

    A column of captions or their ids holds lists where each of its cells is one. An id such as 1.0
    is read as 1, because pandas writes a column of integers with gaps so.
    """
    rows = list(islice(records, 1))
    of_lists = _columns_of_lists(rows, fields, may_be_empty=True)
    if of_lists:  # the others need not be in memory
        rows += records
        of_lists = _columns_of_lists(rows, fields)
    of_ids = {fields[name] for name in ("image_id", "caption_id") if name in fields} - of_lists
    for row, record in chain(rows, records):
        values = dict(record)
        for name in of_lists:
            try:
                values[name] = parse_list_cell(record[name])
            except ValueError as error:
                problem = f"'{name}' holds {error}"
                remedy = "write it with json.dumps, or a caption a row"
                raise InputError(problem, file=file, row=row, remedy=remedy) from None
        for name in of_ids:
            whole = _FLOAT.fullmatch(record[name])
            values[name] = whole[1] if whole else record[name]
        yield row, values


def _columns_of_lists(
    records: Sequence[Record], fields: Mapping[str, str], *, may_be_empty: bool = False
) -> set[str]:
    """The columns of captions and their ids whose every cell holds a list, but for those that hold
    none or an empty one. With `may_be_empty` also those in which no cell holds anything."""
    found = set()
    for field, pattern in _LISTS.items():
        if name := fields.get(field):
            cells = [record[name] for _, record in records if not _NONE.fullmatch(record[name])]
            if all(map(pattern.match, cells)) and (cells or may_be_empty):
                found.add(name)
    return found
