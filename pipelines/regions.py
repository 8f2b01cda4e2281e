"""Stage `regions`: pictures -> what a detector finds in each, as Arrow shards.

A shard is a fixed run of the picture list. Its batches and its file follow from the list and the
settings alone, so a run that was stopped goes on with the shards that are missing, several
processes may share the shards, and the bytes are the same. What the manifest says of a shard is
written after it, to a part whose name says of which pictures it is.
"""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

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
from capgrade.pipelines.detectors.catalogue import detector_digests, make_detector, precision_for
from capgrade.pipelines.detectors.selection import Detector
from capgrade.pipelines.features.convert import import_regions
from capgrade.pipelines.stages.regions import REGIONS, RegionsParams
from capgrade.processes import Process, join_processes
from capgrade.schemas.arrow import ArrowFile, write_arrow
from capgrade.schemas.captions import read_captions, splits_of
from capgrade.schemas.errors import InputError, first_names
from capgrade.schemas.files import write_json
from capgrade.schemas.image_matching import NAMES_SHOWN
from capgrade.schemas.left_out import MISSING, NO_REGION, UNREADABLE
from capgrade.schemas.lines import read_json
from capgrade.schemas.natures import of_parts
from capgrade.schemas.output import PARTS, require_space, size_of
from capgrade.schemas.progress import progress
from capgrade.schemas.regions import (
    Regions,
    Rounding,
    region_batches,
    region_schema,
    region_shard_name,
)
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import tell

MOST_IMAGES = 512  # a shard, however small its features: what a stop can lose
_NAMED = 20  # damaged pictures named in one message


@dataclass(frozen=True)
class ChosenPictures:
    """Pictures to look at, and the images that have none, as the manifest's `left_out` has them."""

    pictures: Sequence[Picture]
    left_out: Sequence[dict[str, str]] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)  # digest of the captions
    not_taken: Mapping[str, int] = field(default_factory=dict)  # files of the source, by the reason


