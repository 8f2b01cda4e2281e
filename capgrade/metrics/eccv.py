"""mAP@R over lists of positives, and the lists of ECCV Caption and CxC for MS-COCO 5K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capgrade.metrics.base import Matrix, Positives, QueryBlock, check_choice, of_matrix, share
from capgrade.metrics.ranking import Array, Ties
from capgrade.metrics.recall import longest
from capgrade.schemas.eccv_lists import read_lists
from capgrade.schemas.errors import InputError

SETS = ("eccv", "cxc", "original")


def map_of(block: QueryBlock, lists: str) -> Array:
    """`map_at_r` of a block: the chance of a hit at each place, times the precision expected beside it."""
    own = block.positives(lists)
    hits = block.hits_at(own, longest(own))
    place = np.arange(hits.shape[1])
    start, size = block.ranking.groups(len(place))
    before = np.take_along_axis(np.cumsum(hits, axis=1) - hits, start, axis=1)  # hits in groups above
    beside = (np.rint(hits * size) - 1) / np.maximum(size - 1, 1)  # the chance of another hit at a place of the group
    precision = (before + 1 + (place - start) * beside) / (place + 1)
    return share((hits * precision * (place < own.sizes[:, None])).sum(axis=1), own.sizes, np.nan)


def map_at_r(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """mAP@R = (1/R) sum over r = 1..R of [item r is own] * precision@r, R the number of own candidates; in [0, 1].

    NaN for a query without own candidates; under ties its exact expectation. Musgrave et al. 2020; Chun et al. 2022
    "ECCV Caption", eccv_caption/_metrics.py:compute_eccv_metrics.

    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]))
    array([0.5])
    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), Positives.from_lists([[0, -1, -1, -1]]))  # three are not in the gallery
    array([0.25])
    """
    return of_matrix(scores, map_of, own=own, ties=ties)


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
