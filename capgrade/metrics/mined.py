"""How good are mined positives? Precision against human positives as the threshold falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.kernels import njit
from capgrade.metrics.base import Positives, Queries, QueryBlock, per_query
from capgrade.metrics.pmrp import hamming
from capgrade.metrics.ranking import Array
from capgrade.schemas.errors import InputError

_ROWS = 500  # queries at a time: 50 MB of distances to 25,000 captions


@dataclass(frozen=True)
class MinedCurve:
    """Pairs with a score of at least each threshold, from strict to loose, and those humans agree with."""

    thresholds: Array
    mined: Array  # int64, pairs at or above the threshold
    overlap: Array  # int64, of them human positives
    positives: int  # human positives in all

    @property
    def precision(self) -> Array:
        """overlap / mined; 0 where nothing is mined."""
        return np.asarray(self.overlap / np.maximum(self.mined, 1))

    @property
    def recall(self) -> Array:
        """overlap / all human positives."""
        return np.asarray(self.overlap / self.positives)


@njit(cache=True, nogil=True)
def _counts(values, thresholds, skip, groups):
    """Pairs at or above each threshold, thresholds descending; own pairs left out."""
    rows, n = values.shape
    out = np.zeros((rows, thresholds.size + 1), np.int64)
    for row in range(rows):
        for i in range(n):
            if values[row, i] >= thresholds[-1] and groups[i] != skip[row]:
                low, high = 0, thresholds.size - 1
                while low < high:
                    middle = (low + high) // 2
                    if values[row, i] >= thresholds[middle]:
                        high = middle
                    else:
                        low = middle + 1
                out[row, low] += 1
    return out[:, :-1]


def _human_pairs(positives: Positives, query_group: Array | None, candidate_group: Array | None) -> tuple[Array, Array]:
    """Rows and columns of the lists' pairs, without original pairs where groups are given. InputError for none."""
    rows, columns = positives.queries, positives.indices
    if query_group is not None and candidate_group is not None:
        kept = query_group[rows] != candidate_group[columns]
        rows, columns = rows[kept], columns[kept]
    if not len(rows):
        raise InputError("no human positives to compare with", remedy="give the lists of CxC or ECCV Caption")
    return rows, columns


def mined_precision(
    scores: Array, positives: Positives, *, points: int = 50, query_group: Array | None = None,
    candidate_group: Array | None = None,
) -> MinedCurve:  # fmt: skip
    """The curve of DAA's appendix B: mine the pairs whose caption-based score reaches t, count human agreement.

    scores (n_queries, n_candidates), such as CIDEr-D; positives of CxC or ECCV Caption; thresholds are `points`
    quantiles of the positives' own scores, so the overlap grows evenly to all of them. With groups given, original
    pairs are neither mined nor counted: the appendix asks about the added ones.
    """
    queries = Queries(scores, query_group, candidate_group, positives={"": positives})
    human = np.asarray(scores[_human_pairs(positives, query_group, candidate_group)])
    if not np.isfinite(human).all():
        raise InputError("the scores of human positives hold NaN or infinity", remedy="give finite scores")
    thresholds = np.unique(np.quantile(human, np.linspace(0, 1, points), method="nearest"))[::-1].copy()

    def count(block: QueryBlock) -> Array:
        return _counts(block.finite("scores"), thresholds, *block.groups(query_group is not None))

    mined = per_query(queries, count).sum(axis=0).cumsum()
    return MinedCurve(thresholds, mined, (human >= thresholds[:, None]).sum(axis=1), len(human))


def mined_precision_classes(
    query_codes: Array, candidate_codes: Array, positives: Positives, *, query_group: Array | None = None,
    candidate_group: Array | None = None,
) -> MinedCurve:  # fmt: skip
    """The class-based curve beside `mined_precision`: the pairs within Hamming distance 0, 1, 2, ...

    codes 0/1, one row per query or candidate. Images without annotation are dropped, as PMRP drops them. Thresholds
    are the distances.
    """
    rows, columns = _human_pairs(positives, query_group, candidate_group)
    used, usable = np.asarray(query_codes.any(axis=1)), np.asarray(candidate_codes.any(axis=1))
    annotated = used[rows] & usable[columns]
    if not annotated.any():
        raise InputError("no human positives of annotated images", remedy="give the instances of these images")
    human = (query_codes[rows] != candidate_codes[columns]).sum(axis=1)[annotated]
    distances = np.arange(human.max() + 1)
    left_out = np.full(len(query_codes), -1) if query_group is None else query_group
    groups = np.zeros(len(candidate_codes), np.int64) if candidate_group is None else candidate_group
    mined = np.zeros(len(distances), np.int64)
    for start in range(0, len(query_codes), _ROWS):
        some = slice(start, start + _ROWS)
        near = -hamming(query_codes[some], candidate_codes).astype(np.float32)
        near[~np.outer(used[some], usable)] = -np.inf
        mined += _counts(near, -distances.astype(np.float32), left_out[some], groups).sum(axis=0)
    return MinedCurve(distances, mined.cumsum(), (human <= distances[:, None]).sum(axis=1), len(human))
