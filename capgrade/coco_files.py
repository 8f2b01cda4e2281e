"""COCO's files of captions: annotations with references, results with one candidate for each
image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import CORRECT, read_json, read_lines
from capgrade.schemas.say import warn

_REFERENCES = (
    'give COCO\'s {"annotations": [{"image_id": .., "caption": ..}, ...]}, or dicts to'
    " `capgrade.score` in Python"
)
CANDIDATES = 'give COCO\'s [{"image_id": .., "caption": ..}, ...]'
# Captions that VizWiz marks.
REJECTED = "rejected captions (is_rejected)"
PRECANNED = "precanned captions (is_precanned)"
_TABLE = (
    "; a table of these columns becomes it by pandas.read_csv(TABLE).to_json(FILE,"
    " orient='records')"
)


def read_references(path: Path) -> dict[Any, list[str]]:
    """Image id -> captions of a file such as captions_val2014.json. Captions that VizWiz marks as
    rejected or precanned are left out, as by its own evaluation, and counted in a warning: an image
    may have none left. InputError names an entry that is none."""
    content = read_json(path, CORRECT if _is_json(path) else _REFERENCES)
    rows = content.get("annotations") if isinstance(content, dict) else None
    references: dict[Any, list[str]] = {}
    left_out = Counter[str]()
    captions = list(_captions(rows, path, "annotations", _REFERENCES))
    for row, (image, caption, _) in zip(rows or (), captions, strict=True):
        references.setdefault(image, [])
        if row.get("is_rejected") or row.get("is_precanned"):
            left_out[REJECTED if row.get("is_rejected") else PRECANNED] += 1
        else:
            references[image].append(caption)
    if left_out:
        warn(
            f"{path}: left out: "
            + ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        )
    return references


def read_candidates(path: Path, references: dict[Any, list[str]]) -> dict[Any, list[str]]:
    """Image id -> [caption] of a results file, a list of {"image_id": .., "caption": ..}.
    InputError naming the entry that is none, whose image has no references, or that is a second one
    of its image."""
    candidates: dict[Any, list[str]] = {}
    first = _first_row(path)
    if (
        first.startswith("{")
        and first.endswith("}")
        and '"caption"' in first
        and '"annotations"' not in first
    ):
        remedy = f"make it one list: jq -s . {path.name} > results.json"
        raise InputError("JSON Lines, an object a row", file=path, remedy=remedy)
    content = read_json(path, CORRECT if _is_json(path) else CANDIDATES + _TABLE)
    for image, caption, where in _captions(content, path, "", CANDIDATES):
        if image in candidates:
            raise InputError(
                f"image {image!r} has a second caption",
                file=path,
                row=where,
                remedy="give one each",
            )
        if image not in references:
            remedy = "give results of the references' images (an id '1' is not the number 1)"
            raise InputError(
                f"image {image!r} has no references", file=path, row=where, remedy=remedy
            )
        candidates[image] = [caption]
    if without_references := [image for image in candidates if not references[image]]:
        warn(
            f"{path}: left out: {len(without_references):,} captions of images whose references"
            " are all left out"
        )
    return {image: captions for image, captions in candidates.items() if references[image]}


def _first_row(path: Path) -> str:
    return next(read_lines(path), (1, ""))[1].strip()


def _is_json(path: Path) -> bool:
    """Whether a file begins as JSON: what is wrong in it is then no matter of another layout, as in
    one cut short."""
    return _first_row(path).startswith(("[", "{"))


def _captions(rows: Any, path: Path, key: str, remedy: str) -> Iterator[tuple[Any, str, str]]:
    """Image id, caption and place of each entry of a file's list, which stands under `key`, if
    any."""
    if not isinstance(rows, list) or not rows:
        raise InputError(f"no list of {key or 'results'}", file=path, remedy=remedy)
    for k, row in enumerate(rows):
        image, caption = (
            (row.get("image_id"), row.get("caption")) if isinstance(row, dict) else (None, None)
        )
        if isinstance(image, float) and image.is_integer():
            image = int(image)  # pandas makes 1.0 of the id 1 where another one is absent
        has_id = isinstance(image, int | str) and not isinstance(image, bool)
        if not has_id or not isinstance(caption, str):
            lacks = "no text as caption" if has_id else "no number or text as image_id"
            remedy = 'give {"image_id": number or text, "caption": text}'
            raise InputError(lacks, file=path, row=f"{key}[{k}]", remedy=remedy)
        yield image, caption, f"{key}[{k}]"
