"""Lists the pictures of a folder, a zip, tars, Parquet files, a Hugging Face dataset, a list, or a
captions folder that carries them. The content of a file decides whether it is a picture, not its
name."""

import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from capgrade.pictures.picture import (
    FORMATS,
    STARTS_WITHIN,
    Picture,
    format_not_read,
    is_picture,
    open_picture_table,
    open_zip,
)
from capgrade.schemas.arrow import ArrowFile
from capgrade.schemas.contents import content_digest, walk_files
from capgrade.schemas.dataset_files import SAVED, path_here, row_id, split_of
from capgrade.schemas.errors import InputError, choose_from, first_names
from capgrade.schemas.hub import hub_source
from capgrade.schemas.image_matching import Candidate, ImageMatches, match_images, well_formed
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.natures import exists
from capgrade.schemas.parquet import PARQUET, open_parquet
from capgrade.schemas.progress import progress
from capgrade.schemas.reading import reading, reason_of, start_of_member
from capgrade.schemas.tars import is_tars, list_tars, tar_members

PICTURES_TABLE = "images.arrow"  # in a captions folder: image_id and png
THUMBNAILS = {"@eaDir", "__MACOSX", "thumbs", ".thumbnails", ".ipynb_checkpoints"}  # folders
# Members of a tar's sample with these endings are texts, and are not opened.
_TEXTS = {"txt", "json", "cls", "caption", "csv", "tsv"}
_NO_PICTURE, _OTHER, _HIDDEN = "no picture by content", "other files", "hidden"
_POINTER, _POINTER_START = "pointers of Git LFS, not files (git lfs pull)", b"version https://"
THUMBNAIL, UNREADABLE, _LINKED_BEFORE = "thumbnails", "cannot be read", "seen before by a link"
ID, FILES = "image_id", ("filename", "file_name", "image_file")  # columns of ids and of file names
_LONGEST_LINE = 2**16  # characters, of a list: a path has at most 4,096 bytes
_SHOWN = 3  # names in one line of what was not taken
_BESIDE = "pictures beside a dataset"
_PARTS = re.compile(r".*-\d{5}-of-\d{5}")


@dataclass(frozen=True)
class ImageColumns:
    """The columns of a dataset that have the pictures and their ids."""

    image: str | None = None  # None: the one that has the type of pictures
    image_id: str | None = None  # None: `image_id`, if there is such a column
    option: str | None = None  # the command's option for `image`; None where it has none

    def picture_column(self, schema: pa.Schema, path: Path) -> str:
        """The column of pictures: a struct of bytes and path, as `datasets` writes it, else one of
        bytes. InputError where there is none, where there are several, and for a column of ids that
        is not there."""
        names = ", ".join(schema.names)
        for name in (self.image, self.image_id):
            if name is not None and name not in schema.names:
                raise InputError(
                    f"no column '{name}'", file=path, remedy=choose_from(name, schema.names)
                )
        if self.image is not None:
            return _of_pictures(self.image, schema, path)
        structs, binary = _struct_columns(schema), _binary_columns(schema)
        columns = structs or binary
        if "image" in columns:
            return _of_pictures("image", schema, path)
        if len(columns) > 1:
            remedy = f"choose one: {self.option}={columns[0]}"
            if self.option is None:
                remedy = (
                    "call the one to look at `image`:"
                    f" dataset.rename_column('{columns[0]}', 'image')"
                )
            raise InputError(
                f"several columns of pictures: {', '.join(columns)}", file=path, remedy=remedy
            )
        if not columns:
            problem = f"no column of pictures among: {names}"
            raise InputError(problem, file=path, remedy="give Parquet files with a column `image`")
        return _of_pictures(columns[0], schema, path)

    def has_pictures(self, path: Path) -> bool:
        """Whether a Parquet file has pictures."""
        try:
            schema = open_parquet(path).schema_arrow
        except InputError:
            return False
        return (
            bool(_struct_columns(schema))
            or self.image in schema.names
            or "image" in _binary_columns(schema)
        )


NO_COLUMNS = ImageColumns()


