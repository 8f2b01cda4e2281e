"""The lists of positives of ECCV Caption and CxC for MS-COCO 5K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capgrade.metrics.base import Positives, check_choice
from capgrade.schemas.eccv_lists import read_lists
from capgrade.schemas.errors import InputError

SETS = ("eccv", "cxc", "original")


def human_lists(name: str, image_ids: Sequence[object], caption_ids: Sequence[object]) -> tuple[Positives, Positives]:
    """The positives that the `eccv_caption` package carries, in the order of these ids: (of images, of captions).

    `eccv`, `cxc` or `original`; ids are COCO image ids and annotation ids. A query that the set does not annotate
    has an empty list, which leaves it out. Every annotated query must be present. A positive that is not (two of
    ECCV Caption's are outside the 5K captions) counts in R and is never retrieved, as in the package.
    InputError where the package is not installed.

    >>> human_lists("eccv", image_ids, caption_ids)  # doctest: +SKIP
    (Positives(...), Positives(...))
    """
    check_choice("set of human positives", name, SETS)
    return (
        _mapped(read_lists(f"{name}_image_to_caption.json"), image_ids, caption_ids),
        _mapped(read_lists(f"{name}_caption_to_image.json"), caption_ids, image_ids),
    )


def original_images() -> set[str]:
    """Ids of the images of MS-COCO's 5K test split, from the package. InputError when it is not installed."""
    return set(read_lists("original_image_to_caption.json"))


def _mapped(lists: Mapping[str, list[int]], queries: Sequence[object], candidates: Sequence[object]) -> Positives:
    unknown = sorted(lists.keys() - set(map(str, queries)))
    if unknown:
        raise InputError(
            f"id {unknown[0]} of the human positives is not in the captions table",
            remedy="use the MS-COCO 5K test split with COCO image and annotation ids",
        )
    return Positives.from_ids(lists, queries, candidates)
