"""Captions in a table of one's own: tab separated, comma separated, or JSON Lines."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from capgrade.pipelines.sources.fields import (
    Position,
    as_id,
    as_text,
    keep_splits,
    parse_json,
    read_lines,
    required,
    source_path,
)
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams, Columns

REMEDY = "every row needs the same fields as the first"
OPTIONAL = ("caption_id", "split")
IN_ALL = "give it in every row, or in none"
Record = tuple[Position, Mapping[str, Any]]


@dataclass(frozen=True)
class Fields:
    """The columns that a source really has for each field; None where it has none and need not."""

    image_id: str
    caption: str
    caption_id: str | None
    split: str | None

    @classmethod
    def found(cls, columns: Columns, present: Collection[str], position: Position) -> Fields:
        """Match the columns asked for with those present. InputError naming the first that is missing."""
        for field, name in columns:  # as a pydantic model yields them
            if name is not None and name not in present:
                remedy = f"name the right one with --column {field}=NAME; there are: {', '.join(present)}"
                raise position.refuse(f"no column '{name}' for the {field}", remedy)
        optional = {field: field if field in present else None for field in OPTIONAL}
        return cls(
            columns.image_id,
            columns.caption,
            columns.caption_id or optional["caption_id"],
            columns.split or optional["split"],
        )

    def unread(self, present: Collection[str]) -> str | None:
        """The first optional field among these that is not read, as it was not there when the fields were found."""
        return next((name for name in OPTIONAL if getattr(self, name) is None and name in present), None)

    def names(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.image_id, self.caption, self.caption_id, self.split) if name is not None]


def captions_of(records: Iterable[Record], fields: Fields, split: str) -> Iterator[Caption]:
    """One caption for each text of each record, in order; `split` is for records without a split of their own.

    Captions without an id are called `<image id>#<k>`, k counting the captions of that image from 0.
    Raises InputError for a missing field, one of the wrong type, an id count that is not the captions', and an optional
    field that only some records have.
    """
    counts: Counter[str] = Counter()
    for position, record in records:
        if name := fields.unread(record):
            raise position.refuse(f"'{name}', which rows before this one do not have", IN_ALL)
        image_id = as_id(required(record, fields.image_id, position, REMEDY), fields.image_id, position)
        texts = _texts(required(record, fields.caption, position, REMEDY), fields.caption, position)
        start = counts[image_id]
        counts[image_id] += len(texts)
        if fields.caption_id is None:
            caption_ids = [f"{image_id}#{k}" for k in range(start, start + len(texts))]
        else:
            value = required(record, fields.caption_id, position, IN_ALL)
            caption_ids = _ids(value, fields.caption_id, len(texts), position)
        own = split
        if fields.split is not None:
            own = as_id(required(record, fields.split, position, IN_ALL), fields.split, position)
        for caption_id, text in zip(caption_ids, texts, strict=True):
            yield Caption(image_id, caption_id, own, text, position.file, position.row)


def _texts(value: Any, name: str, position: Position) -> list[str]:
    if isinstance(value, list):
        if not value:
            raise position.refuse(f"'{name}' is an empty list", "drop the row or give the image a caption")
        return [as_text(text, name, position) for text in value]
    return [as_text(value, name, position)]


def _ids(value: Any, name: str, count: int, position: Position) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if len(values) != count:
        problem = f"{len(values)} caption ids in '{name}' for {count} captions"
        raise position.refuse(problem, "give an id for each caption, or leave the column out")
    return [as_id(value, name, position) for value in values]


EMPTY = "an empty row", "delete it"
BETWEEN = {"csv": "commas", "tsv": "tabs"}  # columns, by source
Row = tuple[int, list[str]]


def read_tsv(params: CaptionsParams) -> Iterator[Caption]:
    """A header, then one caption per row. No quoting: a quotation mark is text, a tab always separates.

    Raises InputError for a missing column, a row with more or fewer fields, an unknown split.
    """
    remedy = "a tab inside a caption? write a space for it, or use --source csv or jsonl"
    return _separated(params, _tsv_rows(source_path(params)), remedy)


def read_csv(params: CaptionsParams) -> Iterator[Caption]:
    """A header, then one caption per record, quoted as in RFC 4180; a record in quotes may span rows.

    Raises InputError for a missing column, broken quoting, a row with more or fewer fields, an unknown split.
    """
    remedy = 'a comma or quote inside a caption? put the caption in "...", doubling quotes inside'
    return _separated(params, _csv_rows(source_path(params)), remedy)


def read_jsonl(params: CaptionsParams) -> Iterator[Caption]:
    """One JSON object per row; the caption is a string, or a list of strings that share the row's image.

    An optional field is in every row or in none. Raises InputError for malformed JSON, a missing field, a value of the
    wrong type, an unknown split.
    """
    path = source_path(params)
    return keep_splits(_jsonl_captions(path, params), params.split, path)


def _separated(params: CaptionsParams, rows: Iterator[Row], remedy: str) -> Iterator[Caption]:
    path = source_path(params)
    return keep_splits(_table_captions(path, params, rows, remedy), params.split, path)


def _table_captions(path: Path, params: CaptionsParams, rows: Iterator[Row], remedy: str) -> Iterator[Caption]:
    row, header = next(rows, (1, []))
    position = Position(str(path), row)
    if not header:
        raise position.refuse("no header", "name the columns in the first row: image_id, caption_id, caption")
    if len(header) == 1 and any(mark in header[0] for mark in ",;\t"):
        remedy = f"part columns by {BETWEEN[params.source]}, or choose another --source: csv (commas) or tsv (tabs)"
        raise position.refuse(f"one column, '{header[0]}'", remedy)
    twice = [name for index, name in enumerate(header) if name in header[:index]]
    if twice:
        raise position.refuse(f"column '{twice[0]}' comes twice", "rename one of the two")
    fields = Fields.found(params.columns, header, position)
    yield from captions_of(_records(path, header, rows, remedy), fields, params.split or "all")


def _records(path: Path, header: list[str], rows: Iterator[Row], remedy: str) -> Iterator[Record]:
    for row, values in rows:
        position = Position(str(path), row)
        if not any(values):
            raise position.refuse(*EMPTY)
        if len(values) != len(header):
            raise position.refuse(f"the row has {len(values)} fields, the header {len(header)}", remedy)
        yield position, dict(zip(header, values, strict=True))


def _tsv_rows(path: Path) -> Iterator[Row]:
    for row, line in read_lines(path):
        yield row, line.split("\t")


def _csv_rows(path: Path) -> Iterator[Row]:
    reader = csv.reader((line for _, line in read_lines(path, keep_ends=True)), strict=True)
    while True:
        row = reader.line_num + 1  # where the record starts; reader.line_num is where it ends
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = "close the quotes that open in this record, and double quotes inside quotes"
            raise InputError(f"not valid CSV: {error}", file=path, row=row, remedy=remedy) from None
        yield row, values


def _jsonl_captions(path: Path, params: CaptionsParams) -> Iterator[Caption]:
    records = _objects(path)
    first = next(records, None)
    if first is None:
        return
    fields = Fields.found(params.columns, first[1], first[0])
    yield from captions_of(chain([first], records), fields, params.split or "all")


def _objects(path: Path) -> Iterator[Record]:
    for row, line in read_lines(path):
        position = Position(str(path), row)
        if not line.strip():
            raise position.refuse(*EMPTY)
        value = parse_json(line, path, first_row=row)
        if not isinstance(value, dict):
            raise position.refuse("not a JSON object", 'write one {"image_id": ..., "caption": ...} a row')
        yield position, value
