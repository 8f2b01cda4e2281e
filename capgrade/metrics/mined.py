"""How good are mined positives? Precision against human positives as the threshold falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from capgrade.metrics.base import Queries, QueryBlock, score_queries
from capgrade.metrics.pmrp import hamming
from capgrade.metrics.positives import Positives
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError

POINTS = 50  # of a curve


def mined_precision(scores: Array, lists: Positives, owner: Array) -> list[dict[str, Any]]:
    """The curve of DAA's appendix B: mine the pairs whose caption-based score reaches t, count
    human agreement.

    scores (n_images, n_captions), such as CIDEr-D; the images' lists of CxC or ECCV Caption;
    `owner` the image of each caption. Thresholds are quantiles of the positives' own scores, so the
    overlap grows evenly to all of them, from strict to loose. Original pairs are neither mined nor
    counted: the appendix asks about the added ones. A row has `threshold`, the pairs that reach it
    (`mined`), those of them humans list (`overlap`), `precision` and `recall`. InputError for
    scores that are not finite, and where the lists have original pairs alone.
    """
    queries = Queries(scores, np.arange(len(scores)), owner, positives={"": lists})
    human = np.asarray(scores[_human_pairs(lists, owner)])
    if not np.isfinite(human).all():
        raise InputError(
            "the scores of human positives hold NaN or infinity", remedy="give finite scores"
        )
    thresholds = np.unique(np.quantile(human, np.linspace(0, 1, POINTS), method="nearest"))
    return _curve(queries, human, thresholds, lambda block: block.finite_similarity("scores"))


def mined_precision_classes(codes: Array, lists: Positives, owner: Array) -> list[dict[str, Any]]:
    """The class-based curve beside `mined_precision`: the pairs within Hamming distance 0, 1, 2,
    ... of the images' `codes`, 0/1. Images without annotation are dropped, as PMRP drops them.
    Thresholds are the distances."""
    rows, columns = _human_pairs(lists, owner)
    annotated = np.asarray(codes.any(axis=1))
    both = annotated[rows] & annotated[owner[columns]]
    if not both.any():
        raise InputError(
            "no human positives of annotated images", remedy="give the instances of these images"
        )
    human = -(codes[rows] != codes[owner[columns]]).sum(axis=1)[both]

    def nearness(block: QueryBlock) -> Array:
        queries = slice(block.start, block.stop)
        near = -hamming(codes[queries], codes[owner]).astype(np.float32)
        return np.where(np.outer(annotated[queries], annotated[owner]), near, -np.inf)

    # The matrix only gives the shape: nearness is computed block by block.
    nothing = np.broadcast_to(np.float32(0), (len(codes), len(owner)))
    curve = _curve(
        Queries(nothing, np.arange(len(codes)), owner), human, np.arange(human.min(), 1), nearness
    )
    return [{**row, "threshold": -row["threshold"]} for row in curve]


def _human_pairs(lists: Positives, owner: Array) -> tuple[Array, Array]:
    """Rows and columns of the lists' pairs, without original pairs. InputError for none."""
    kept = lists.queries != owner[lists.indices]
    if not kept.any():
        raise InputError(
            "no human positives to compare with", remedy="give the lists of CxC or ECCV Caption"
        )
    return lists.queries[kept], lists.indices[kept]


def _curve(
    queries: Queries, human: Array, thresholds: Array, values_of: Callable[[QueryBlock], Array]
) -> list[dict[str, Any]]:
    """A row for each threshold, from the last to the first, of the values of all pairs but own
    ones."""

    def count(block: QueryBlock) -> Array:
        values, (images, owner) = values_of(block), block.groups(True)
        kept = values[(values >= thresholds[0]) & (images[:, None] != owner)]
        return np.bincount(
            len(thresholds) - np.searchsorted(thresholds, kept, "right"), minlength=len(thresholds)
        )[None]

    descending = thresholds[::-1]
    mined = score_queries(queries, count).sum(axis=0).cumsum()
    overlap = (human >= descending[:, None]).sum(axis=1)
    columns = descending, mined, overlap, overlap / np.maximum(mined, 1), overlap / len(human)
    names = "threshold", "mined", "overlap", "precision", "recall"
    return [
        dict(zip(names, row, strict=True))
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
