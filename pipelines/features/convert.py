"""Other code bases' feature files into folders of regions, and back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capgrade.pipelines.features import READERS, WRITERS
from capgrade.pipelines.features.damage import ImageEntry
from capgrade.pipelines.features.npz import pair_teran_folders
from capgrade.pipelines.features.numbers import FLOATS
from capgrade.pipelines.features.rows import GoodImages
from capgrade.pipelines.features.scan import SUFFIX, ids_file
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.captions import Captions, read_captions, splits_of
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import digests, folder_digest, write_manifest
from capgrade.schemas.image_matching import match_images
from capgrade.schemas.left_out import MISSING
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.output import output_folder
from capgrade.schemas.progress import progress
from capgrade.schemas.regions import Regions, RegionStore, write_regions
from capgrade.schemas.say import tell


def import_regions(
    out: Path, params: RegionsParams, captions: Path | None = None
) -> dict[str, Any]:
    """Write the images of the feature files of `params` as a folder of regions; returns the
    manifest.

    With `captions`, only their images are written, under the captions' image ids. With `unreadable`
    "skip" the manifest's `left_out` lists images that cannot be read. InputError for an unknown
    format, an `out` of other files, and what `read_regions` and `write_regions` refuse."""
    sources = [Path(name) for name in params.features]
    splits = [
        path.name.removesuffix(SUFFIX).removesuffix(".h5")
        for path in sources
        if params.format in ("scan", "h5")
    ]
    metadata = {"source": params.format, **({"split": "+".join(splits)} if splits else {})}
    inputs: dict[str, str] = {}
    for pair in _files_of(*_named_by(params)):
        for path in filter(None, pair):
            for name, sha in _input_digests(path).items():
                # Files of one name in several folders are told apart by their folder.
                key = f"{path.resolve().parent.name}/{name}" if name in inputs else name
                inputs[key] = sha
    good_images, entries = GoodImages(params.unreadable), images_of(params)
    images: Iterator[Regions] = good_images.read(entries)
    if captions is not None:
        table = read_captions(captions, params.split or "+".join(splits_of(captions)))
        inputs["captions"] = table.digest
        # The ids of all images are needed before the first is written, so the files are read twice.
        file_ids = [entry.image_id for entry in images_of(params)]
        skip = params.unreadable == "skip"
        new_ids, missing = _match_captions(file_ids, sources[0], table, skip)
        good_images.left_out += missing
        images = good_images.read(
            entry for entry in entries if entry.image_id in new_ids or not entry.image_id
        )
        images = (replace(image, image_id=new_ids[image.image_id]) for image in images)
    elif params.split is not None:
        remedy = "give --captions, or leave --split out"
        raise InputError("a split without captions", remedy=remedy)
    return write_regions(
        out,
        images,
        dtype=params.stored_dtype,
        target_mb=params.target_mb,
        metadata=metadata,
        inputs=inputs,
        left_out=good_images.left_out,
    )


def _match_captions(
    ids: Sequence[str], source: Path, captions: Captions, skip: bool
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The captions' image id by the id in the files, and the captions' images that the files lack,
    as a manifest's `left_out` lists them. Says which images are missing and which are not used.
    InputError for a missing image without `skip`."""
    match = match_images(captions.image_files, ids, source)
    notes = match.lines("features")
    if match.missing and (not skip or not match.numbers):
        remedy = (
            "give the other files too, or --set regions.split=NAME for the images of one split;"
            " --set regions.unreadable=skip leaves such images out"
        )
        raise InputError(notes[0], file=source, remedy=remedy)
    for line in notes:
        tell(f"{source.name}: {line}")
    files = captions.image_files
    left_out = [
        {
            "image_id": image_id,
            "file": files[image_id] or image_id,
            "problem": "no features",
            "reason": MISSING,
        }
        for image_id in match.missing
    ]
    return {ids[k]: image_id for image_id, k in match.numbers.items()}, left_out


def images_of(params: RegionsParams) -> Iterator[ImageEntry]:
    """The images of the feature files of parameters, not read yet. InputError as in
    `read_regions`."""
    return _list_images(*_named_by(params))