def _of_pictures(name: str, schema: pa.Schema, path: Path) -> str:
    """The name of a column; InputError where its type is not that of pictures."""
    kind = schema.field(name).type
    of_bytes, of_path = kind, pa.null()
    if pa.types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        of_bytes, of_path = fields.get("bytes", kind), fields.get("path", pa.null())
    if not (_is_binary(of_bytes) or pa.types.is_null(of_bytes)):
        problem = f"column '{name}' is of type {of_bytes}, not of pictures' bytes"
    elif not (_is_text(of_path) or pa.types.is_null(of_path)):
        problem = f"the paths in column '{name}' are of type {of_path}, not texts"
    else:
        return name
    remedy = "write it as {bytes: binary, path: string}, or name another column"
    raise InputError(problem, file=path, remedy=remedy)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_text(kind: pa.DataType) -> bool:
    of_values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(of_values) or pa.types.is_large_string(of_values)


def _is_id(kind: pa.DataType) -> bool:
    # Floats are those of whole numbers with gaps.
    return _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _struct_columns(schema: pa.Schema) -> list[str]:
    return [
        field.name
        for field in schema
        if pa.types.is_struct(field.type)
        and {"bytes", "path"} <= {inner.name for inner in field.type}
    ]


def _binary_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _is_binary(field.type)]


class PictureList(list[Picture]):
    """The pictures of a source, in its order, and reason -> names of files that were not taken."""

    def __init__(
        self, pictures: Iterable[Picture], not_taken: Mapping[str, list[str]] | None = None
    ) -> None:
        super().__init__(pictures)
        self.not_taken = {reason: sorted(names) for reason, names in (not_taken or {}).items()}

    def lines(self) -> list[str]:
        """One line for each reason why files were not taken, with their first names."""
        return [
            f"not taken: {len(names):,} {reason}: {first_names(names, _SHOWN)}"
            for reason, names in self.not_taken.items()
        ]

    def reasons(self, missing: Mapping[str, str | None]) -> dict[str, str]:
        """image id -> why its file was not taken, for those of the `missing` images that have a
        file."""
        why: dict[str, str] = {}
        for reason, names in self.not_taken.items():
            candidates = [Candidate(PurePath(name).stem, name) for name in names]
            # Several files of one image are refused, and give no reason for it.
            with suppress(InputError):
                why |= dict.fromkeys(match_images(missing, candidates).numbers, reason)
        return why


def match_pictures(
    images: Mapping[str, str | None], pictures: Sequence[Picture], source: Path | str
) -> ImageMatches:
    """`match_images` of the pictures of a source."""
    candidates = (
        Candidate(
            picture.image_id,
            picture.path,
            picture.file if picture.member and picture.file != str(source) else None,
        )
        for picture in pictures
    )
    return match_images(images, candidates, source)


def make_opener(source: Path, images: Mapping[str, str | None]) -> Callable[[str], Image.Image]:
    """A function from an image id to its RGB picture; `images` are id -> file, None where it is not
    known. The function raises InputError for an image that is not in `source`."""
    pictures = list_pictures(source)
    numbers = match_pictures(images, pictures, source).numbers

    def open_image(image_id: str) -> Image.Image:
        if image_id not in numbers:
            remedy = "give the images that the regions were made from"
            raise InputError(f"no image {image_id!r}", file=source, remedy=remedy)
        return Image.fromarray(pictures[numbers[image_id]].decode()[0])

    return open_image


def pictures_digest(source: str, columns: ImageColumns = NO_COLUMNS) -> str | None:
    """`content_digest` of pictures, with the files that a list or the rows of a table name."""
    path, named = Path(source), dict[str, None]()
    tables = (".parquet", ".arrow")
    is_list = path.is_file() and path.suffix.lower() != ".tar" and not is_picture(_start(path))
    if is_list or (path.is_dir() and any(one.suffix in tables for one in walk_files(path))):
        # What cannot be listed is refused by whoever reads it.
        with suppress(InputError):
            for picture in list_pictures(source, columns):
                named |= dict.fromkeys([picture.file, str(picture.named_file or "")])
    files = (Path(name) for name in named if name and name != source)
    return content_digest(source, [file for file in files if exists(file)])


