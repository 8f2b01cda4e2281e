"""Captions in a user's own table (.tsv, .csv, JSON Lines) or in a Hugging Face dataset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from glob import escape
from itertools import chain, islice
from pathlib import Path, PurePath
from textwrap import shorten
from typing import TYPE_CHECKING, Any

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
from capgrade.schemas.captions import Caption
from capgrade.schemas.dataset_files import SAVED, path_here, row_id, split_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.hub import hub_source
from capgrade.schemas.lines import DELETE, EMPTY, open_table, parse_json, read_lines
from capgrade.schemas.params import CaptionsParams, Columns
from capgrade.schemas.parquet import PARQUET, open_parquet
from capgrade.schemas.reading import reading
from capgrade.schemas.say import tell

if TYPE_CHECKING:
    from datasets import Dataset

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
OPTIONAL = ("caption_id", "split")  # fields that are in every row or in none
# Names of the columns that are made for a dataset which has no column of ids or of paths.
ROW = "row of the split"
_PATH = "path of the picture"
# A cell that holds a list: of texts, and of ids also one of whole numbers.
_LISTS = {
    "caption": re.compile(r"""\s*\[\s*['"].*['"]\s*,?\s*\]\s*$""", re.DOTALL),
    "caption_id": re.compile(
        r"""\s*\[\s*(['"].*['"]|-?\d+(\s*,\s*-?\d+)*)\s*,?\s*\]\s*$""", re.DOTALL
    ),
}
FLOAT = re.compile(r"^(-?\d+)\.0$")
# Names of columns that hold ids.
_IDS = re.compile(r"((img|image|coco|.*[_ ])?id)|key|__key__", re.IGNORECASE)
IN_ALL = "give it in every row, or in none"
_REMEDY = "give every row the fields of the first, an optional one in every row or in none"
BUILDERS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".arrow": "arrow",
}
_COLUMN = "name the right one with --column {field}=NAME"
Record = tuple[int | str, Mapping[str, Any]]  # the row's number or name, and its values by column


