"""Karpathy's splits: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capgrade.pipelines.sources.fields import (
    Position,
    as_id,
    as_text,
    entries,
    keep_splits,
    read_json,
    required,
    source_path,
)
from capgrade.schemas.captions import Caption
from capgrade.schemas.params import CaptionsParams

LAYOUT = "give one of Karpathy's files: images[] with filename, split and sentences[] of raw and sentid"


def read_karpathy(params: CaptionsParams) -> Iterator[Caption]:
    """Captions image by image, in file order: the text is `raw`, the caption id `sentid` (COCO's own there).

    The image id is `cocoid` where images have one, else the file name. Splits keep their names, `restval`
    included; `params.split` keeps one, or several as in "train+restval".
    Raises InputError for a malformed file, an image listed twice or without sentences, a `cocoid` that only some images
    have, and an unknown split.
    """
    path = source_path(params)
    return keep_splits(_captions(path), params.split, path)


def _captions(path: Path) -> Iterator[Caption]:
    listed: set[str] = set()
    numbered: bool | None = None  # whether images have a cocoid
    for position, image in entries(read_json(path), "images", Position(str(path)), LAYOUT):
        name = as_id(required(image, "filename", position, LAYOUT), "filename", position)
        if numbered is not None and numbered != ("cocoid" in image):
            problem = "no 'cocoid', which images" if numbered else "a 'cocoid', which no images"
            remedy = "give every image its cocoid, or none: then file names are the image ids"
            raise position.refuse(f"{problem} before this one have", remedy)
        numbered = "cocoid" in image
        image_id = as_id(image["cocoid"], "cocoid", position) if numbered else name
        if image_id in listed:
            raise position.refuse(f"image {image_id} is listed twice", "keep one of the two entries")
        listed.add(image_id)
        split = as_id(required(image, "split", position, LAYOUT), "split", position)
        for inner, sentence in _sentences(image, image_id, position):
            yield Caption(
                image_id=image_id,
                caption_id=as_id(required(sentence, "sentid", inner, LAYOUT), "sentid", inner),
                split=split,
                text=as_text(required(sentence, "raw", inner, LAYOUT), "raw", inner),
                file=inner.file,
                row=inner.row,
                image_file=name,
            )


def _sentences(image: dict[str, Any], image_id: str, position: Position) -> list[tuple[Position, dict[str, Any]]]:
    sentences = list(entries(image, "sentences", position, LAYOUT))
    if not sentences:
        raise position.refuse(f"image {image_id} has no sentences", "drop the image or add its captions")
    return sentences
