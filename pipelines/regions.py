"""Stage `regions`: pictures -> what a detector finds in each, as Arrow shards.

A shard is a fixed run of the picture list. Its batches, its file and its receipt follow from the
list and the settings alone, so a run that was stopped goes on with the shards that are missing,
several processes may share the shards, and the bytes are the same.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.devices import device_of
from capgrade.pictures.decode import decode_pictures, plan_batches
from capgrade.pictures.listing import (
    PICTURES_TABLE,
    ImageColumns,
    PictureList,
    list_pictures,
    match_pictures,
    read_pictures,
)
from capgrade.pictures.picture import Picture
from capgrade.pipelines.detectors.catalogue import input_digests, make_detector, precision_for
from capgrade.pipelines.detectors.selection import Detector
from capgrade.processes import Process, together
from capgrade.schemas.captions import read_captions, splits_of
from capgrade.schemas.errors import InputError, first_of
from capgrade.schemas.files import (
    entry_of,
    manifest_of,
    output_of,
    parse_manifest,
    unfinished_folder,
    write_json,
    write_manifest,
)
from capgrade.schemas.image_matching import NAMES_SHOWN
from capgrade.schemas.left_out import MISSING, NO_REGION, UNREADABLE
from capgrade.schemas.output import PARTS, output_folder
from capgrade.schemas.params import RegionsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.regions import (
    REGIONS_KIND,
    Regions,
    Rounding,
    region_schema,
    shard_name,
    write_shard,
)
from capgrade.schemas.say import tell
from capgrade.schemas.space import require_space, size_of

# of shards: to be raised when a detector or the table gives other values of the same parameters
_FORMAT = 1
MOST_IMAGES = 512  # a shard, however small its features: what a stop can lose
_NAMED = 20  # damaged pictures named in one message


@dataclass(frozen=True)
class PictureShards:
    """The picture list cut into shards, and where they go."""

    folder: Path
    pictures: Sequence[Picture]
    shard_images: int
    schema: pa.Schema
    least: int  # regions that are asked for of each picture

    @property
    def n_shards(self) -> int:
        return -(-len(self.pictures) // self.shard_images)

    def numbers(self, shard: int) -> range:
        return range(
            shard * self.shard_images, min((shard + 1) * self.shard_images, len(self.pictures))
        )

    def stamp(self, shard: int) -> str:
        """SHA-256 of what tells the pictures of a shard from changed ones."""
        return _sha256(self.pictures[number].stamp() for number in self.numbers(shard))

    def file(self, shard: int) -> Path:
        return self.folder / shard_name(shard)

    def receipt_file(self, shard: int) -> Path:
        """Where its receipt is until the stage ends."""
        return self.folder / PARTS / f"{shard:05d}.json"

    def finished(self, shard: int) -> bool:
        """Its receipt is there, which is written after its file, and its pictures are unchanged."""
        receipt = self.receipt_file(shard)
        return receipt.is_file() and parse_manifest(receipt)["stamp"] == self.stamp(shard)


@dataclass(frozen=True)
class ChosenPictures:
    """Pictures to look at, and the images that have none, as the manifest's `left_out` has them."""

    pictures: Sequence[Picture]
    left_out: Sequence[dict[str, str]] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)  # digest of the captions
    not_taken: Mapping[str, int] = field(default_factory=dict)  # files of the source, by the reason


def choose_pictures(
    source: Path, captions_dir: Path | None, params: RegionsParams
) -> ChosenPictures:
    """The pictures of a source; with captions those of their images in the table's order, by the
    captions' image ids (`match_images`). What is missing, and what is not asked for, is said.

    InputError where a picture is missing, but with `unreadable: skip`; and for an image that has
    two.
    """
    columns = ImageColumns(params.image_column, params.image_id, "--set regions.image_column")
    if captions_dir is None:
        if params.split is not None:
            raise InputError(
                "a split without captions", remedy="give --captions, or leave --split out"
            )
        found = read_pictures(source, columns)
        for line in found.lines() if Process.current().rank == 0 else ():
            tell(f"{source}: {line}")
        return ChosenPictures(
            found, not_taken={reason: len(names) for reason, names in found.not_taken.items()}
        )
    captions = read_captions(captions_dir, params.split or "+".join(splits_of(captions_dir)))
    there = list_pictures(source, columns)
    match = match_pictures(captions.image_files, there, source)
    match_lines = match.lines()
    left_out = _without_picture(
        {image_id: captions.image_files[image_id] for image_id in match.missing}, there
    )
    if left_out and (params.unreadable == "fail" or not match.numbers):
        why = [f"{one['file']} ({one['problem']})" for one in left_out if one["reason"] != MISSING]
        problem = match_lines[0] + (f"; not taken: {first_of(why, NAMES_SHOWN)}" if why else "")
        remedy = (
            "give them, or the source they are in; --set regions.unreadable=skip leaves such"
            " images out"
        )
        remedy += "" if params.split else "; --split NAME takes the images of one split"
        raise InputError(problem, file=source, remedy=remedy)
    for line in match_lines if Process.current().rank == 0 else ():
        tell(f"{source}: {line}")
    pictures = [replace(there[k], image_id=image_id) for image_id, k in match.numbers.items()]
    return ChosenPictures(pictures, left_out, {"captions": captions.digest})


