"""Captions of a Hugging Face dataset: a saved folder, data files, or an id on the hub.

Files are read by our own readers, column by column. `datasets` would infer types, which makes 7 of
the id 007, and would copy every picture into its cache.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os.path import commonpath
from pathlib import Path, PurePath
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from capgrade.pictures.picture import SUFFIXES
from capgrade.pipelines.sources.rows import KINDS, Record, kind_of, open_rows
from capgrade.pipelines.sources.table import COLUMN, captions_of, columns_of, parse_cells
from capgrade.pipelines.stages.captions import CaptionsParams, Columns
from capgrade.schemas.captions import Caption
from capgrade.schemas.dataset_files import (
    SAVED,
    has_configs,
    is_table,
    order_of,
    path_here,
    row_id,
    split_of,
    tables_of,
)
from capgrade.schemas.errors import InputError, first_names
from capgrade.schemas.hub import hub_source
from capgrade.schemas.image_matching import NAMES_SHOWN
from capgrade.schemas.left_out import EMPTY_FILES, OTHER_CONFIGS, OTHER_FILES, PICTURES, leave_out
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.say import tell

if TYPE_CHECKING:
    from datasets import Dataset

# Names of the columns that are made for a dataset which has no column of ids or of paths.
ROW = "row of the split"
_PATH, _SPLIT = "path of the picture", "split of the picture"
_METADATA = "metadata"  # the name of a table of pictures in folders, as `imagefolder` reads it
# Names of columns that hold ids.
_IDS = re.compile(r"((img|image|coco|.*[_ ])?id)|key|__key__", re.IGNORECASE)
_REMEDY = (
    "give a dataset id, or a file or folder of parquet, JSON or CSV, or one that save_to_disk wrote"
)


@dataclass(frozen=True)
class Part:
    """Rows of one split: of a dataset, or of one of its files."""

    split: str
    file: str  # what errors call it
    place: str | int  # of its columns, in errors
    columns: Sequence[str]
    # By field the column -> the rows. A cell of the column of pictures is the picture's path.
    read: Callable[[Mapping[str, str]], Iterable[Record]]
    picture: str | None = None  # the column of pictures
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # column -> names of numbers
    by_row: bool = False  # the folder of each row's picture tells its split, if anything does


def read_hub(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of a dataset on the hub, of a folder from `save_to_disk`, or of data files, split by
    split, in the dataset's order.

    A cell of the caption column is a string or a list of strings. A row's split is in its column,
    else the dataset's: that of its file's name. The image's file is in its column, else the path in
    a column of pictures, whose bytes are not loaded. Without a column of ids, an image's id is
    `row_id`. Files that are no tables are counted. InputError for a dataset that cannot be loaded,
    a folder in which some names of files tell a split and others none, a missing column or one that
    only some splits have, a wrong type."""
    parts = hub_parts(name, params, left_out)
    yield from _captions_of_parts(parts, params.columns, name, left_out=left_out)


def hub_parts(name: str, params: CaptionsParams, left_out: Counter[str]) -> list[Part]:
    """The splits, or files of splits, of what `read_hub` reads; errors as its."""
    path = Path(name)
    if any((path / saved).is_file() for saved in SAVED):
        parts: Iterable[Part] = _parts_of_datasets(_load_saved(name, params), name)
    elif path.is_file() or "://" in name:
        split = split_of(path.name) or params.split or "train"
        parts = _parts_of_files([(split, _fetched(name), kind_of(path))], left_out)
    elif path.is_dir() and not has_configs(path) and params.config is None:
        tables, others = tables_of(path, KINDS, kind_of)
        names = dict[str, list[str]]()
        for other in others:
            reason = PICTURES if other.suffix.lower() in SUFFIXES else OTHER_FILES
            names.setdefault(reason, []).append(other.relative_to(path).as_posix())
        for reason, found in names.items():
            leave_out(left_out, reason, found)
        parts = _parts_of_files(_with_splits(tables, path, params), left_out)
    elif kind_of(path) in KINDS:
        here = Path(path.anchor or ".")
        tables = sorted(here.glob(str(path.relative_to(path.anchor))))
        parts = _parts_of_files(_with_splits(tables, path, params), left_out)
    else:
        parts = _parts_told(name, params, left_out)
    return list(parts)


def captions_of_datasets(
    datasets: Mapping[str, Dataset], asked: Columns, name: str, how: str = COLUMN
) -> Iterator[Caption]:
    """Captions of a dataset's splits, as `read_hub` reads them. Errors call the dataset `name` and
    say `how` a column is named."""
    yield from _captions_of_parts(list(_parts_of_datasets(datasets, name)), asked, name, how)


