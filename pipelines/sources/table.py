"""Captions in a table of one's own: tab separated, comma separated, or JSON Lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from capgrade.pipelines.sources.fields import Position
from capgrade.pipelines.sources.records import Fields, Record, captions_of
from capgrade.pipelines.sources.splits import keep_splits
from capgrade.pipelines.sources.text import parse_json, read_lines, source_path
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

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