def _without_picture(missing: Mapping[str, str | None], there: PictureList) -> list[dict[str, str]]:
    """Why these images have no picture, as a manifest's `left_out` has it: it is not there, or was
    not taken."""
    why = there.reasons(missing)
    return [
        {
            "image_id": image_id,
            "file": file or image_id,
            "problem": why.get(image_id, "no picture"),
            "reason": UNREADABLE if image_id in why else MISSING,
        }
        for image_id, file in missing.items()
    ]


def regions(
    source: Path, out: Path, params: RegionsParams, captions: Path | None = None
) -> dict[str, Any] | None:
    """Write `regions-00000.arrow`, ... and, last, the manifest, which is returned; None in all
    processes of a launcher except the first. `source` is what `list_pictures` takes; with a
    captions folder, the pictures of its images are looked at (`choose_pictures`).

    A picture that cannot be decoded, or in which nothing is found, is left out and never shifts
    another row. With `unreadable: skip` the manifest lists it; with `fail` there is no manifest but
    an InputError that names it, after all others are done: mended, or with skip, the next run does
    only what is missing.
    """
    process = Process.current()
    chosen = choose_pictures(source, captions, params)
    pictures = chosen.pictures
    require_detector(source, params)
    detector = make_detector(params, process.local)
    detector.expect({picture.image_id: picture.path for picture in pictures})
    device = device_of(params.device, process.local)
    made_with = {
        **params.result(),
        "detector": detector.name,
        "device": device.type,
        "precision": precision_for(params, device),
    }
    inputs = {**input_digests(params), **chosen.inputs}
    schema = region_schema(detector.n_features, params.dtype, made_with)
    # with the most boxes
    image_bytes = params.box_range[1] * detector.n_features * np.dtype(params.dtype).itemsize
    shard_images = max(1, min(MOST_IMAGES, params.target_mb * 2**20 // image_bytes))
    least = 0 if params.boxes_of else params.box_range[0]
    cut = PictureShards(unfinished_folder(out), pictures, shard_images, schema, least)
    # a receipt says which pictures are in a shard
    made_of = {
        "format": _FORMAT,
        "regions": made_with,
        "inputs": inputs,
    }
    with together(process) as wait, output_folder(out, REGIONS_KIND, made_of):
        if process.rank == 0:
            done = size_of(cut.folder)
            require_space(out, max(len(pictures) * image_bytes, done), done=done)
        wait()  # nobody goes on before the folder is ready
        detect_all(cut, detector, params, process)
        wait()
        return (
            finish(cut, detector, params, made_with, inputs, chosen) if process.rank == 0 else None
        )


def require_detector(source: Path, params: RegionsParams) -> None:
    """InputError where none is named and the pictures are no scenes: that detector is of no use on
    photographs."""
    if "detector" not in params.model_fields_set and not (source / PICTURES_TABLE).is_file():
        remedy = "give --detector bottom_up --weights FILE, or --detector patches --model MODEL"
        raise InputError(
            "no detector for these pictures", file=source, remedy=f"{remedy}, or import features"
        )


def detect_all(
    cut: PictureShards, detector: Detector, params: RegionsParams, process: Process
) -> None:
    """Every unfinished shard of this process: decoded ahead by workers, detected here, written by a
    thread while the next is detected."""
    own = range(process.rank, cut.n_shards, process.world)
    todo = [k for k in own if not cut.finished(k)]
    total = sum(len(cut.numbers(k)) for k in todo)
    if kept := sum(len(cut.numbers(k)) for k in own) - total:
        tell(
            f"{output_of(cut.folder)}: goes on, {kept:,} of {kept + total:,} pictures are done by a"
            " stopped run"
        )
    if not total:
        return
    batches = plan_batches(
        cut.pictures, ((k, cut.numbers(k)) for k in todo), detector.prepare, params.batch
    )
    pinned = device_of(params.device, process.local).type == "cuda"
    ready = decode_pictures(
        cut.pictures, batches, detector.prepare, workers=min(params.workers, total), pinned=pinned
    )
    seen: dict[int, PictureOutcome] = {}  # of the shard that is being detected
    writing: Future[None] | None = None  # the shard before it
    with (
        progress(f"regions by {detector.name}", total, unit="images") as advance,
        ThreadPoolExecutor(1) as writer,
    ):
        for each in ready:
            seen |= {
                number: PictureOutcome(problem=problem) for number, problem in each.problems.items()
            }
            for one in each.prepared:
                ids = [cut.pictures[number].image_id for number in one.numbers]
                found = detector.detect(one.images, one.scales, one.sizes, ids)
                seen |= zip(one.numbers, map(PictureOutcome, one.digests, found), strict=True)
            if each.batch.last:
                if writing:
                    writing.result()
                writing = writer.submit(write, cut, each.batch.shard, seen)
                seen = {}
            advance(len(each.batch.numbers))
        if writing:
            writing.result()


@dataclass(frozen=True)
class PictureOutcome:
    """What came of a picture: the SHA-256 of its bytes and what was detected, or why it could not
    be read."""

    digest: str = "unreadable"
    regions: Regions | None = None
    problem: str = ""


def write(cut: PictureShards, shard: int, seen: Mapping[int, PictureOutcome]) -> None:
    """A shard, then its receipt, a manifest: what it was made from, what it holds, and which
    pictures are not in it."""
    images, left_out, fewer, rounding = [], [], [], Rounding()
    stamp = cut.stamp(shard)
    for number in cut.numbers(shard):
        picture, one = cut.pictures[number], seen[number]
        try:
            if one.regions is None or not len(one.regions):
                raise InputError(one.problem or "no region found")
            images.append(one.regions.check())
            fewer += [picture.image_id] if len(one.regions) < cut.least else []
        except InputError as error:
            reason = UNREADABLE if one.regions is None else NO_REGION
            left_out.append(
                {
                    "image_id": picture.image_id,
                    "file": picture.name,
                    "problem": error.problem,
                    "reason": reason,
                }
            )
    rows = write_shard(cut.file(shard), images, cut.schema, rounding)
    # of the bytes; `stamp` is the file system's
    read = _sha256(seen[number].digest for number in cut.numbers(shard))
    receipt = manifest_of(
        REGIONS_KIND,
        {shard_name(shard): entry_of(cut.file(shard), rows=rows)},
        stamp=stamp,
        pictures=read,
        regions=rounding.regions,
        rounding=asdict(rounding),
        left_out=left_out,
        fewer=fewer,
    )
    write_json(cut.receipt_file(shard), receipt)


def finish(
    cut: PictureShards,
    detector: Detector,
    params: RegionsParams,
    made_with: dict[str, Any],
    inputs: dict[str, str],
    chosen: ChosenPictures,
) -> dict[str, Any]:
    """The manifest over all shards. InputError if there is no image, or if one was left out that
    may not be."""
    receipts = [parse_manifest(cut.receipt_file(shard)) for shard in range(cut.n_shards)]
    left_out = [*chosen.left_out, *(one for receipt in receipts for one in receipt["left_out"])]
    rows = {name: entry["rows"] for receipt in receipts for name, entry in receipt["files"].items()}
    if left_out and (params.unreadable == "fail" or not any(rows.values())):
        remedy = (
            "mend or remove them and run again, which does only what is missing; or --set"
            " regions.unreadable=skip"
        )
        raise InputError(_named(left_out, sum(rows.values())), remedy=remedy)
    if left_out:
        tell(f"left out: {_named(left_out, sum(rows.values()))}")
    if fewer := [image_id for receipt in receipts for image_id in receipt["fewer"]]:
        tell(
            f"fewer regions than the {cut.least} asked for: {len(fewer):,} images,"
            f" {first_of(fewer, NAMES_SHOWN)}"
        )
    pictures = _sha256(receipt["pictures"] for receipt in receipts)
    return write_manifest(
        cut.folder,
        REGIONS_KIND,
        params=made_with,
        inputs={"pictures": pictures, **inputs},
        rows=rows,
        regions=sum(receipt["regions"] for receipt in receipts),
        dim=detector.n_features,
        rounding={
            name: max(receipt["rounding"][name] for receipt in receipts)
            for name in ("max_abs", "max_rel")
        },
        left_out=left_out,
        not_taken=dict(chosen.not_taken),
        fewer_regions={"asked": cut.least, "images": len(fewer)},
        classes=detector.classes,
        attributes=detector.attributes,
    )


def _named(left_out: Sequence[Mapping[str, str]], others: int) -> str:
    names = "; ".join(f"{one['file']} ({one['problem']})" for one in left_out[:_NAMED])
    more = f"; and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return f"{len(left_out)} of {len(left_out) + others} pictures without regions: {names}{more}"


def _sha256(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