def columns_of(
    columns: Columns, present: Collection[str], file: str, row: int | str, how: str = _COLUMN
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
            remedy = f"{how.format(field=field)}; there are: {', '.join(present)}"
            if any("://" in name for name in present):
                remedy = (
                    "the first row has no names but data (a URL): write a row of names above it"
                )
            raise InputError(problem, file=file, row=row, remedy=remedy)
    return column_of


def captions_of(
    records: Iterable[Record], columns: Mapping[str, str], split: str, file: str
) -> Iterator[Caption]:
    """One caption for each text of each record, in order, in the record's split or else `split`.

    Captions without an id are called `<image id>#<k>`, where k counts that image's captions from 0.
    Raises InputError for a missing field, a wrong type, another number of ids than of captions, and
    an optional field that only some records have.
    """
    kinds: dict[str, Any] = {
        field: (_KINDS[field], Field(alias=name)) for field, name in columns.items()
    }
    fields = create_model("Fields", **kinds)
    counts: Counter[str] = Counter()
    for row, record in records:
        for name in OPTIONAL:
            if name in record and name not in columns:
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
    present, records = open_rows(Path(name), f".{params.source}")
    if present is None:
        return  # the stage has its own error for a source without captions
    columns = columns_of(params.columns, present, name, 1)
    if params.source != "jsonl":
        records = _parse_cells(records, columns, name)
    yield from captions_of(records, columns, params.split or "all", name)


def _parse_cells(
    records: Iterator[Record], fields: Mapping[str, str], file: str
) -> Iterator[Record]:
    """Records with the lists and ids that cells of .csv and .tsv, which are texts, stand for.

    A column of captions or their ids holds lists where each of its cells is one. An id such as 1.0
    is read as 1, because pandas writes a column of integers with gaps so.
    """
    rows = list(islice(records, 1))
    of_lists = columns_of_lists(rows, fields)
    if of_lists:  # the others need not be in memory
        rows += records
        of_lists = columns_of_lists(rows, fields)
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
            values[name] = FLOAT.sub(r"\1", record[name])
        yield row, values


def columns_of_lists(records: Sequence[Record], fields: Mapping[str, str]) -> set[str]:
    """The columns of captions and their ids whose every cell holds a list."""
    found = set()
    for field, pattern in _LISTS.items():
        name = fields.get(field)
        if name and all(pattern.match(record[name]) for _, record in records):
            found.add(name)
    return found


def open_rows(path: Path, kind: str) -> tuple[Collection[str] | None, Iterator[Record]]:
    """The columns of a table of a kind, .csv, .tsv or .jsonl, and its rows.

    Of .jsonl the columns are those of the first row, None of an empty file. Raises InputError for
    another kind, and as `read_table` does.
    """
    if kind == ".jsonl":
        records = _json_rows(path)
        first = list(islice(records, 1))
        return first[0][1] if first else None, chain(first, records)
    if kind in (".csv", ".tsv"):
        return open_table(path, "\t" if kind == ".tsv" else ",")
    remedy = "give a table: .csv, .tsv, .jsonl or .parquet"
    raise InputError(f"'{kind}' is not a kind of table", file=path, remedy=remedy)


def parquet_rows(
    path: Path, choose: Callable[[Collection[str]], Iterable[str]]
) -> Iterator[Record]:
    """The rows of a Parquet file; `choose` gets the names of all columns, and those that it returns
    are read. InputError for a file that is not whole."""
    file, row = open_parquet(path), 1
    columns = list(dict.fromkeys(choose(file.schema_arrow.names)))
    with reading(path, PARQUET):
        batches = file.iter_batches(columns=columns)
    while True:
        with reading(path, PARQUET):
            batch = next(batches, None)
            rows = batch.to_pylist() if batch is not None else None
        if rows is None:
            return
        yield from enumerate(rows, start=row)
        row += len(rows)


def _json_rows(path: Path) -> Iterator[Record]:
    for row, line in read_lines(path):
        if not line.strip():
            raise InputError(EMPTY, file=path, row=row, remedy=DELETE)
        value = parse_json(line, path, first_row=row)
        if not isinstance(value, dict):
            remedy = 'write one {"image_id": ..., "caption": ...} a row'
            raise InputError("not a JSON object", file=path, row=row, remedy=remedy)
        yield row, value


def read_hub(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of a dataset on the hub, of a folder from `save_to_disk`, or of data files, split by
    split, in the dataset's order.

    A cell of the caption column is a string or a list of strings. A row's split is in its column,
    else the dataset's. The image's file is in its column, else the path in a column of pictures,
    whose bytes are not loaded. Without a column of ids, an image's id is `row_id`. InputError for
    a dataset that cannot be loaded, a missing column or one that only some splits have, a wrong
    type."""
    file_split = split_of(Path(name).name) or params.split or "train"
    if name.endswith(".csv") and Path(name).is_file():  # `datasets` would read the id 007 as 7
        table_params = params.model_copy(update={"source": "csv", "split": file_split})
        yield from read_table(name, table_params, left_out)
        return
    # `datasets` calls the split of any single file `train`, and that of a folder may have no name.
    is_file = Path(name).is_file()
    datasets = {
        file_split if is_file else split or params.split or "all": dataset
        for split, dataset in _load_splits(name, params).items()
    }
    yield from captions_of_datasets(datasets, params.columns, name)


def captions_of_datasets(
    datasets: Mapping[str, Dataset], asked: Columns, name: str, how: str = _COLUMN
) -> Iterator[Caption]:
    """Captions of a dataset's splits, as `read_hub` reads them. Errors call the dataset `name` and
    say `how` a column is named."""
    columns: dict[str, dict[str, str]] = {}
    for split, dataset in datasets.items():
        present = dataset.column_names
        if asked.image_id or any(map(_IDS.fullmatch, present)):
            columns[split] = columns_of(asked, present, name, split, how)
        else:
            by_row = asked.model_copy(update={"image_id": ROW})
            columns[split] = columns_of(by_row, [*present, ROW], name, split, how)
            tell(
                f"{name}: no column of image ids, so images are called '{row_id(split, 0)}',"
                f" '{row_id(split, 1)}' and so on, by their rows; if a column has ids,"
                f" {how.format(field='image_id')}; there are: {', '.join(present)}"
            )
    for split, fields in columns.items():
        for other, other_fields in columns.items():
            if missing := set(other_fields.values()) - set(fields.values()):
                problem = f"no column '{min(missing)}', which split '{other}' has"
                remedy = "give it in every split, or in none"
                raise InputError(problem, file=name, row=split, remedy=remedy)
    for split, dataset in datasets.items():
        fields = columns[split]
        paths = _picture_paths(dataset) if "image_file" not in fields else None
        rows = dataset.select_columns(sorted({*fields.values()} - {ROW})).with_format(None)
        # A picture without a path is called by its row, as `row_id` calls the image.
        files = [path or row_id(split, k) for k, path in enumerate(paths or [])]
        records = (
            (f"{split}[{k}]", {ROW: row_id(split, k), _PATH: files and files[k], **row})
            for k, row in enumerate(rows)
        )
        if paths:
            fields = {"image_file": _PATH, **fields}
        yield from captions_of(records, fields, split, name)


def _picture_paths(dataset: Dataset) -> list[str | None] | None:
    """The paths in a column of pictures, without its bytes; None without such a column. An absolute
    path of another machine is cut to its file name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = (dataset if dataset._indices is None else dataset.flatten_indices()).data
    for name in dataset.column_names:
        kind = table.schema.field(name).type
        if pa.types.is_struct(kind) and {"bytes", "path"} <= {field.name for field in kind}:
            return [
                path_here(path) for path in pc.struct_field(table.column(name), "path").to_pylist()
            ]
    return None


def _load_splits(name: str, params: CaptionsParams) -> Mapping[str, Dataset]:
    """The dataset's splits by name; "" for one that has no name."""
    from datasets import DatasetDict, load_dataset, load_from_disk  # seconds to import

    path = Path(name)
    try:
        if any((path / saved).is_file() for saved in SAVED):
            loaded = load_from_disk(name)
        elif path.is_file() or path.suffix in BUILDERS:
            if path.suffix not in BUILDERS:
                remedy = f"give one of {', '.join(BUILDERS)}"
                raise InputError(
                    f"'{path.suffix}' is not a kind of data file", file=path, remedy=remedy
                )
            loaded = load_dataset(
                BUILDERS[path.suffix], data_files=escape(name) if path.is_file() else name
            )
        else:
            source = hub_source(name, "dataset", params.revision)
            loaded = load_dataset(
                source, params.config, revision=params.revision if source == name else None
            )
    except InputError:
        raise
    except Exception as error:  # whatever a builder's reader raises of a damaged file
        cause: BaseException = error
        # The outermost error only says "an error occurred while generating the dataset".
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = shorten(str(cause), 300) or "empty"
        problem = f"cannot be loaded as a dataset ({reason})"
        remedy = (
            "give a dataset id, or a file or folder of parquet, JSON or CSV, or one that"
            " save_to_disk wrote"
        )
        raise InputError(problem, file=name, remedy=remedy) from error
    if isinstance(loaded, DatasetDict):
        return {str(split): dataset for split, dataset in loaded.items()}
    return {str(loaded.split or ""): loaded}