def _captions_of_parts(
    parts: Sequence[Part],
    asked: Columns,
    name: str,
    how: str = COLUMN,
    left_out: Counter[str] | None = None,
) -> Iterator[Caption]:
    columns: list[dict[str, str]] = []
    for part in parts:
        if asked.image_id or any(map(_IDS.fullmatch, part.columns)):
            columns.append(columns_of(asked, part.columns, part.file, part.place, how))
            continue
        by_row = asked.model_copy(update={"image_id": ROW})
        columns.append(columns_of(by_row, [*part.columns, ROW], part.file, part.place, how))
        if part is parts[0]:
            tell(
                f"{name}: no column of image ids, so images are called '{row_id(part.split, 0)}',"
                f" '{row_id(part.split, 1)}' and so on, by their rows; if a column has ids,"
                f" {how.format(field='image_id')}; there are: {', '.join(part.columns)}"
            )
    for part, fields in zip(parts, columns, strict=True):
        for other, other_fields in zip(parts, columns, strict=True):
            if missing := set(other_fields.values()) - set(fields.values()):
                where = other.file if other.file != part.file else f"split '{other.split}'"
                problem = f"no column '{min(missing)}', which {where} has"
                remedy = "give it in every split, or in none"
                raise InputError(problem, file=part.file, row=part.place, remedy=remedy)
    captions, rows = Counter[str](), Counter[str]()  # of each image, of each split
    for part, fields in zip(parts, columns, strict=True):
        if part.picture and "image_file" not in fields:
            fields = {"image_file": _PATH, **fields}
        if part.by_row and "split" not in fields and "image_file" in fields:
            fields = {"split": _SPLIT, **fields}
        before = rows.total()
        records = _records_of(part, fields, rows)
        yield from captions_of(records, fields, part.split, part.file, captions)
        if rows.total() == before and left_out is not None:
            leave_out(left_out, EMPTY_FILES, [part.file if part.file != name else part.split])


def _records_of(part: Part, fields: Mapping[str, str], rows: Counter[str]) -> Iterator[Record]:
    """The rows of a part with the columns that are made, and with labels by their names; `rows`
    counts those of each split."""
    made = (ROW, _PATH, _SPLIT)
    asked = {name: column for name, column in fields.items() if column not in made}
    if _PATH in fields.values() and part.picture:
        asked["picture"] = part.picture  # whose cells are paths
    named = [
        column
        for name, column in asked.items()
        if name in ("split", "caption") and column in part.labels
    ]
    for row, record in part.read(asked):
        split = part.split
        if _SPLIT in fields.values():
            split = split_of(f"{record[fields['image_file']]}".rpartition("/")[0]) or split
        called = row_id(split, rows[split])
        rows[split] += 1
        values = {ROW: called, _SPLIT: split, **record}
        if "picture" in asked:
            # A picture without a path is called by its row, as `row_id` calls the image.
            values[_PATH] = path_here(record[asked["picture"]]) or called
        for column in named:
            values[column] = _name_of_label(part.labels[column], record[column])
        yield row, values


def _name_of_label(names: Sequence[str], value: Any) -> Any:
    """The name of a label; None of -1, which says that there is none. A name stays."""
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None


def _parts_of_files(
    files: Iterable[tuple[str, Path, str]], left_out: Counter[str]
) -> Iterator[Part]:
    """A part for each file: its split, where it lies, and its kind."""
    for split, path, kind in files:
        rows = open_rows(path, kind)
        if rows is None:
            leave_out(left_out, EMPTY_FILES, [str(path)])
            continue

        def read(
            fields: Mapping[str, str], path: Path = path, kind: str = kind
        ) -> Iterator[Record]:
            # Opened again, as a system does not let thousands of files be open at a time.
            if (rows := open_rows(path, kind)) is None:
                return iter(())
            records = rows.read(fields.values())
            return parse_cells(records, fields, str(path)) if kind in (".csv", ".tsv") else records

        is_untold = path.stem == _METADATA and split_of(path.name) is None
        yield Part(
            split, str(path), 1, list(rows.columns), read, rows.picture, rows.labels, is_untold
        )


def _fetched(name: str) -> Path:
    """A file that lies here, or is fetched from its URL."""
    if "://" not in name:
        return Path(name)
    from datasets import DownloadManager

    with _loading(name):
        return Path(str(DownloadManager().download(name)))


def _with_splits(
    tables: Sequence[Path], source: Path, params: CaptionsParams
) -> list[tuple[str, Path, str]]:
    """The tables of a folder or pattern, by their splits. InputError where there is none, and where
    only some of their names tell a split."""
    if not tables:
        problem = f"no tables here: {', '.join(KINDS)}" if source.is_dir() else "no such file"
        raise InputError(problem, file=source, remedy=_REMEDY)
    folder = source if source.is_dir() else Path(commonpath([table.parent for table in tables]))
    names = {path: path.relative_to(folder).as_posix() for path in tables}
    splits = {path: split_of(name) for path, name in names.items()}
    untold = [names[path] for path in tables if splits[path] is None]
    if untold and len(untold) < len(tables):
        told = next(path for path in tables if splits[path])
        problem = (
            f"the names of {len(untold):,} of {len(tables):,} tables tell no split"
            f" ({first_names(untold, NAMES_SHOWN)}), and others do, as '{splits[told]}' of"
            f" {names[told]}"
        )
        remedy = (
            f"name each after its split, as train-{Path(untold[0]).name}, or put those to read"
            " into a folder of their own"
        )
        raise InputError(problem, file=source, remedy=remedy)
    found = [(splits[path] or params.split or "train", path, kind_of(path)) for path in tables]
    return sorted(found, key=lambda one: (order_of(one[0]), names[one[1]]))


