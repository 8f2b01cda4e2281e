"""Other people's feature files into our shards and back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from capgrade.pipelines.features import READERS, WRITERS
from capgrade.pipelines.features.damage import Found
from capgrade.pipelines.features.npz import teran_folders
from capgrade.pipelines.features.numbers import FLOATS
from capgrade.pipelines.features.rows import BadRows
from capgrade.pipelines.features.scan import SUFFIX, ids_file
from capgrade.schemas.captions import Captions, read_captions, splits_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digests, write_manifest
from capgrade.schemas.image_matching import match_images
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.left_out import MISSING
from capgrade.schemas.output import output_folder, refuse_file
from capgrade.schemas.progress import progress
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Dtype, Regions, write_regions
from capgrade.schemas.say import tell


def import_regions(
    format: str,
    source: Path | Sequence[Path],
    out: Path,
    *,
    dtype: str = "float32",
    captions: Path | None = None,
    split: str | None = None,
    unreadable: str = "fail",
    ids: Sequence[Path] = (),
    input_dtype: str | None = None,
) -> dict[str, Any]:
    """Write what the reader of `format` finds in `source`, or in several one after the other, as
    shards; returns the manifest. With captions the rows of their images alone, by the captions'
    image ids: then the source is read twice.

    With `unreadable` skip its `left_out` lists the images that could not be read. `ids` has the
    image ids of arrays of npy, a file for each; `input_dtype` is the type of a tsv's features.
    Raises InputError for an unknown format or dtype, a folder that holds the regions of another
    file, and whatever `read_regions` and `write_regions` refuse.
    """
    sources = [source] if isinstance(source, Path) else list(source)
    names = [one.resolve().name for one in sources]
    splits = [
        one.name.removesuffix(SUFFIX).removesuffix(".h5")
        for one in sources
        if format in ("scan", "h5")
    ]
    metadata = {"source": format, **({"split": "+".join(splits)} if splits else {})}
    files = _files_of(format, sources, ids, input_dtype)
    inputs: dict[str, str] = {}
    for one in (
        path for pair in files for path in pair if path
    ):  # of one name in several folders: told by the folder
        for name, sha in _inputs(one).items():
            inputs[f"{one.resolve().parent.name}/{name}" if name in inputs else name] = sha
    stage = f"regions import --format {format}"  # of another file it is another stage
    stage += "".join(f" --input {name}" for name in names)
    rows, found = BadRows(unreadable), list_found(format, sources, ids, input_dtype)
    images: Iterator[Regions] = rows.good(found)
    if captions is not None:
        table = read_captions(captions, split or "+".join(splits_of(captions)))
        inputs["captions"] = table.digest
        there = [one.image_id for one in list_found(format, sources, ids, input_dtype)]
        called, missing = _asked(there, sources[0], table, unreadable == "skip")
        rows.left_out += missing
        images = rows.good(one for one in found if one.image_id in called or not one.image_id)
        images = (replace(one, image_id=called[one.image_id]) for one in images)
    elif split is not None:
        raise InputError("--split without captions", remedy="give --captions")
    return write_regions(
        out,
        images,
        dtype=cast(Dtype, dtype),
        stage=stage,
        metadata=metadata,
        inputs=inputs,
        left_out=rows.left_out,
    )


def _asked(
    ids: Sequence[str], source: Path, captions: Captions, skip: bool
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The captions' image id by the id of the file, and the images that the files lack, as a
    manifest's `left_out` has them. What is missing, and what is not asked for, is said. InputError
    for a missing one without `skip`."""
    match = match_images(captions.image_files, ids, source)
    match_lines = match.lines("features")
    if match.missing and (not skip or not match.numbers):
        remedy = (
            "give the other files too, or --split NAME for the images of one split; --unreadable"
            " skip leaves "
        )
        raise InputError(match_lines[0], file=source, remedy=f"{remedy}such images out")
    for line in match_lines:
        tell(f"{source.name}: {line}")
    files = captions.image_files
    left_out = [
        {"image_id": one, "file": files[one] or one, "problem": "no features", "reason": MISSING}
        for one in match.missing
    ]
    return {ids[k]: image_id for image_id, k in match.numbers.items()}, left_out


