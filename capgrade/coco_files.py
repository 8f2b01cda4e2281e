"""COCO's files of captions: annotations with references, results with one candidate for each image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_json

REFERENCES = 'give COCO\'s {"annotations": [{"image_id": .., "caption": ..}, ...]}'
CANDIDATES = 'give COCO\'s [{"image_id": .., "caption": ..}, ...]'
TABLE = "; a table of these columns becomes it by pandas.read_csv(TABLE).to_json(FILE, orient='records')"


def read_references(path: Path) -> dict[Any, list[str]]:
    """Image id -> captions of a file such as captions_val2014.json. InputError names an entry that is none."""
    content = read_json(path, REFERENCES)
    rows = content.get("annotations") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputError("no list of annotations", file=path, remedy=REFERENCES)
    found: dict[Any, list[str]] = {}
    for k, row in enumerate(rows):
        image, caption = _caption(row, path, f"annotations[{k}]")
        found.setdefault(image, []).append(caption)
    return found


def read_candidates(path: Path) -> dict[Any, list[str]]:
    """Image id -> [caption] of a results file, a list of {"image_id": .., "caption": ..}. InputError naming the entry
    that is none, or that is a second one of its image."""
    rows = read_json(path, CANDIDATES + TABLE)
    if not isinstance(rows, list) or not rows:
        raise InputError("no list of results", file=path, remedy=CANDIDATES)
    found: dict[Any, list[str]] = {}
    for k, row in enumerate(rows):
        image, caption = _caption(row, path, f"[{k}]")
        if image in found:
            raise InputError(f"image {image!r} has a second caption", file=path, row=f"[{k}]", remedy="give one each")
        found[image] = [caption]
    return found


def _caption(row: Any, path: Path, where: str) -> tuple[Any, str]:
    image, caption = (row.get("image_id"), row.get("caption")) if isinstance(row, dict) else (None, None)
    known = isinstance(image, int | str) and not isinstance(image, bool)
    if not known or not isinstance(caption, str):
        remedy = 'give {"image_id": number or text, "caption": text}'
        lacks = "no text as caption" if known else "no number or text as image_id"
        raise InputError(lacks, file=path, row=where, remedy=remedy)
    return image, caption


def references_of(
    candidates: dict[Any, list[str]], references: dict[Any, list[str]], path: Path
) -> dict[Any, list[str]]:
    """The references of the candidates' images. InputError for an image without any; `path` is the candidates'."""
    for k, image in enumerate(candidates):
        if image not in references:
            remedy = "give results of the references' images (an id '1' is not the number 1)"
            raise InputError(f"image {image!r} has no references", file=path, row=f"[{k}]", remedy=remedy)
    return {image: references[image] for image in candidates}