def list_pictures(source: str | Path, columns: ImageColumns = NO_COLUMNS) -> PictureList:
    """The pictures of a folder and those below it, in order of path, the file's stem the image id;
    of a zip, likewise; of WebDataset tars (one, `{00000..00331}.tar`, a folder or a text file of
    them), the sample's key the id; of Parquet files or of a folder from `save_to_disk`, and of a
    dataset of the hub (`_list_rows` has their ids); of a captions folder with images.arrow, in its
    order; of a text file of lines `image_id<TAB>path`, in its order, paths relative to it; or one
    picture by its file. `columns` are those of a dataset. InputError for no picture.
    """
    path, name = Path(source), str(source)
    if path.is_dir() and (path / PICTURES_TABLE).is_file():
        pictures = PictureList(_list_table(path / PICTURES_TABLE))
    elif is_tars(name):
        pictures = _list_tars([name])
    elif path.is_dir():
        pictures = _list_folder(path, columns)
    elif path.suffix.lower() == ".zip" and path.is_file():
        pictures = _list_zip(path)
    elif path.suffix.lower() == ".parquet" and path.is_file():
        pictures = PictureList(_list_parquet([path], path.parent, columns))
    elif path.is_file() and is_picture(_start(path)):
        pictures = PictureList([Picture(path.stem, name, path=path.name)])
    elif not path.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        pictures = PictureList(_list_hub(name, columns))
    else:
        pictures = _list_lines(path)
    if not pictures:
        why = "".join(f"; {line}" for line in pictures.lines())
        remedy = f"give pictures: {', '.join(FORMATS)}"
        raise InputError(f"no picture{why}", file=source, remedy=remedy)
    return pictures


def read_pictures(source: str | Path, columns: ImageColumns = NO_COLUMNS) -> PictureList:
    """`list_pictures` with distinct ids. InputError for an id that comes twice, and for one that
    regions cannot have."""
    pictures = list_pictures(source, columns)
    seen: dict[str, Picture] = {}
    for picture in pictures:
        first = seen.setdefault(picture.image_id, picture)
        if first is not picture:
            other = f"{first.member} of {first.file}" if first.member else first.path or first.file
            problem = f"image {picture.image_id!r} is {other} too"
            remedy = (
                "give every image an id of its own, in a list file, or --captions, which names"
                " folders"
            )
            raise InputError(problem, file=picture.file, row=picture.place, remedy=remedy)
        if not well_formed(picture.image_id):
            problem = (
                f"image id {picture.image_id!r}: visible characters, and no space around them, are"
                " needed"
            )
            raise InputError(
                problem, file=picture.file, remedy="rename it, or give its id in a list file"
            )
    return pictures


class _NotTaken(dict[str, list[str]]):
    """reason -> names of files that were not taken."""

    def add(self, reason: str, name: str) -> None:
        self.setdefault(reason, []).append(name)

    def is_hidden(self, name: str) -> bool:
        """Whether a path is skipped because of its name; then it is noted."""
        parts = PurePosixPath(name).parts
        if telling_parts := [part for part in parts[:-1] if part in THUMBNAILS] or [
            p for p in parts if p.startswith("._")
        ]:
            reason = THUMBNAIL if telling_parts[0] in THUMBNAILS else _HIDDEN
            self.add(reason, name)
            return True
        if any(part.startswith(".") for part in parts):
            self.add(_HIDDEN, name)
            return True
        return False

    def is_other(self, name: str, start: bytes) -> bool:
        """Whether a file is no picture by its first bytes; then it is noted."""
        if is_picture(start):
            return False
        kind = mimetypes.guess_type(name.lower())[0] or ""
        reason = _NO_PICTURE if kind.startswith("image/") or "." not in name else _OTHER
        if start.startswith(_POINTER_START):
            reason = _POINTER
        elif other := format_not_read(start):
            reason = _in_format(other)
        self.add(reason, name)
        return True


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(STARTS_WITHIN)


