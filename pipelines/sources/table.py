"""Captions in a table of one's own (tab separated, comma separated, JSON Lines) or in a Hugging
Face dataset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from glob import escape
from itertools import chain, islice
from pathlib import Path, PurePath
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from capgrade.pipelines.sources.fields import CaptionTexts, File, Id, IdList, entry, listed_cell
from capgrade.schemas.captions import Caption
from capgrade.schemas.dataset_files import SAVED, path_here, row_id, split_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.hub import hub_source
from capgrade.schemas.lines import DELETE, EMPTY, open_bytes, open_table, parse_json, read_lines
from capgrade.schemas.params import CaptionsParams, Columns
from capgrade.schemas.pictures import SUFFIXES
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
# What the column of a field is called where no name is asked for, the first that is there.
_NAMES = {
    "image_id": ("image_id",),
    "caption": ("caption",),
    "caption_id": ("caption_id",),
    "split": ("split",),
    "image_file": ("image_file", "file_name", "filename"),
}
OPTIONAL = ("caption_id", "split")  # in every row or in none
# what stands for a column, of a dataset without one
ROW, _PATH = (
    "row of the split",
    "path of the picture",
)
# of texts, or of ids
LIST = re.compile(r"""\s*\[\s*(['"].*['"]|-?\d+(\s*,\s*-?\d+)*)\s*,?\s*\]\s*$""", re.DOTALL)
FLOAT = re.compile(r"^(-?\d+)\.0$")
# columns that are ids, by name
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
Record = tuple[int | str, Mapping[str, Any]]  # the row, and its values by column


def columns_of(
    columns: Columns, present: Collection[str], file: str, row: int | str, how: str = _COLUMN
) -> dict[str, str]:
    """The column of each field: as it was asked for, else one of NAMES. InputError that names the
    first which is missing, and `how` another one is named."""
    found: dict[str, str] = {}
    for field, names in _NAMES.items():
        asked = getattr(columns, field)
        name = next((name for name in ((asked,) if asked else names) if name in present), None)
        if name is not None:
            found[field] = name
        elif asked or field in ("image_id", "caption"):
            remedy = f"{how.format(field=field)}; there are: {', '.join(present)}"
            if any("://" in name for name in present):
                remedy = (
                    "the first row has no names but data (a URL): write a row of names above it"
                )
            raise InputError(
                f"no column '{asked or names[0]}' for the {field}",
                file=file,
                row=row,
                remedy=remedy,
            )
    return found


def captions_of(
    records: Iterable[Record], columns: Mapping[str, str], split: str, file: str
) -> Iterator[Caption]:
    """One caption for each text of each record, in order; `split` is for records without a split of
    their own.

    Captions without an id are called `<image id>#<k>`, k counting the captions of that image from
    0. Raises InputError for a missing field, one of the wrong type, an id count that is not the
    captions', and an optional field that only some records have.
    """
    kinds: dict[str, Any] = {
        field: (_KINDS[field], Field(alias=name)) for field, name in columns.items()
    }
    fields = create_model("Fields", **kinds)
    counts: Counter[str] = Counter()
    for row, record in records:
        if late := [name for name in OPTIONAL if name not in columns and name in record]:
            problem = f"'{late[0]}', which rows before this one do not have"
            raise InputError(problem, file=file, row=row, remedy=IN_ALL)
        values: Any = entry(fields, record, file, row, _REMEDY)
        image_id, texts = values.image_id, values.caption
        start = counts[image_id]
        counts[image_id] += len(texts)
        ids = [f"{image_id}#{k}" for k in range(start, start + len(texts))]
        if "caption_id" in columns:
            # of a list without captions, none is needed
            ids = values.caption_id or ids[: texts == [""]]
            if len(ids) != len(texts):
                problem = (
                    f"{len(ids)} caption ids in '{columns['caption_id']}' for {len(texts)} captions"
                )
                remedy = "give an id for each caption, or leave the column out"
                raise InputError(problem, file=file, row=row, remedy=remedy)
        own = values.split if "split" in columns else split
        image_file = getattr(values, "image_file", None)
        if image_file is None and PurePath(image_id).suffix.lower() in SUFFIXES:
            image_file = image_id  # an id that is a path
        for caption_id, text in zip(ids, texts, strict=True):
            yield Caption(image_id, caption_id, own, text, file, row, image_file)


def read_table(name: str, params: CaptionsParams, _: Counter[str]) -> Iterator[Caption]:
    """Captions of a .tsv (a tab always separates, a quotation mark is text), .csv (quoted as in RFC
    4180; a record in quotes may span rows) or .jsonl file, a row each. In JSON Lines a caption may
    be a list that shares the row's image.

    An optional field is in every row or in none. Raises InputError for a missing column, a row with
    more or fewer fields, broken quoting, malformed JSON, and a value of the wrong type.
    """
    fields: dict[str, str] = {}

    def chosen(present: Collection[str]) -> Iterable[str]:
        fields.update(columns_of(params.columns, present, name, 1))
        return fields.values()

    records: Iterable[Record] = table_rows(Path(name), f".{params.source}", chosen)
    records = iter(records)
    first = list(islice(records, 1))  # with which the columns are known
    whole: Iterable[Record] = chain(first, records)
    if params.source != "jsonl":
        whole = _typed(whole, fields, name)
    yield from captions_of(whole, fields, params.split or "all", name)


def _typed(records: Iterable[Record], fields: Mapping[str, str], file: str) -> Iterable[Record]:
    """Cells of .csv and .tsv, which are texts, as what was written into them: a column of lists of
    captions or of their ids, and ids such as 1.0, which pandas makes of 1. A column is of lists
    where every cell of it is one."""
    rows = iter(records)
    first = list(islice(rows, 1))
    columns = {fields[name] for name in ("caption", "caption_id") if name in fields}

    def is_list(cell: str, name: str) -> bool:
        match = LIST.match(cell)
        return match is not None and (name != fields["caption"] or not match[1][-1].isdigit())

    listed = {name for _, record in first for name in columns if is_list(record[name], name)}
    whole: Iterable[Record] = chain(first, rows)
    if listed:
        whole = list(whole)
        listed = {
            name for name in listed if all(is_list(record[name], name) for _, record in whole)
        }
    ids = {fields[name] for name in ("image_id", "caption_id") if name in fields} - listed
    for row, record in whole:
        found = dict(record)
        for name in listed:
            try:
                found[name] = listed_cell(record[name])
            except ValueError as error:
                remedy = "write it with json.dumps, or a caption a row"
                raise InputError(
                    f"'{name}' holds {error}", file=file, row=row, remedy=remedy
                ) from None
        for name in ids:
            found[name] = FLOAT.sub(r"\1", record[name])
        yield row, found


def table_rows(
    path: Path, kind: str, chosen: Callable[[Collection[str]], Iterable[str]]
) -> Iterator[Record]:
    """The rows of a table of a kind: .csv, .tsv, .jsonl or .parquet.

    `chosen` says which of the columns it asks for; of Parquet no other is read. Raises InputError
    for another kind, and as `read_table`; from `chosen` too.
    """
    if kind == ".parquet":
        yield from _parquet_rows(path, chosen)
    elif kind == ".jsonl":
        records = _objects(path)
        for row, first in records:
            chosen(first)
            yield from chain([(row, first)], records)
    elif kind in (".csv", ".tsv"):
        header, rows = open_table(path, "\t" if kind == ".tsv" else ",")
        chosen(header)
        yield from rows
    else:
        remedy = "give a table: .csv, .tsv, .jsonl or .parquet"
        raise InputError(f"'{kind}' is not a kind of table", file=path, remedy=remedy)


def _parquet_rows(
    path: Path, chosen: Callable[[Collection[str]], Iterable[str]]
) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    open_bytes(path).close()
    row = 1
    try:
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(
            columns=list(dict.fromkeys(chosen(file.schema_arrow.names)))
        ):
            yield from enumerate(batch.to_pylist(), start=row)
            row += batch.num_rows
    except pa.ArrowException as error:
        raise InputError(
            f"not a whole Parquet file ({error})", file=path, remedy="write it again"
        ) from error


def _objects(path: Path) -> Iterator[Record]:
    for row, line in read_lines(path):
        if not line.strip():
            raise InputError(EMPTY, file=path, row=row, remedy=DELETE)
        value = parse_json(line, path, first_row=row)
        if not isinstance(value, dict):
            remedy = 'write one {"image_id": ..., "caption": ...} a row'
            raise InputError("not a JSON object", file=path, row=row, remedy=remedy)
        yield row, value


def read_hub(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of a dataset on the hub, of a folder from `save_to_disk`, or of data files, in the
    order of the dataset, one split of it after another.

    The caption column holds a string, or a list of strings that share the row's image. A split
    column (`params.columns.split`, or one called "split") says each row's split, else it is the
    dataset's own. The image's file is a column, or the path in a column of pictures, whose bytes
    are neither decoded nor loaded. Where no column is an id, an image's id is `row_id`. Raises
    InputError for a dataset that cannot be loaded, a missing column, an optional one that only some
    splits have, and a value of the wrong type.
    """
    if name.endswith(".csv") and Path(name).is_file():  # the library would make 7 of the id 007
        split = split_of(Path(name).name) or params.split or "train"
        yield from read_table(
            name, params.model_copy(update={"source": "csv", "split": split}), left_out
        )
        return
    # A dataset saved alone may not know which split it is, and of one file the library always says
    # that it is `train`.
    loaded, alone = _load(name, params), Path(name).is_file()
    own = split_of(Path(name).name) or params.split or "train"
    datasets = {
        own if alone else split or params.split or "all": dataset
        for split, dataset in loaded.items()
    }
    yield from captions_of_datasets(datasets, params.columns, name)


def captions_of_datasets(
    datasets: Mapping[str, Dataset], asked: Columns, name: str, how: str = _COLUMN
) -> Iterator[Caption]:
    """Captions of the splits of a dataset, by their names, as `read_hub`; `name` is for errors, and
    `how` says in them how a column is named."""
    columns: dict[str, dict[str, str]] = {}
    for split, one in datasets.items():
        more = [] if any(map(_IDS.fullmatch, one.column_names)) or asked.image_id else [ROW]
        named = asked.model_copy(update={"image_id": ROW}) if more else asked
        columns[split] = columns_of(named, [*one.column_names, *more], name, split, how)
        if more:
            there = ", ".join(one.column_names)
            tell(
                f"{name}: no column of image ids, so images are called '{row_id(split, 0)}',"
                f" '{row_id(split, 1)}' and so on, by their rows; if a column has ids,"
                f" {how.format(field='image_id')}; there are: {there}"
            )
    for split, fields in columns.items():
        for other, theirs in columns.items():
            if missing := set(theirs.values()) - set(fields.values()):
                problem = f"no column '{min(missing)}', which split '{other}' has"
                raise InputError(
                    problem, file=name, row=split, remedy="give it in every split, or in none"
                )
    for split, dataset in datasets.items():
        fields = columns[split]
        paths = _picture_paths(dataset) if "image_file" not in fields else None
        rows = enumerate(
            dataset.select_columns(sorted({*fields.values()} - {ROW})).with_format(None)
        )
        # as pictures of such rows are called
        names = [path or row_id(split, k) for k, path in enumerate(paths or [])]
        records = (
            (f"{split}[{k}]", {ROW: row_id(split, k), _PATH: names and names[k], **row})
            for k, row in rows
        )
        yield from captions_of(
            records, {**({"image_file": _PATH} if paths else {}), **fields}, split, name
        )


def _picture_paths(dataset: Dataset) -> list[str | None] | None:
    """The paths that a column of pictures has, without its bytes; None where there is none. A path
    that is of another machine's folders is its file's name."""
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


def _load(name: str, params: CaptionsParams) -> Mapping[str, Dataset]:
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
        while (
            cause.__cause__ is not None
        ):  # "an error occurred while generating the dataset" tells nothing
            cause = cause.__cause__
        reason = shorten(str(cause), 300) or "empty"
        remedy = (
            "give a dataset id, or a file or folder of parquet, JSON or CSV, or one that"
            " save_to_disk wrote"
        )
        raise InputError(
            f"cannot be loaded as a dataset ({reason})", file=name, remedy=remedy
        ) from error
    if isinstance(loaded, DatasetDict):
        return {str(split): dataset for split, dataset in loaded.items()}
    return {str(loaded.split or ""): loaded}