def _choose_pictures(
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
        problem = match_lines[0] + (f"; not taken: {first_names(why, NAMES_SHOWN)}" if why else "")
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


def make_regions(captions: Path | None, out: Path, params: RegionsParams) -> dict[str, Any] | None:
    """The stage: what `regions` finds in the pictures of `params`, or what `import_regions` reads
    of its features. Returns the manifest. InputError as these two, and where it names neither."""
    if params.images is not None:
        return regions(Path(params.images), out, params, captions)
    if not params.features:
        problem = "no pictures and no features"
        raise InputError(problem, remedy="give --images, or --features and --format")
    return import_regions(out, params, captions)


def regions(
    source: Path, out: Path, params: RegionsParams, captions: Path | None = None
) -> dict[str, Any] | None:
    """Write `regions-00000.arrow`, ... and the manifest, which the first process returns.

    `source` is what `list_pictures` takes; with a captions folder, the pictures of its images are
    looked at (`_choose_pictures`). A picture that cannot be decoded, or in which nothing is found,
    is left out. With `unreadable: skip` the manifest lists it. With `fail` there is an InputError
    that names it, after all others are done; when it is mended, the next run does what is missing.
    """
    process = Process.current()
    chosen = _choose_pictures(source, captions, params)
    pictures = chosen.pictures
    if "detector" not in params.model_fields_set and not (source / PICTURES_TABLE).is_file():
        # The default detector is of no use on photographs.
        remedy = "give --detector bottom_up --weights FILE, or --detector patches --model MODEL"
        raise InputError(
            "no detector for these pictures", file=source, remedy=f"{remedy}, or import features"
        )
    detector = make_detector(params, process.local)
    detector.expect(pictures)
    found = {
        "detector": detector.name,
        "device": detector.device.type,
        "precision": precision_for(params, detector.device),
    }
    settings = {**of_parts(params), **found, "dtype": params.stored_dtype}
    schema = region_schema(detector.n_features, params.stored_dtype, settings)
    # Of an image with the most boxes.
    image_bytes = params.box_range[1] * detector.n_features * np.dtype(params.stored_dtype).itemsize
    shard_images = max(1, min(MOST_IMAGES, params.target_mb * 2**20 // image_bytes))
    # Without the pictures, as the name of each shard's part says which are in it.
    inputs = {**detector_digests(params), **chosen.inputs}
    run = StageRun(stage=REGIONS, params=params, inputs=inputs, rule=found)
    with join_processes(process) as wait, run.folder(out) as folder:
        if process.rank == 0:
            done = size_of(folder)
            require_space(out, max(len(pictures) * image_bytes, done), done=done)
        wait()  # nobody goes on before the folder is ready
        shards = [
            Shard(folder, number, pictures[start : start + shard_images], schema)
            for number, start in enumerate(range(0, len(pictures), shard_images))
        ]
        _detect_all(shards[process.rank :: process.world], detector, params, out)
        wait()
        if process.rank:
            return None
        return finish(folder, shards, detector, run, chosen)


@dataclass(frozen=True)
class Shard:
    """A run of the picture list, and where what is found in it is written."""

    folder: Path  # of the stage's run
    number: int
    pictures: Sequence[Picture]
    schema: pa.Schema

    @property
    def file(self) -> Path:
        """Its regions."""
        return self.folder / region_shard_name(self.number)

    @cached_property
    def facts(self) -> Path:
        """What the manifest says of it; another file when one of the pictures has changed."""
        stamp = _sha256([picture.stamp() for picture in self.pictures])[:16]
        return self.folder / PARTS / f"{self.number:05d}-{stamp}.json"

    def is_done(self) -> bool:
        """Whether it is there, whole, and of these pictures."""
        try:
            read_json(self.facts)
            ArrowFile(self.file)
        except InputError:
            return False
        return True

    def write(self, images: Sequence[Regions], facts: dict[str, Any], rounding: Rounding) -> None:
        """Write its regions, then the facts: they are there only of a file that is."""
        for earlier in self.facts.parent.glob(f"{self.number:05d}-*"):
            earlier.unlink()
        rows = write_arrow(self.file, self.schema, region_batches(images, self.schema, rounding))
        found = {"rows": rows, "regions": rounding.regions, "rounding": asdict(rounding)}
        write_json(self.facts, {**found, **facts})


@dataclass(frozen=True)
class _PictureOutcome:
    """What a picture gave: the SHA-256 of its bytes and its regions, or why it was not read."""

    digest: str = "unreadable"
    regions: Regions | None = None
    problem: str = ""


def _detect_all(
    shards: Sequence[Shard], detector: Detector, params: RegionsParams, out: Path
) -> None:
    """Make those of the shards, which are of this process, that no earlier run has finished.

    Workers decode ahead, pictures are detected here, and a thread writes a shard while the next one
    is detected.
    """
    todo, total, finished = list[Shard](), 0, 0
    for shard in shards:
        if shard.is_done():
            finished += len(shard.pictures)
        else:
            todo.append(shard)
            total += len(shard.pictures)
    if finished:
        done = f"{finished:,} of {finished + total:,} pictures are done by a stopped run"
        tell(f"{out}: goes on, {done}")
    if not total:
        return
    batches = plan_batches([shard.pictures for shard in todo], detector.prepare, params.batch)
    pinned = detector.device.type == "cuda"
    workers = min(params.workers, total)
    outcomes: dict[str, _PictureOutcome] = {}  # by image id, of the shard that is being detected
    writing: Future[None] | None = None  # the shard before it
    with (
        progress(f"regions by {detector.name}", total, unit="images") as advance,
        ThreadPoolExecutor(1) as writer,
    ):
        for each in decode_pictures(batches, detector.prepare, workers=workers, pinned=pinned):
            for image_id, problem in each.problems.items():
                outcomes[image_id] = _PictureOutcome(problem=problem)
            for one in each.prepared:
                found = detector.detect(one.images, one.scales, one.sizes, one.image_ids)
                for image_id, digest, of_image in zip(
                    one.image_ids, one.digests, found, strict=True
                ):
                    outcomes[image_id] = _PictureOutcome(digest, of_image)
            if each.batch.last:
                if writing:
                    writing.result()
                writing = writer.submit(_write_outcomes, todo[each.batch.shard], outcomes, params)
                outcomes = {}
            advance(len(each.batch.pictures))
        if writing:
            writing.result()


def _write_outcomes(
    shard: Shard, outcomes: Mapping[str, _PictureOutcome], params: RegionsParams
) -> None:
    """Write a shard: what is found in its pictures, and what is not in it."""
    images, left_out, fewer, digests = [], [], [], []
    for picture in shard.pictures:
        one = outcomes[picture.image_id]
        digests.append(one.digest)
        try:
            if one.regions is None or not len(one.regions):
                raise InputError(one.problem or "no region found")
            images.append(one.regions.check())
            fewer += [picture.image_id] if len(one.regions) < _least_regions(params) else []
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
    # `pictures` is of their bytes, where the part's name is of what the file system says.
    facts = {"pictures": _sha256(digests), "left_out": left_out, "fewer": fewer}
    shard.write(images, facts, Rounding())


def _least_regions(params: RegionsParams) -> int:
    """How many regions are asked for of each picture."""
    return 0 if params.boxes_of else params.box_range[0]


def finish(
    folder: Path,
    shards: Sequence[Shard],
    detector: Detector,
    run: StageRun[RegionsParams],
    chosen: ChosenPictures,
) -> dict[str, Any]:
    """Write the manifest of all shards, and return it.

    InputError if there is no image, or if one was left out that may not be.
    """
    rows, left_out, fewer, digests = {}, [*chosen.left_out], list[str](), list[str]()
    regions, rounding = 0, {"max_abs": 0.0, "max_rel": 0.0}
    for shard in shards:
        facts = read_json(shard.facts)
        rows[shard.file.name] = facts["rows"]
        left_out += facts["left_out"]
        fewer += facts["fewer"]
        digests.append(facts["pictures"])
        regions += facts["regions"]
        for name, error in rounding.items():
            rounding[name] = max(error, facts["rounding"][name])
    n_images = sum(rows.values())
    if left_out and (run.params.unreadable == "fail" or not n_images):
        remedy = (
            "mend or remove them and run again, which does only what is missing; or --set"
            " regions.unreadable=skip"
        )
        raise InputError(_named(left_out, n_images), remedy=remedy)
    if left_out:
        tell(f"left out: {_named(left_out, n_images)}")
    asked = _least_regions(run.params)
    if fewer:
        tell(
            f"fewer regions than the {asked} asked for: {len(fewer):,} images,"
            f" {first_names(fewer, NAMES_SHOWN)}"
        )
    whole = replace(run, inputs={"pictures": _sha256(digests), **run.inputs})
    return whole.finish(
        folder,
        rows,
        regions=regions,
        dim=detector.n_features,
        rounding=rounding,
        left_out=left_out,
        not_taken=dict(chosen.not_taken),
        fewer_regions={"asked": asked, "images": len(fewer)},
        classes=detector.classes,
        attributes=detector.attributes,
    )


def _named(left_out: Sequence[Mapping[str, str]], others: int) -> str:
    names = "; ".join(f"{one['file']} ({one['problem']})" for one in left_out[:_NAMED])
    more = f"; and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return f"{len(left_out)} of {len(left_out) + others} pictures without regions: {names}{more}"


def _sha256(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
