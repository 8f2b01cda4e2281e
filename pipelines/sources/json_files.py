"""JSON of captions: MS-COCO's annotations and Karpathy's splits."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from capgrade.coco_files import PRECANNED, REJECTED
from capgrade.pipelines.sources.fields import CaptionText, Id, Text, entries
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json
from capgrade.schemas.params import CaptionsParams

_COCO = (
    "give a COCO caption file, such as captions_val2014.json, not instances_*.json or"
    " image_info_*.json"
)
KARPATHY = (
    "give one of Karpathy's files: images[] with filename, split and sentences[] of raw and sentid"
)
UNDESCRIBED = "images with rejected or precanned captions alone"
TWICE = "keep one of the two entries"


class CocoImage(BaseModel):
    id: Id
    file_name: Text | None = None


class Annotation(BaseModel):
    image_id: Id
    id: Id | None = None
    caption: CaptionText
    is_rejected: bool = False  # VizWiz's, whose own evaluation leaves both kinds out
    is_precanned: bool = False


class Sentence(BaseModel):
    raw: CaptionText
    sentid: Id


class KarpathyImage(BaseModel):
    filename: Id
    filepath: Id | None = None  # the folder, such as train2014
    split: Id
    sentences: list[Sentence]
    cocoid: Id | None = None


def read_coco(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of captions_train2014.json, or of a file laid out like it, in the order of
    `annotations`; ids as COCO gives them. Of a folder, all its captions_*.json.

    The split is the middle of the file name: captions_train2014.json is "train2014". Of one file
    alone it is `params.split` where that is given. Raises InputError for a malformed file, an image
    listed twice or without a caption, and a caption of an image that is not listed.
    """
    paths = sorted(Path(name).glob("captions_*.json")) if Path(name).is_dir() else [Path(name)]
    if not paths:
        raise InputError("no captions_*.json in this folder", file=name, remedy=_COCO)
    for path in paths:
        middle = re.fullmatch(r"captions_(.+)\.json", path.name)
        alone = len(params.inputs) == len(paths) == 1
        split = (params.split if alone else None) or (middle and middle[1])
        if not split:
            remedy = "name it with --split" if alone else "call it captions_SPLIT.json"
            raise InputError("the file name does not tell the split", file=path, remedy=remedy)
        yield from _coco(path, split, left_out)


def _coco(path: Path, split: str, left_out: Counter[str]) -> Iterator[Caption]:
    document = read_json(path)
    # else the images are those of the captions
    listed = not isinstance(document, dict) or "images" in document
    files: dict[str, str | None] = {}
    bare: dict[str, str] = {}  # images without a caption so far, and where they are listed
    numbers = Counter[str]()
    out, kept = set[str](), set[str]()  # images with captions of either kind
    for row, image in entries(document, "images", CocoImage, path, _COCO) if listed else ():
        if image.id in files:
            raise InputError(f"image {image.id} is listed twice", file=path, row=row, remedy=TWICE)
        files[image.id], bare[image.id] = image.file_name, row
    for row, one in entries(document, "annotations", Annotation, path, _COCO):
        image_id = one.image_id
        if image_id not in files and listed:
            problem = f"image {image_id} is not in 'images'"
            raise InputError(
                problem, file=path, row=row, remedy="list the image or drop the caption"
            )
        bare.pop(image_id, None)
        if one.is_rejected or one.is_precanned:
            left_out[REJECTED if one.is_rejected else PRECANNED] += 1
            out.add(image_id)
            continue
        kept.add(image_id)
        if one.id is None and listed:
            raise InputError("no 'id'", file=path, row=row, remedy=_COCO)
        # as `score` reads it, without ids and images
        caption_id = one.id or f"{image_id}#{numbers[image_id]}"
        numbers[image_id] += 1
        yield Caption(image_id, caption_id, split, one.caption, str(path), row, files.get(image_id))
    if out - kept:
        left_out[UNDESCRIBED] += len(out - kept)
    for image_id, row in bare.items():
        remedy = "drop the image from 'images' or add its captions; test2014 and test2015 have none"
        raise InputError(f"image {image_id} has no caption", file=path, row=row, remedy=remedy)


def read_karpathy(name: str, _: CaptionsParams, __: Counter[str]) -> Iterator[Caption]:
    """Captions of dataset_coco.json, dataset_flickr30k.json or dataset_flickr8k.json, image by
    image, in file order: the text is `raw`, the caption id `sentid` (COCO's own there).

    The image id is `cocoid` where images have one, else the file name. Splits keep their names,
    `restval` included. Raises InputError for a malformed file, an image listed twice or without
    sentences, and a `cocoid` that only some images have.
    """
    path, seen = Path(name), set[str]()
    numbered: bool | None = None  # whether images have a cocoid
    for row, image in entries(read_json(path), "images", KarpathyImage, path, KARPATHY):
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
        for k, one in enumerate(image.sentences):
            at = f"{row}.sentences[{k}]"
            yield Caption(image_id, one.sentid, image.split, one.raw, name, at, file)
