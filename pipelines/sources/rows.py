"""Rows of one file, whatever its kind: tables of text, JSON, Parquet, Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import (
    CORRECT,
    DELETE,
    EMPTY,
    open_table,
    parse_json,
    read_json,
    read_lines,
)
from capgrade.schemas.parquet import PARQUET, open_parquet
from capgrade.schemas.reading import reading

if TYPE_CHECKING:
    import pyarrow as pa

Record = tuple[int | str, Mapping[str, Any]]  # the row's number or name, and its values by column
PACKED_ENDINGS = (".gz", ".bz2", ".xz")  # of tables of text that are read as they are
_OF_TEXT = (".csv", ".tsv", ".jsonl")
ARROW = "Arrow file"
KINDS = (*_OF_TEXT, ".json", ".parquet", ".arrow")
_LIST = (
    "give a list of objects: [{...}, ...], or one a row as .jsonl; COCO's and Karpathy's files have"
    " sources of their own: --source coco, karpathy"
)


@dataclass(frozen=True)
class Rows:
    """The columns of a file, and its rows with some of them.

    A cell of a column of pictures is the picture's path, and its bytes are not read.
    """

    columns: Collection[str]  # of JSON those of the first row
    read: Callable[[Iterable[str]], Iterator[Record]]
    picture: str | None = None  # the column of pictures: structs of bytes and path
    labels: Mapping[str, list[str]] = field(default_factory=dict)  # column of numbers -> names


def kind_of(path: str | Path) -> str:
    """The ending that tells the kind of a table: .csv also of captions.csv.gz."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if len(suffixes) > 1 and suffixes[-1] in PACKED_ENDINGS and suffixes[-2] in _OF_TEXT:
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def open_rows(path: Path, kind: str) -> Rows | None:
    """The rows of a file of one of KINDS; None of an empty one without names of columns.

    Raises InputError for another kind, for a file that is not whole, and as `open_table` does.
    """
    if kind in (".csv", ".tsv"):
        header, records = open_table(path, "\t" if kind == ".tsv" else ",")
        return Rows(header, lambda _: records)
    if kind == ".parquet":
        return _open_parquet(path)
    if kind == ".arrow":
        return _open_arrow(path)
    if kind not in KINDS:
        raise InputError(
            f"'{kind}' is not a kind of table", file=path, remedy=f"give {', '.join(KINDS)}"
        )
    objects = _json_list(path) if kind == ".json" and _is_whole(path) else _json_rows(path)
    first = list(islice(objects, 1))
    return Rows(first[0][1], lambda _: chain(first, objects)) if first else None


def _json_rows(path: Path) -> Iterator[Record]:
    for row, line in read_lines(path):
        if not line.strip():
            raise InputError(EMPTY, file=path, row=row, remedy=DELETE)
        value = parse_json(line, path, first_row=row)
        if not isinstance(value, dict):
            remedy = 'write one {"image_id": ..., "caption": ...} a row'
            raise InputError("not a JSON object", file=path, row=row, remedy=remedy)
        yield row, value


def _is_whole(path: Path) -> bool:
    """Whether a file is one piece of JSON: its first row is no object for itself."""
    first = next(read_lines(path), (1, "{}"))[1].strip()
    return not (first.startswith("{") and first.endswith("}"))


def _json_list(path: Path) -> Iterator[Record]:
    rows = read_json(path, CORRECT)
    if not isinstance(rows, list):
        keys = f" of {', '.join(list(rows)[:5])}" if isinstance(rows, dict) else ""
        raise InputError(f"one object{keys}, no list of rows", file=path, remedy=_LIST)
    for k, value in enumerate(rows):
        if not isinstance(value, dict):
            raise InputError("not a JSON object", file=path, row=f"[{k}]", remedy=_LIST)
        yield f"[{k}]", value


def _open_parquet(path: Path) -> Rows:
    file = open_parquet(path)
    schema = file.schema_arrow
    picture = _picture_column(schema)

    def read(columns: Iterable[str]) -> Iterator[Record]:
        names = list(dict.fromkeys(columns))
        leaves = [f"{name}.path" if name == picture else name for name in names]
        # Not opened with a buffer, which would hold all columns of a group of rows.
        yield from _records(file.iter_batches(columns=leaves), names, picture, path, PARQUET)

    return Rows(schema.names, read, picture, _label_names(schema))


def _open_arrow(path: Path) -> Rows:
    from capgrade.pictures.picture import open_picture_table

    table = open_picture_table(str(path))
    schema = table.schema
    picture = _picture_column(schema)

    def read(columns: Iterable[str]) -> Iterator[Record]:
        names = list(dict.fromkeys(columns))
        chosen = table.select([name for name in names if name != picture])
        if picture in names:
            import pyarrow.compute as pc

            chosen = chosen.append_column(picture, pc.struct_field(table[picture], "path"))
        yield from _records(iter(chosen.to_batches()), names, picture, path, ARROW)

    return Rows(_distinct(schema, path), read, picture, _label_names(schema))


def _records(
    batches: Iterator[pa.RecordBatch], names: list[str], picture: str | None, path: Path, kind: str
) -> Iterator[Record]:
    row = 1
    while True:
        with reading(path, kind):
            batch = next(batches, None)
            if batch is None:
                return
            columns = {name: batch.column(name).to_pylist() for name in names}
        if picture in columns:
            columns[picture] = [
                cell.get("path") if isinstance(cell, dict) else cell for cell in columns[picture]
            ]
        for k in range(batch.num_rows):
            yield row + k, {name: columns[name][k] for name in names}
        row += batch.num_rows


def _picture_column(schema: pa.Schema) -> str | None:
    import pyarrow as pa

    for column in schema:
        kind = column.type
        if pa.types.is_struct(kind) and {"bytes", "path"} <= {inner.name for inner in kind}:
            return str(column.name)
    return None


def _distinct(schema: pa.Schema, path: Path) -> list[str]:
    names: list[str] = schema.names
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise InputError(f"column '{twice[0]}' comes twice", file=path, remedy="rename one")
    return names


def _label_names(schema: pa.Schema) -> dict[str, list[str]]:
    """The names of the numbers in columns of type ClassLabel, as `datasets` leaves them in the
    schema of an Arrow or Parquet file."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            name: list(kind["names"])
            for name, kind in features.items()
            if isinstance(kind, dict) and kind.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError):  # none, or of another program
        return {}