def _parts_told(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Part]:
    """The parts of a dataset whose card, or whose names on the hub, tell `datasets` which file is
    of which split."""
    from datasets import DownloadManager, load_dataset, load_dataset_builder
    from huggingface_hub import list_repo_files

    with _loading(name):
        source = hub_source(name, "dataset", params.revision)
        revision = params.revision if source == name else None
        builder = load_dataset_builder(source, params.config, revision=revision)
        told = builder.config.data_files or {}
        files = [(str(split), str(file)) for split, urls in told.items() for file in urls]
        if not files or any(kind_of(file) not in KINDS for _, file in files):
            # Such as pictures in archives: `datasets` alone reads them.
            loaded = load_dataset(source, params.config, revision=revision)
            datasets = {str(split): dataset for split, dataset in loaded.items()}
            yield from _parts_of_datasets(datasets, name)
            return
        paths = DownloadManager().download([file for _, file in files])
        if Path(source).is_dir():
            tables, _ = tables_of(Path(source), KINDS, kind_of)
            there = [path.relative_to(source).as_posix() for path in tables]
        else:
            every = list_repo_files(source, repo_type="dataset", revision=revision)
            there = [file for file in every if kind_of(file) in KINDS and is_table(file)]
    features = builder.info.features or {}
    labels = {key: kind.names for key, kind in features.items() if hasattr(kind, "int2str")}
    # A file is told by its path here, or by its URL.
    taken = [PurePath(file).as_posix() for _, file in files]
    others = [name for name in there if not any(one.endswith(f"/{name}") for one in taken)]
    leave_out(left_out, OTHER_CONFIGS, others)
    found = [
        (split, Path(path), kind_of(file)) for (split, file), path in zip(files, paths, strict=True)
    ]
    for part in _parts_of_files(found, left_out):
        yield replace(part, labels={**labels, **part.labels})


def _parts_of_datasets(datasets: Mapping[str, Dataset], name: str) -> Iterator[Part]:
    for split, dataset in datasets.items():
        picture = _picture_column(dataset)

        def read(
            fields: Mapping[str, str],
            split: str = split,
            dataset: Dataset = dataset,
            picture: str | None = picture,
        ) -> Iterator[Record]:
            paths = _picture_paths(dataset, picture) if picture in fields.values() else []
            rows = dataset.select_columns(sorted({*fields.values()} - {picture})).with_format(None)
            for k, row in enumerate(rows):
                yield f"{split}[{k}]", {**row, str(picture): paths[k]} if paths else row

        labels = {
            key: kind.names for key, kind in dataset.features.items() if hasattr(kind, "int2str")
        }
        yield Part(split, name, split, dataset.column_names, read, picture, labels)


def _picture_column(dataset: Dataset) -> str | None:
    import pyarrow as pa

    for name in dataset.column_names:
        kind = dataset.data.schema.field(name).type
        if pa.types.is_struct(kind) and {"bytes", "path"} <= {inner.name for inner in kind}:
            return str(name)
    return None


def _picture_paths(dataset: Dataset, name: Any) -> list[str | None]:
    """The paths in a column of pictures, without its bytes."""
    import pyarrow.compute as pc

    table = (dataset if dataset._indices is None else dataset.flatten_indices()).data
    paths: list[str | None] = pc.struct_field(table.column(name), "path").to_pylist()
    return paths


def _load_saved(name: str, params: CaptionsParams) -> Mapping[str, Dataset]:
    """The splits of a folder that `save_to_disk` wrote. One without a name is `params.split`."""
    from datasets import DatasetDict, load_from_disk  # seconds to import

    for path in Path(name).rglob("*"):
        if path.is_file():
            open_bytes(path).close()  # which refuses a pointer of Git LFS
    with _loading(name):
        loaded = load_from_disk(name)
    if isinstance(loaded, DatasetDict):
        return {str(split): dataset for split, dataset in loaded.items()}
    return {str(loaded.split or params.split or "all"): loaded}


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """InputError for whatever `datasets` raises of a damaged dataset, or of one that is not
    there."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        cause: BaseException = error
        # The outermost error only says "an error occurred while generating the dataset".
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = shorten(str(cause), 300) or "empty"
        problem = f"cannot be loaded as a dataset ({reason})"
        raise InputError(problem, file=name, remedy=_REMEDY) from error