def _named_by(params: RegionsParams) -> tuple[str, list[Path], list[Path], str | None]:
    """The format of feature files, the files, those of ids, and the type of the features."""
    sources, ids = ([Path(name) for name in names] for names in (params.features, params.ids))
    if params.format is None:
        remedy = f"give --set regions.format={'|'.join(READERS)}"
        raise InputError("features of a format that is not said", file=sources[0], remedy=remedy)
    return params.format, sources, ids, params.input_dtype


def _list_images(
    format: str, sources: Sequence[Path], ids: Sequence[Path], input_dtype: str | None
) -> Iterator[ImageEntry]:
    return _list_entries(format, _files_of(format, sources, ids, input_dtype), input_dtype)


def read_regions(
    format: str, *sources: Path, ids: Sequence[Path] = (), input_dtype: str | None = None
) -> Iterator[Regions]:
    """The images of feature files in one format, checked, one file after the other.

    Raises InputError, with file and row, for what the reader and `Regions.check` refuse, for an
    image that comes twice, and for another feature length than most have. Several errors are raised
    as one, which counts them, after the last image.
    """
    return GoodImages().read(_list_images(format, sources, ids, input_dtype))


def _files_of(
    format: str, sources: Sequence[Path], ids: Sequence[Path], input_dtype: str | None
) -> list[tuple[Path, Path | None]]:
    """The paths a reader takes: a file or folder, and that of its boxes or ids. InputError for an
    option of other formats."""
    if format not in READERS:
        raise InputError(f"unknown format '{format}'", remedy=choose_from(format, READERS))
    if ids and (format != "npy" or len(ids) != len(sources)):
        remedy = "name files of ids for the format npy alone, one for each of regions.features"
        problem = f"{len(ids)} files of ids for {len(sources)} of features, in the format {format}"
        raise InputError(problem, remedy=remedy)
    if input_dtype and (format not in ("tsv", "lxmert") or input_dtype not in FLOATS):
        remedy = (
            f"give {', '.join(FLOATS)} for the formats tsv or lxmert; other files say their type"
            " themselves"
        )
        raise InputError(f"input_dtype {input_dtype} of {format}", remedy=remedy)
    if format == "teran":
        return pair_teran_folders(sources)
    seconds: list[Path | None] = [*ids] or [None for _ in sources]
    return list(zip(sources, seconds, strict=True))


def _list_entries(
    format: str, files: Sequence[tuple[Path, Path | None]], input_dtype: str | None
) -> Iterator[ImageEntry]:
    for source, second in files:
        options = {"input_dtype": input_dtype} if input_dtype else {}
        entries = READERS[format](source, *([second] if second else []), **options)
        yield from _with_progress(f"reading {source.name}", entries, None)


def export_regions(format: str, folder: Path, out: Path, force: bool = False) -> int:
    """Write the regions of `folder` in another code base's layout; returns the images.

    Raises InputError for a format without a writer, for regions that the layout cannot hold, and
    where another folder is at `out`, or a file, but with `force`.
    """
    if format not in WRITERS:
        raise InputError(f"no writer for format '{format}'", remedy=choose_from(format, WRITERS))
    paths = {"tsv": [out], "scan": [out, ids_file(out, SUFFIX)] if format == "scan" else []}
    for path in paths.get(format, []):
        refuse_file(path, force)
    store = RegionStore(folder)
    images = _with_progress(f"writing {out.name}", store, len(store))
    if format != "npz":
        return WRITERS[format](out, images)
    with output_folder(out, "npz") as unfinished:
        written = WRITERS[format](unfinished, images)
        rows = {f"{image_id}.npz": 0 for image_id in store.ids}
        write_manifest(unfinished, "npz", params={}, inputs={}, rows=rows)
        return written


def _with_progress(what: str, images: Iterable[Any], total: int | None) -> Iterator[Any]:
    with progress(what, total, unit="images") as advance:
        for image in images:
            yield image
            advance()


def _input_digests(source: Path) -> dict[str, str]:
    """SHA-256 by name of a file and of the ids beside it, or of all files of a folder together."""
    if source.is_dir():
        return {source.resolve().name: folder_digest(source, source.rglob("*.np[yz]"))}
    split = source.name.removesuffix(source.suffix).removesuffix("_ims")
    # Without a file of ids, the number of captions tells how many rows an image has.
    texts = [source.with_name(f"{split}_{kind}.txt") for kind in ("ids", "caps")]
    text = next((path for path in texts if path.is_file()), source)
    return digests([source, text])