def _list_folder(folder: Path, columns: ImageColumns) -> PictureList:
    """Rows of a saved dataset, or of Parquet files with pictures; else the pictures in the folder
    and below it."""
    if any((folder / saved).is_file() for saved in SAVED):
        return PictureList(_list_saved(folder, columns))
    pictures, not_taken, tables = list[Picture](), _NotTaken(), list[Path]()
    with progress(f"looking for pictures in {folder}", None, unit="files") as advance:
        for path in _walk(folder, not_taken):
            name = path.relative_to(folder).as_posix()
            advance()
            if not_taken.is_hidden(name):
                continue
            try:
                start = _start(path)
            except OSError:
                not_taken.add(UNREADABLE, name)
                continue
            if path.suffix.lower() == ".parquet":
                tables.append(path)
                not_taken.add(_OTHER, name)
            elif not not_taken.is_other(name, start):
                pictures.append(Picture(path.stem, str(path), path=name))
    pictures.sort(key=lambda picture: str(picture.path))
    tables.sort()
    hub_tables = [path for path in tables if _PARTS.fullmatch(path.stem)]
    # Pictures beside the tables of a dataset of the hub belong to its page, not to its data.
    if tables and (not pictures or (hub_tables and columns.has_pictures(hub_tables[0]))):
        skipped = {_BESIDE: [str(picture.path) for picture in pictures]} if pictures else {}
        return PictureList(_list_parquet(tables, folder, columns), skipped)
    return PictureList(pictures, not_taken)


def _walk(folder: Path, not_taken: _NotTaken) -> Iterator[Path]:
    """Files below a folder, with links followed. A folder that several links lead to is taken once,
    and so is a file that links of the same name lead to."""
    seen, links = set[tuple[int, int]](), list[Path]()
    _is_new(folder, seen)

    def note_unreadable(error: OSError) -> None:
        name = Path(str(error.filename))
        not_taken.add(UNREADABLE, f"{name.relative_to(folder).as_posix()}/")

    for parent, folders, files in os.walk(folder, followlinks=True, onerror=note_unreadable):
        new_folders = []
        for name in sorted(folders, key=lambda name: (Path(parent, name).is_symlink(), name)):
            path = Path(parent, name)
            below = path.relative_to(folder).as_posix()
            if name in THUMBNAILS or name.startswith("."):
                not_taken.add(THUMBNAIL if name in THUMBNAILS else _HIDDEN, f"{below}/")
            elif _is_new(path, seen):
                new_folders.append(name)
            else:
                not_taken.add(_LINKED_BEFORE, f"{below}/")
        folders[:] = new_folders
        for path in (Path(parent, name) for name in files):
            if not path.is_file():
                # It is a link to nothing, or a pipe.
                not_taken.add(UNREADABLE, path.relative_to(folder).as_posix())
            elif path.is_symlink():
                links.append(path)
            else:
                yield path
    # Links to files come last, when all folders are known that may have the file itself.
    for path in links:
        if _is_new_file(path, seen):
            yield path
        else:
            not_taken.add(_LINKED_BEFORE, path.relative_to(folder).as_posix())


def _is_new(path: Path, seen: set[tuple[int, int]]) -> bool:
    """Whether a file or folder was not seen before, by any path; then it is added to `seen`."""
    stat = path.stat()
    place = (stat.st_dev, stat.st_ino)
    is_new = place not in seen
    seen.add(place)
    return is_new


def _is_new_file(link: Path, seen: set[tuple[int, int]]) -> bool:
    """Whether a link's file has another name, or lies in a folder that is not in `seen`: otherwise
    the file itself is listed."""
    target = link.resolve()
    stat = target.parent.stat()
    return target.name != link.name or (stat.st_dev, stat.st_ino) not in seen


