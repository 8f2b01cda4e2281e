"""Other people's feature files into our shards and back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from capgrade.pipelines.features import READERS, WRITERS
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
    format: str, source: Path | Sequence[Path], out: Path, *, dtype: str = "float32", captions: Path | None = None,
    split: str | None = None, unreadable: str = "fail",
) -> dict[str, Any]:  # fmt: skip
    """Write what the reader of `format` finds in `source`, or in several one after the other, as shards; returns the
    manifest. With captions the rows of their images alone, by the captions' image ids: then the source is read twice.

    Raises InputError for an unknown format or dtype, a folder that holds the regions of another file, and whatever
    `read_regions` and `write_regions` refuse.
    """
    if format not in READERS:
        raise InputError(f"unknown format '{format}'", remedy=f"choose from: {', '.join(READERS)}")
    sources = [source] if isinstance(source, Path) else list(source)
    names = [one.resolve().name for one in sources]
    splits = [one.name.removesuffix(SUFFIX).removesuffix(".h5") for one in sources if format in ("scan", "h5")]
    metadata = {"source": format, **({"split": "+".join(splits)} if splits else {})}
    inputs: dict[str, str] = {}
    for one in sources:  # files of one name in several folders are told apart by the folder
        for name, sha in _inputs(one).items():
            inputs[f"{one.resolve().parent.name}/{name}" if name in inputs else name] = sha
    stage = f"regions import --format {format}"  # of another file it is another stage
    stage += "".join(f" --input {name}" for name in names)
    images, left_out = read_regions(format, *sources), list[dict[str, str]]()
    if captions is not None:
        table = read_captions(captions, split or "+".join(splits_of(captions)))
        called, left_out = _asked(format, sources, table, unreadable == "skip")
        images = (replace(one, image_id=called[one.image_id]) for one in images if one.image_id in called)
        inputs["captions"] = table.digest
    elif split is not None or unreadable != "fail":
        raise InputError("--split or --unreadable without captions", remedy="give --captions")
    return write_regions(
        out, images, dtype=cast(Dtype, dtype), stage=stage, metadata=metadata, inputs=inputs, left_out=left_out
    )


def _asked(
    format: str, sources: Sequence[Path], captions: Captions, skip: bool
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The captions' image id by the id of the file, and the images that the files lack, as a manifest's `left_out` has
    them. What is missing, and what is not asked for, is said. InputError for a missing one without `skip`."""
    ids = [one.image_id for one in read_regions(format, *sources)]
    match = match_images(captions.image_files, ids, sources[0])
    told = match.lines("features")
    if match.missing and (not skip or not match.numbers):
        remedy = "give the other files too, or --split NAME for the images of one split; --unreadable skip leaves "
        raise InputError(told[0], file=sources[0], remedy=f"{remedy}such images out")
    for line in told:
        tell(f"{sources[0].name}: {line}")
    files = captions.image_files
    left_out = [
        {"image_id": one, "file": files[one] or one, "problem": "no features", "reason": MISSING}
        for one in match.missing
    ]
    return {ids[k]: image_id for image_id, k in match.numbers.items()}, left_out


def read_regions(format: str, *sources: Path) -> Iterator[Regions]:
    """The images of feature files in one format, checked, one file after the other.

    Raises InputError, with file and row, for what the reader and `Regions.check` refuse, for an image that comes twice,
    and for one with another feature length than those before.
    """
    places: dict[str, str] = {}
    dim = None
    for source in sources:
        for regions, file, row in _counted(f"reading {source.name}", READERS[format](source), None):
            length = regions.check(file=file, row=row).features.shape[1]
            dim = dim or length
            if length != dim:
                remedy = "keep features of different detectors in different folders"
                raise InputError(f"{length} numbers per region, {dim} before", file=file, row=row, remedy=remedy)
            if regions.image_id in places:
                problem = f"image {regions.image_id} is in {places[regions.image_id]} too"
                raise InputError(problem, file=file, row=row, remedy="give every image once")
            places[regions.image_id] = str(file) if row is None else f"{file} row {row}"
            yield regions


def export_regions(format: str, folder: Path, out: Path) -> int:
    """Write the regions of `folder` in another code base's layout; returns the images.

    Raises InputError for a format without a writer, for regions that it cannot hold, and where something else stands at
    `out`: tsv and scan never replace a file.
    """
    if format not in WRITERS:
        raise InputError(f"no writer for format '{format}'", remedy=f"choose from: {', '.join(WRITERS)}")
    for path in [out, ids_file(out, SUFFIX)] if format == "scan" else [out] if format == "tsv" else []:
        refuse_file(path, "file that may be replaced, as features cannot say who wrote them", lambda _: False)
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
    """SHA-256 of what was read: of a file, and the ids beside it; of a folder, over its files by name."""
    if source.is_dir():
        return {source.resolve().name: folder_digest(source, source.rglob("*.np[yz]"))}
    split = source.name.removesuffix(source.suffix).removesuffix("_ims")
    beside = [source.with_name(f"{split}_{kind}.txt") for kind in ("ids", "caps")]
    read = next((path for path in beside if path.is_file()), source)  # the captions count where there are no ids
    return digests([source, read])
