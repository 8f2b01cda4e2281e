"""MS-COCO caption annotations: captions_train2014.json and files laid out like it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capgrade.pipelines.sources.fields import Position, as_id, as_text, entries, read_json, required, source_path
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

LAYOUT = "give a COCO caption file, such as captions_val2014.json, not instances_*.json or image_info_*.json"


def read_coco(params: CaptionsParams) -> Iterator[Caption]:
    """Captions in the order of `annotations`; ids as COCO gives them.

    The split is `params.split`, else the middle of the file name: captions_train2014.json is "train2014".
    Raises InputError for a malformed file, an image listed twice or without a caption, and a caption of an
    image that is not listed.
    """
    path = source_path(params)
    split = params.split or _split_of(path)
    document = read_json(path)
    images = _images(document, path)
    bare = dict.fromkeys(images)  # images without a caption so far, in file order
    for position, annotation in entries(document, "annotations", Position(str(path)), LAYOUT):
        image_id = as_id(required(annotation, "image_id", position, LAYOUT), "image_id", position)
        if image_id not in images:
            raise position.refuse(f"image {image_id} is not in 'images'", "list the image or drop the caption")
        bare.pop(image_id, None)
        yield Caption(
            image_id=image_id,
            caption_id=as_id(required(annotation, "id", position, LAYOUT), "id", position),
            split=split,
            text=as_text(required(annotation, "caption", position, LAYOUT), "caption", position),
            file=position.file,
            row=position.row,
            image_file=images[image_id][1],
        )
    for image_id in bare:
        remedy = "drop the image from 'images' or add its captions; test2014 and test2015 have none"
        raise images[image_id][0].refuse(f"image {image_id} has no caption", remedy)


def _images(document: Any, path: Path) -> dict[str, tuple[Position, str | None]]:
    """Image id -> where it is listed, and its file name."""
    images: dict[str, tuple[Position, str | None]] = {}
    for position, image in entries(document, "images", Position(str(path)), LAYOUT):
        image_id = as_id(required(image, "id", position, LAYOUT), "id", position)
        if image_id in images:
            raise position.refuse(f"image {image_id} is listed twice", "keep one of the two entries")
        name = as_text(image["file_name"], "file_name", position) if "file_name" in image else None
        images[image_id] = position, name
    return images


def _split_of(path: Path) -> str:
    match = re.fullmatch(r"captions_(.+)\.json", path.name)
    if match is None:
        raise InputError("the file name does not tell the split", file=path, remedy="name it with --split")
    return match[1]
