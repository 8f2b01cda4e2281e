"""The lists of positives of ECCV Caption and CxC for MS-COCO 5K, which the package `eccv_caption`
carries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from capgrade.metrics.positives import Positives
from capgrade.schemas.errors import InputError, check_choice
from capgrade.schemas.extras import require

_COCO_IMAGES, _COCO_IDS = 5_000, 1_000_000  # of the test split; above every image id of COCO
SETS = ("eccv", "cxc", "original")


def lists_folder() -> Path:
    """Where the package keeps its lists. MissingExtraError when it is not installed."""
    require("eccv_caption")
    spec = find_spec("eccv_caption")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "data"


def read_lists(name: str) -> dict[str, list[int]]:
    """Query -> items, COCO's image ids and annotation ids, of a file such as
    eccv_image_to_caption.json."""
    return dict(json.loads((lists_folder() / name).read_text(encoding="utf-8")))


def human_lists(
    name: str, image_ids: Sequence[object], caption_ids: Sequence[object]
) -> tuple[Positives, Positives]:
    """The positives of the package, in the order of these ids: (of images, of captions).

    `eccv`, `cxc` or `original`; ids are COCO image ids and annotation ids. A query that the set
    does not annotate has an empty list, which leaves it out. Every annotated query must be present.
    A positive that is not (two of ECCV Caption's are outside the 5K captions) counts in R and is
    never retrieved, as in the package. InputError where the package is not installed.

    >>> human_lists("eccv", image_ids, caption_ids)  # doctest: +SKIP
    (Positives(...), Positives(...))
    """
    check_choice("set of human positives", name, SETS)
    return (
        _positives_of_lists(read_lists(f"{name}_image_to_caption.json"), image_ids, caption_ids),
        _positives_of_lists(read_lists(f"{name}_caption_to_image.json"), caption_ids, image_ids),
    )


def original_images() -> set[str]:
    """Ids of the images of MS-COCO's 5K test split, from the package. InputError when it is not
    installed."""
    return set(read_lists("original_image_to_caption.json"))


def _positives_of_lists(
    lists: Mapping[str, list[int]], queries: Sequence[object], candidates: Sequence[object]
) -> Positives:
    unknown = sorted(lists.keys() - set(map(str, queries)))
    if unknown:
        raise InputError(
            f"id {unknown[0]} of the human positives is not in the captions table",
            remedy="use the MS-COCO 5K test split with COCO image and annotation ids",
        )
    return Positives.from_ids(lists, queries, candidates)


def are_coco_ids(image_ids: Sequence[str]) -> bool:
    """Are these ids of MS-COCO's 5K test split, or of a part of it? Flickr's are numbers too."""
    try:
        known = original_images()
    except InputError:  # the package that has the list is missing
        return len(image_ids) >= _COCO_IMAGES and all(
            image_id.isdecimal() and int(image_id) < _COCO_IDS for image_id in image_ids
        )
    return known.issuperset(image_ids)
