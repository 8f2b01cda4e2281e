"""The lists of positives that the package `eccv_caption` carries, for MS-COCO's 5K test split."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from capgrade.schemas.errors import InputError


def lists_folder() -> Path:
    """Where the package keeps its lists. InputError when it is not installed."""
    spec = find_spec("eccv_caption")
    if spec is None or spec.origin is None:
        raise InputError("the ECCV Caption lists are not installed", remedy="pip install eccv-caption")
    return Path(spec.origin).parent / "data"


def read_lists(name: str) -> dict[str, list[int]]:
    """Query -> items, COCO's image ids and annotation ids, of a file such as eccv_image_to_caption.json."""
    return dict(json.loads((lists_folder() / name).read_text(encoding="utf-8")))