def list_found(
    format: str, sources: Sequence[Path], ids: Sequence[Path] = (), input_dtype: str | None = None
) -> Iterator[Found]:
    """The images of feature files by their ids, not read yet. InputError as `read_regions`."""
    return _found(format, _files_of(format, sources, ids, input_dtype), input_dtype)


def read_regions(
    format: str, *sources: Path, ids: Sequence[Path] = (), input_dtype: str | None = None
) -> Iterator[Regions]:
    """The images of feature files in one format, checked, one file after the other.

    Raises InputError, with file and row, for what the reader and `Regions.check` refuse, for an
    image that comes twice, and for one with another feature length than the others; of several one
    that counts them, when all are read.
    """
    return BadRows().good(list_found(format, sources, ids, input_dtype))


def _files_of(
    format: str, sources: Sequence[Path], ids: Sequence[Path], input_dtype: str | None
) -> list[tuple[Path, Path | None]]:
    """What a reader gets: a file or folder, and that of its boxes or ids. InputError for an option
    of other formats."""
    if format not in READERS:
        raise InputError(f"unknown format '{format}'", remedy=f"choose from: {', '.join(READERS)}")
    if ids and (format != "npy" or len(ids) != len(sources)):
        remedy = "give --ids with --format npy, once for each --input"
        raise InputError(f"{len(ids)} --ids for {len(sources)} inputs of {format}", remedy=remedy)
    if input_dtype and (format not in ("tsv", "lxmert") or input_dtype not in FLOATS):
        remedy = (
            f"give {', '.join(FLOATS)} with --format tsv or lxmert; other files say their type"
            " themselves"
        )
        raise InputError(f"--input-dtype {input_dtype} of {format}", remedy=remedy)
    if format == "teran":
        return teran_folders(sources)
    beside: list[Path | None] = [*ids] or [None for _ in sources]
    return list(zip(sources, beside, strict=True))


def _found(
    format: str, files: Sequence[tuple[Path, Path | None]], input_dtype: str | None
) -> Iterator[Found]:
    for source, beside in files:
        options = {"input_dtype": input_dtype} if input_dtype else {}
        found = READERS[format](source, *([beside] if beside else []), **options)
        yield from _counted(f"reading {source.name}", found, None)


def export_regions(format: str, folder: Path, out: Path) -> int:
    """Write the regions of `folder` in another code base's layout; returns the images.

    Raises InputError for a format without a writer, for regions that it cannot hold, and where
    something else stands at `out`: tsv and scan never replace a file.
    """
    if format not in WRITERS:
        raise InputError(
            f"no writer for format '{format}'", remedy=f"choose from: {', '.join(WRITERS)}"
        )
    for path in (
        [out, ids_file(out, SUFFIX)] if format == "scan" else [out] if format == "tsv" else []
    ):
        refuse_file(
            path,
            "file that may be replaced, as features cannot say who wrote them",
            lambda _: False,
        )
    store = RegionStore(folder)
    images = _counted(f"writing {out.name}", store, len(store))
    if format != "npz":
        return WRITERS[format](out, images)
    with output_folder(out, "npz") as unfinished:
        written = WRITERS[format](unfinished, images)
        rows = {f"{image_id}.npz": 0 for image_id in store.ids}
        write_manifest(unfinished, "npz", params={}, inputs={}, rows=rows)
        return written


def _counted(what: str, images: Iterable[Any], total: int | None) -> Iterator[Any]:
    with progress(what, total, unit="images") as advance:
        for image in images:
            yield image
            advance()


def _inputs(source: Path) -> dict[str, str]:
    """SHA-256 of what was read: of a file, and the ids beside it; of a folder, over its files by
    name."""
    if source.is_dir():
        return {source.resolve().name: folder_digest(source, source.rglob("*.np[yz]"))}
    split = source.name.removesuffix(source.suffix).removesuffix("_ims")
    beside = [source.with_name(f"{split}_{kind}.txt") for kind in ("ids", "caps")]
    # the captions count where there are no ids
    read = next((path for path in beside if path.is_file()), source)
    return digests([source, read])