def _list_zip(path: Path) -> PictureList:
    pictures, not_taken = list[Picture](), _NotTaken()
    archive = open_zip(str(path))
    for name in sorted(info.filename for info in archive.infolist() if not info.is_dir()):
        if not_taken.is_hidden(name):
            continue
        try:
            with reading(path, row=name):
                start = start_of_member(archive, name, STARTS_WITHIN)
        except InputError:  # damaged, encrypted, or packed in an unknown way
            not_taken.add(UNREADABLE, name)
            continue
        if not not_taken.is_other(name, start):
            pictures.append(Picture(PurePosixPath(name).stem, str(path), member=name, path=name))
    return PictureList(pictures, not_taken)


def _list_tars(sources: Sequence[str]) -> PictureList:
    """Members of tars that are pictures; their image id is the key of their sample."""
    pictures, not_taken = list[Picture](), _NotTaken()
    tars = list_tars(sources)
    with progress(f"looking for pictures in {len(tars):,} tars", len(tars), unit="tars") as advance:
        for tar in tars:
            with open_bytes(tar) as file:
                for member in tar_members(tar, not_taken.add):
                    if member.ending in _TEXTS or not_taken.is_hidden(member.name):
                        continue
                    file.seek(member.offset)
                    if not not_taken.is_other(
                        member.name, file.read(min(member.size, STARTS_WITHIN))
                    ):
                        pictures.append(
                            Picture(
                                member.key,
                                str(tar),
                                member=member.name,
                                path=member.name,
                                offset=member.offset,
                                length=member.size,
                            )
                        )
            advance()
    return PictureList(pictures, not_taken)


def _list_parquet(files: Sequence[Path], folder: Path, columns: ImageColumns) -> Iterator[Picture]:
    """Rows of Parquet files; the rows of a split are numbered through all its files."""
    counts: dict[str, int] = {}
    for path in files:
        split = split_of(path.relative_to(folder).as_posix()) or "train"
        file = open_parquet(path)
        column = columns.picture_column(file.schema_arrow, path)
        names = [
            name for name in (columns.image_id or ID, *FILES) if name in file.schema_arrow.names
        ]
        is_struct = pa.types.is_struct(file.schema_arrow.field(column).type)
        with reading(path, PARQUET):
            table = file.read([*names, *([f"{column}.path"] if is_struct else [])])
        first = counts.get(split, 0)
        yield from _list_rows(table, column, columns.image_id, str(path), split, first)
        counts[split] = first + file.metadata.num_rows


def _list_saved(folder: Path, columns: ImageColumns) -> Iterator[Picture]:
    """Rows of a dataset that `save_to_disk` wrote, mapped from its files."""
    from datasets import Dataset, DatasetDict, load_from_disk

    with reading(folder, "dataset of save_to_disk"):
        loaded = load_from_disk(str(folder))
    assert isinstance(loaded, Dataset | DatasetDict)
    for split, dataset in (
        loaded.items()
        if isinstance(loaded, DatasetDict)
        else [(str(loaded.split or "all"), loaded)]
    ):
        yield from _list_dataset(dataset, str(split), folder, columns)


def _list_hub(name: str, columns: ImageColumns) -> Iterator[Picture]:
    """Rows of a dataset of the hub, which `datasets` fetches once and maps from its cache."""
    from datasets import DatasetDict, load_dataset

    source = hub_source(name, "dataset")
    try:
        loaded = load_dataset(source)
    except Exception as error:  # whatever a builder's reader raises of a damaged file
        problem = f"no such file or folder, and no dataset of the hub ({reason_of(error)})"
        raise InputError(
            problem, file=name, remedy="check the path or the dataset's name"
        ) from error
    assert isinstance(loaded, DatasetDict)
    for split, dataset in loaded.items():
        yield from _list_dataset(dataset, str(split), Path(name), columns)


def _list_dataset(
    dataset: Any, split: str, source: Path, columns: ImageColumns
) -> Iterator[Picture]:
    """Rows of a dataset, read from its Arrow files. InputError where their order is not the
    dataset's."""
    if dataset._indices is not None:
        remedy = "write it in its order: dataset.flatten_indices().save_to_disk(FOLDER)"
        raise InputError(
            f"split '{split}' is a selection or in another order", file=source, remedy=remedy
        )
    first = 0
    for file in (entry["filename"] for entry in dataset.cache_files):
        table = open_picture_table(file)
        column = columns.picture_column(table.schema, source)
        yield from _list_rows(table, column, columns.image_id, file, split, first)
        first += table.num_rows


