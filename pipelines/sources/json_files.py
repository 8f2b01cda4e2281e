"""JSON of captions: MS-COCO's annotations and Karpathy's splits."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from capgrade.coco_files import PRECANNED, REJECTED
from capgrade.pipelines.sources.fields import CaptionText, Id, Text, read_entries
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.left_out import OTHER_FILES, leave_out
from capgrade.schemas.lines import read_json

_COCO = (
    "give a COCO caption file, such as captions_val2014.json, not instances_*.json or"
    " image_info_*.json"
)
KARPATHY = (
    "give one of Karpathy's files: images[] with filename, split and sentences[] of raw and sentid"
)
UNDESCRIBED = "images with rejected or precanned captions alone"
TWICE = "keep one of the two entries"


class _CocoImage(BaseModel):
    id: Id
    file_name: Text | None = None


class _Annotation(BaseModel):
    image_id: Id
    id: Id | None = None
    caption: CaptionText
    # VizWiz marks captions with these two, and its own evaluation leaves both kinds out.
    is_rejected: bool = False
    is_precanned: bool = False


class Sentence(BaseModel):
    raw: CaptionText
    sentid: Id


class _KarpathyImage(BaseModel):
    filename: Id
    filepath: Id | None = None  # a folder, such as train2014
    split: Id
    sentences: list[Sentence]
    cocoid: Id | None = None


def read_coco(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of captions_train2014.json, or of all captions_*.json in a folder, in the order of
    `annotations`; ids are COCO's. Other .json files of the folder are counted.

    The split is the middle of the file name: captions_train2014.json is "train2014". For a single
    file, `params.split` comes first. Raises InputError for a malformed file, an image listed twice
    or without a caption, and a caption of an image that is not listed.
    """
    paths = [Path(name)]
    if Path(name).is_dir():
        every = sorted(Path(name).glob("*.json"))
        paths = [path for path in every if path.name.startswith("captions_")]
        others = [path.name for path in every if path not in paths]
        leave_out(left_out, OTHER_FILES, others)
    if not paths:
        raise InputError("no captions_*.json in this folder", file=name, remedy=_COCO)
    for path in paths:
        match = re.fullmatch(r"captions_(.+)\.json", path.name)
        single = len(params.inputs) == len(paths) == 1
        split = (params.split if single else None) or (match and match[1])
        if not split:
            remedy = "name it with --split" if single else "call it captions_SPLIT.json"
            raise InputError("the file name does not tell the split", file=path, remedy=remedy)
        yield from _read_coco_file(path, split, left_out)


def _read_coco_file(path: Path, split: str, left_out: Counter[str]) -> Iterator[Caption]:
    document = read_json(path)
    # A file without a list of images has those that its captions name.
    has_images = not isinstance(document, dict) or "images" in document
    files: dict[str, str | None] = {}
    bare: dict[str, str] = {}  # images without a caption so far, and where they are listed
    caption_counts = Counter[str]()
    with_dropped, with_kept = set[str](), set[str]()  # images with captions of either kind
    for row, image in (
        read_entries(document, "images", _CocoImage, path, _COCO) if has_images else ()
    ):
        if image.id in files:
            raise InputError(f"image {image.id} is listed twice", file=path, row=row, remedy=TWICE)
        files[image.id] = image.file_name
        bare[image.id] = row
    for row, annotation in read_entries(document, "annotations", _Annotation, path, _COCO):
        image_id = annotation.image_id
        if image_id not in files and has_images:
            problem = f"image {image_id} is not in 'images'"
            raise InputError(
                problem, file=path, row=row, remedy="list the image or drop the caption"
            )
        bare.pop(image_id, None)
        if annotation.is_rejected or annotation.is_precanned:
            left_out[REJECTED if annotation.is_rejected else PRECANNED] += 1
            with_dropped.add(image_id)
            continue
        with_kept.add(image_id)
        if annotation.id is None and has_images:
            raise InputError("no 'id'", file=path, row=row, remedy=_COCO)
        # A file of results, as `score` reads it, has neither ids of captions nor images.
        caption_id = annotation.id or f"{image_id}#{caption_counts[image_id]}"
        caption_counts[image_id] += 1
        file = files.get(image_id)
        yield Caption(image_id, caption_id, split, annotation.caption, str(path), row, file)
    if with_dropped - with_kept:
        left_out[UNDESCRIBED] += len(with_dropped - with_kept)
    for image_id, row in bare.items():
        remedy = "drop the image from 'images' or add its captions; test2014 and test2015 have none"
        raise InputError(f"image {image_id} has no caption", file=path, row=row, remedy=remedy)


def read_karpathy(name: str, _: CaptionsParams, __: Counter[str]) -> Iterator[Caption]:
    """Captions of dataset_coco.json, dataset_flickr30k.json or dataset_flickr8k.json in file order:
    the text is `raw`, the caption id `sentid` (for COCO its own id).

    The image id is `cocoid` where images have one, else the file name. Splits keep their names,
    `restval` included. Raises InputError for a malformed file, an image listed twice or without
    sentences, and a `cocoid` that only some images have.
    """
    path, seen = Path(name), set[str]()
    numbered: bool | None = None  # whether images have a cocoid; None before the first
    for row, image in read_entries(read_json(path), "images", _KarpathyImage, path, KARPATHY):
        if numbered is not None and numbered != (image.cocoid is not None):
            problem = "no 'cocoid', which images" if numbered else "a 'cocoid', which no images"
            remedy = "give every image its cocoid, or none: then file names are the image ids"
            raise InputError(f"{problem} before this one have", file=path, row=row, remedy=remedy)
        numbered = image.cocoid is not None
        image_id = image.cocoid or image.filename
        if image_id in seen:
            raise InputError(f"image {image_id} is listed twice", file=path, row=row, remedy=TWICE)
        seen.add(image_id)
        if not image.sentences:
            remedy = "drop the image or add its captions"
            raise InputError(
                f"image {image_id} has no sentences", file=path, row=row, remedy=remedy
            )
        file = image.filename if image.filepath is None else f"{image.filepath}/{image.filename}"
        for k, sentence in enumerate(image.sentences):
            place = f"{row}.sentences[{k}]"
            yield Caption(image_id, sentence.sentid, image.split, sentence.raw, name, place, file)
