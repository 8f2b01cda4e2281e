"""A matrix of images x captions in both directions: as queries and candidates, in folds, and what
is summed over the directions.

`capgrade.evaluate` and validation while training score by these, so that a number is computed in
one way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capgrade.metrics.base import Queries, check_matrix, lists_of
from capgrade.metrics.catalogue import SUM_OF, Metric, reduce_values, relevant_name, score_all
from capgrade.metrics.formats import DIRECTIONS
from capgrade.metrics.pmrp import check_codes
from capgrade.metrics.positives import BothSides, Positives
from capgrade.metrics.ranking import TieRule
from capgrade.schemas.arrays import Array, as_numpy
from capgrade.schemas.errors import InputError, check_choice

LIST_NAMES = ("eccv", "cxc", "accepted")  # of lists of positives that are given


def directions_of(
    similarity: Array,
    relevance: Mapping[str, Array] | None = None,
    *,
    owner: Any = None,
    positives: Mapping[str, BothSides] | None = None,
    classes: Any = None,
    above: Mapping[str, float] | None = None,
    ties: TieRule = "expected",
) -> dict[str, Queries]:
    """Both directions of images x captions as queries x candidates, views only; arguments as
    `evaluate` has them.

    InputError for what does not fit.
    """
    named = dict(positives or {})
    for name, pair in named.items():
        check_choice("list of positives", name, LIST_NAMES)
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and all(isinstance(side, Positives) for side in pair)
        ):
            raise InputError(
                f"positives of {name!r} are no pair",
                remedy="give (Positives of images, of captions)",
            )
    if owner is not None and as_numpy(owner).ndim == 2:
        own, owner = as_numpy(owner), None
        named["own"] = lists_of(own, similarity.shape), lists_of(own.T, similarity.shape[::-1])
    for name, least in (above or {}).items():
        right = (relevance or {})[name] > least
        check_matrix(f"relevance {name}".rstrip(), right, similarity.shape)
        named[relevant_name(name)] = lists_of(right, right.shape), lists_of(right.T, right.T.shape)
    owner = None if owner is None else _require_owner(owner, similarity.shape)
    if classes is not None and owner is None:
        raise InputError("classes without owner", remedy="give owner, the row of each column")
    codes = None if classes is None else check_codes("image", classes, len(similarity))
    groups = (None, None) if owner is None else (np.arange(len(similarity)), owner)
    sides = None if codes is None else (codes, codes[owner])
    directions = {}
    for k, direction in enumerate(DIRECTIONS):  # columns are the queries of the other direction
        directions[direction] = Queries(
            similarity.T if k else similarity,
            groups[k],
            groups[1 - k],
            {name: matrix.T if k else matrix for name, matrix in (relevance or {}).items()},
            {name: pair[k] for name, pair in named.items()},
            sides and (sides[k], sides[1 - k]),
            ties,
            clip=True,
        )
    return directions


def split_folds(whole: Queries, size: int) -> list[dict[str, Queries]]:
    """Blocks of `size` images with their captions; lists of positives are of the whole gallery and
    stay behind."""
    images, owner = len(whole.similarity), whole.candidate_group
    if owner is None:
        raise InputError(
            "folds need the image of each caption", remedy="give owner, the row of each column"
        )
    if size < 1 or images % size:
        raise InputError(
            f"folds of {size} do not divide {images} images",
            remedy="use a divisor, such as 1000 of 5000",
        )
    folds = []
    for first in range(0, images, size):
        columns = np.flatnonzero((owner >= first) & (owner < first + size))
        contiguous = len(columns) and columns[-1] - columns[0] + 1 == len(columns)
        # A slice, where the columns are contiguous, makes a view instead of a copy.
        chosen = slice(columns[0], columns[-1] + 1) if contiguous else columns
        cut = slice(first, first + size), chosen
        relevance = {name: matrix[cut] for name, matrix in whole.relevance.items()}
        classes = None if whole.codes is None else whole.codes[0][cut[0]]
        options: dict[str, Any] = {
            "owner": owner[columns] - first,
            "classes": classes,
            "ties": whole.ties,
        }
        folds.append(directions_of(whole.similarity[cut], relevance, **options))
    return folds


def means_of(
    directions: Mapping[str, Queries], metrics: Sequence[Metric]
) -> dict[str, dict[str, float]]:
    """Direction -> metric -> the number that is reported."""
    return {
        direction: {
            name: reduce_values(name, values) for name, values in score_all(side, metrics).items()
        }
        for direction, side in directions.items()
    }


def add_up(by_direction: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """rsum and nsum, 0 to 600, where both directions have all three cut-offs; of numbers or of
    draws."""
    out = {}
    for name, keys in SUM_OF.items():
        if len(by_direction) == len(DIRECTIONS) and all(
            key in values for values in by_direction.values() for key in keys
        ):
            out[name] = 100 * sum(values[key] for values in by_direction.values() for key in keys)
    return out


def _require_owner(owner: Any, shape: tuple[int, ...]) -> Array:
    """The row of each column, int [columns]. InputError where they do not fit."""
    rows = as_numpy(owner)
    if rows.dtype.kind not in "iu" or len(shape) != 2 or rows.shape != shape[1:] or not rows.size:
        hint = "; give scores.T, images x captions" if rows.shape == shape[:1] else ""
        problem = (
            f"owner is {rows.dtype} {list(rows.shape)} of captions that name images, scores are"
            f" {list(shape)}"
        )
        raise InputError(problem, remedy=f"give the row of each column{hint}")
    if not 0 <= rows.min() <= rows.max() < shape[0]:
        problem = f"captions name images {rows.min()} to {rows.max()} of {shape[0]}"
        raise InputError(
            problem, remedy="give the row of each column, from 0; scores are images x captions"
        )
    return rows
