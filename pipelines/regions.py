"""Stage `regions`: pictures -> what a detector finds in each, as Arrow shards.

A shard is a fixed run of the picture list. Its batches, its file and its receipt follow from the
list and the settings alone, so a run that was stopped goes on with the shards that are missing,
several processes may share the shards, and the bytes are the same. A receipt is a JSON file beside
the shard, written after it: which pictures are in the shard, and what the manifest says of them.
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
from capgrade.processes import Process, join_processes
from capgrade.schemas.captions import read_captions, splits_of
from capgrade.schemas.errors import InputError, first_of
from capgrade.schemas.files import output_of, unfinished_folder, write_json, write_manifest
from capgrade.schemas.image_matching import NAMES_SHOWN
from capgrade.schemas.left_out import MISSING, NO_REGION, UNREADABLE
from capgrade.schemas.lines import read_json
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

# Of shards and receipts: raise it when the same parameters give other ones.
_FORMAT = 2
MOST_IMAGES = 512  # a shard, however small its features: what a stop can lose
_NAMED = 20  # damaged pictures named in one message


@dataclass(frozen=True)
class PictureShards:
    """The picture list divided into shards, and where they are written."""

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
        """Whether its receipt is there, and its pictures are unchanged."""
        receipt = self.receipt_file(shard)
        return receipt.is_file() and read_json(receipt)["stamp"] == self.stamp(shard)


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
    """The pictures of a source; with captions those of their images, in the table's order.

    Images have pictures by their ids in the captions (`match_images`). What is missing, and what is
    not asked for, is said. InputError where a picture is missing, but with `unreadable: skip`; and
    for an image that has two.
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
    """Why these images have no picture, as a manifest's `left_out` has it.

    It is not there, or it was not taken.
    """
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
    """Write `regions-00000.arrow`, ... and the manifest, which the first process returns.

    `source` is what `list_pictures` takes; with a captions folder, the pictures of its images are
    looked at (`choose_pictures`). A picture that cannot be decoded, or in which nothing is found,
    is left out. With `unreadable: skip` the manifest lists it. With `fail` there is an InputError
    that names it, after all others are done; when it is mended, the next run does what is missing.
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
    # Of an image with the most boxes.
    image_bytes = params.box_range[1] * detector.n_features * np.dtype(params.dtype).itemsize
    shard_images = max(1, min(MOST_IMAGES, params.target_mb * 2**20 // image_bytes))
    least = 0 if params.boxes_of else params.box_range[0]
    shards = PictureShards(unfinished_folder(out), pictures, shard_images, schema, least)
    # Without the pictures, as each shard's receipt says which are in it.
    made_of = {"format": _FORMAT, "regions": made_with, "inputs": inputs}
    with join_processes(process) as wait, output_folder(out, REGIONS_KIND, made_of):
        if process.rank == 0:
            done = size_of(shards.folder)
            require_space(out, max(len(pictures) * image_bytes, done), done=done)
        wait()  # nobody goes on before the folder is ready
        detect_all(shards, detector, params, process)
        wait()
        if process.rank:
            return None
        return finish(shards, detector, params, made_with, inputs, chosen)


def require_detector(source: Path, params: RegionsParams) -> None:
    """InputError where no detector is named and the pictures are no scenes.

    The default one is of no use on photographs.
    """
    if "detector" not in params.model_fields_set and not (source / PICTURES_TABLE).is_file():
        remedy = "give --detector bottom_up --weights FILE, or --detector patches --model MODEL"
        raise InputError(
            "no detector for these pictures", file=source, remedy=f"{remedy}, or import features"
        )


def detect_all(
    shards: PictureShards, detector: Detector, params: RegionsParams, process: Process
) -> None:
    """Make every unfinished shard of this process.

    Workers decode ahead, pictures are detected here, and a thread writes a shard while the next one
    is detected.
    """
    own = range(process.rank, shards.n_shards, process.world)
    todo = [k for k in own if not shards.finished(k)]
    total = sum(len(shards.numbers(k)) for k in todo)
    if kept := sum(len(shards.numbers(k)) for k in own) - total:
        done = f"{kept:,} of {kept + total:,} pictures are done by a stopped run"
        tell(f"{output_of(shards.folder)}: goes on, {done}")
    if not total:
        return
    batches = plan_batches(
        shards.pictures, ((k, shards.numbers(k)) for k in todo), detector.prepare, params.batch
    )
    pinned = device_of(params.device, process.local).type == "cuda"
    ready = decode_pictures(
        shards.pictures,
        batches,
        detector.prepare,
        workers=min(params.workers, total),
        pinned=pinned,
    )
    outcomes: dict[int, PictureOutcome] = {}  # of the shard that is being detected
    writing: Future[None] | None = None  # the shard before it
    with (
        progress(f"regions by {detector.name}", total, unit="images") as advance,
        ThreadPoolExecutor(1) as writer,
    ):
        for each in ready:
            outcomes |= {
                number: PictureOutcome(problem=problem) for number, problem in each.problems.items()
            }
            for one in each.prepared:
                ids = [shards.pictures[number].image_id for number in one.numbers]
                found = detector.detect(one.images, one.scales, one.sizes, ids)
                outcomes |= zip(one.numbers, map(PictureOutcome, one.digests, found), strict=True)
            if each.batch.last:
                if writing:
                    writing.result()
                writing = writer.submit(write_outcomes, shards, each.batch.shard, outcomes)
                outcomes = {}
            advance(len(each.batch.numbers))
        if writing:
            writing.result()


@dataclass(frozen=True)
class PictureOutcome:
    """What a picture gave: the SHA-256 of its bytes and its regions, or why it was not read."""

    digest: str = "unreadable"
    regions: Regions | None = None
    problem: str = ""


def write_outcomes(
    shards: PictureShards, shard: int, outcomes: Mapping[int, PictureOutcome]
) -> None:
    """Write a shard, then its receipt: what it was made from and holds, and what is not in it."""
    images, left_out, fewer, rounding = [], [], [], Rounding()
    stamp = shards.stamp(shard)
    for number in shards.numbers(shard):
        picture, one = shards.pictures[number], outcomes[number]
        try:
            if one.regions is None or not len(one.regions):
                raise InputError(one.problem or "no region found")
            images.append(one.regions.check())
            fewer += [picture.image_id] if len(one.regions) < shards.least else []
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
    rows = write_shard(shards.file(shard), images, shards.schema, rounding)
    receipt = {
        "stamp": stamp,
        "rows": rows,
        # Of the pictures' bytes, where `stamp` is of what the file system says.
        "pictures": _sha256(outcomes[number].digest for number in shards.numbers(shard)),
        "regions": rounding.regions,
        "rounding": asdict(rounding),
        "left_out": left_out,
        "fewer": fewer,
    }
    write_json(shards.receipt_file(shard), receipt)


def finish(
    shards: PictureShards,
    detector: Detector,
    params: RegionsParams,
    made_with: dict[str, Any],
    inputs: dict[str, str],
    chosen: ChosenPictures,
) -> dict[str, Any]:
    """Write the manifest of all shards, and return it.

    InputError if there is no image, or if one was left out that may not be.
    """
    receipts = [read_json(shards.receipt_file(shard)) for shard in range(shards.n_shards)]
    left_out = [*chosen.left_out, *(one for receipt in receipts for one in receipt["left_out"])]
    rows = {shard_name(shard): receipt["rows"] for shard, receipt in enumerate(receipts)}
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
            f"fewer regions than the {shards.least} asked for: {len(fewer):,} images,"
            f" {first_of(fewer, NAMES_SHOWN)}"
        )
    pictures = _sha256(receipt["pictures"] for receipt in receipts)
    return write_manifest(
        shards.folder,
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
        fewer_regions={"asked": shards.least, "images": len(fewer)},
        classes=detector.classes,
        attributes=detector.attributes,
    )


def _named(left_out: Sequence[Mapping[str, str]], others: int) -> str:
    names = "; ".join(f"{one['file']} ({one['problem']})" for one in left_out[:_NAMED])
    more = f"; and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return f"{len(left_out)} of {len(left_out) + others} pictures without regions: {names}{more}"


def _sha256(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