def _list_rows(
    table: pa.Table, column: str, id_column: str | None, file: str, split: str, first: int
) -> Iterator[Picture]:
    """A picture for each row. Its id is that of the column of ids, else the stem of its path; its
    path is the one beside its bytes, else that of a column of FILES, else `row_id`."""
    id_column = id_column or (ID if ID in table.column_names else None)
    if id_column and not _is_id(kind := table.schema.field(id_column).type):
        problem = f"column '{id_column}' is of type {kind}, not of ids"
        raise InputError(problem, file=file, remedy="write ids as texts or whole numbers")
    rows = [row_id(split, first + k) for k in range(table.num_rows)]
    paths: list[str | None] = [None] * len(rows)
    path_column = next((name for name in FILES if name in table.column_names), None)
    with reading(file, "table"):  # texts may be no UTF-8
        if column in table.column_names and pa.types.is_struct(table.schema.field(column).type):
            paths = pc.struct_field(table.column(column), "path").to_pylist()
        files = table.column(path_column).to_pylist() if path_column else [None] * len(rows)
        ids = table.column(id_column).to_pylist() if id_column else [None] * len(rows)
    if id_column and None in ids:
        k = ids.index(None)
        raise InputError(
            f"no '{id_column}'",
            file=file,
            row=f"{split}[{first + k}]",
            remedy="give every row its id",
        )
    for k, (path, file_name, image_id) in enumerate(zip(paths, files, ids, strict=True)):
        name = path_here(path) or file_name or rows[k]
        own_id = (
            str(image_id)
            if image_id is not None
            else PurePosixPath(str(name)).stem
            if path or file_name
            else rows[k]
        )
        yield Picture(own_id, file, k, path=str(name), column=column, named=path or None)


def _list_table(path: Path) -> list[Picture]:
    file = ArrowFile(path)
    file.need(pa.schema([("image_id", pa.string()), ("png", pa.binary())]))
    ids = file.read_all()["image_id"].to_pylist()
    return [Picture(image_id, str(path), k) for k, image_id in enumerate(ids)]


def _list_lines(path: Path) -> PictureList:
    """Pictures of a text file: its lines are image_id<TAB>path, or paths of tars."""
    if not path.exists():
        raise InputError("no such file or folder", file=path, remedy="check the path")
    with open_bytes(path) as file:
        if other := format_not_read(file.peek(STARTS_WITHIN)[:STARTS_WITHIN]):
            return PictureList([], {_in_format(other): [path.name]})
        try:
            lines = list(_text_lines(TextIOWrapper(file, encoding="utf-8-sig"), path))
        except UnicodeDecodeError as error:
            remedy = (
                "give a folder of pictures, a zip, tars, Parquet files, or a text file of lines"
                " image_id<TAB>path"
            )
            problem = f"no picture, and not text in UTF-8 ({error.reason})"
            raise InputError(problem, file=path, remedy=remedy) from None
    if lines and all(line.endswith(".tar") and "\t" not in line for line in lines):
        return _list_tars([str(path.parent / line) for line in lines])
    pictures = []
    for row, line in enumerate(lines, start=1):
        image_id, _, name = line.partition("\t")
        if not (image_id and name) or "\t" in name or "\0" in name:
            raise InputError(
                "not image_id<TAB>path", file=path, row=row, remedy="write one picture a line"
            )
        pictures.append(Picture(image_id, str(path.parent / name), path=name))
    return PictureList(pictures)


def _text_lines(file: TextIOWrapper, path: Path) -> Iterator[str]:
    for row, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), ""), start=1):
        if len(line) == _LONGEST_LINE:
            problem = f"a line of {_LONGEST_LINE:,} characters or more"
            raise InputError(problem, file=path, row=row, remedy="write one picture a line")
        yield line.removesuffix("\n")


def _in_format(name: str) -> str:
    return f"in {name}, which is not read"
