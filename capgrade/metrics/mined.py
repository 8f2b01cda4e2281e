"""How good are mined positives? Precision against human positives as the threshold falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.metrics.base import Block, Positives, Queries, per_query
from capgrade.metrics.pmrp import hamming
from capgrade.metrics.ranking import Array
from capgrade.schemas.compiled import njit
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


def mined_precision(
    scores: Array,
    positives: Positives,
    *,
    points: int = 50,
    query_group: Array | None = None,
    candidate_group: Array | None = None,
) -> MinedCurve:
    """The curve of DAA's appendix B: mine the pairs whose caption-based score reaches t, count human agreement.

    scores (n_queries, n_candidates), such as CIDEr-D; positives of CxC or ECCV Caption; thresholds are `points`
    quantiles of the positives' own scores, so the overlap grows evenly to all of them. With groups given, original
    pairs are neither mined nor counted: the appendix asks about the added ones.
    """
    remove = query_group is not None
    queries = Queries(scores, query_group, candidate_group, positives={"": positives})
    rows = np.repeat(np.arange(len(scores)), np.diff(positives.indptr))
    columns = positives.indices
    if query_group is not None and candidate_group is not None:
        kept = query_group[rows] != candidate_group[columns]
        rows, columns = rows[kept], columns[kept]
    if not len(rows):
        raise InputError("no human positives to compare with", remedy="give the lists of CxC or ECCV Caption")
    human = np.asarray(scores[rows, columns])
    if not np.isfinite(human).all():
        raise InputError("the scores of human positives hold NaN or infinity", remedy="give finite scores")
    levels = np.quantile(human, np.linspace(0, 1, points), method="nearest")
    thresholds = np.unique(levels)[::-1].copy()

    def count(block: Block) -> Array:
        return _counts(block.finite("scores"), thresholds, *block.groups(remove))

    mined = per_query(queries, count).sum(axis=0).cumsum()
    overlap = (human[None] >= thresholds[:, None]).sum(axis=1)
    return MinedCurve(thresholds, mined, overlap, len(human))


def mined_precision_classes(
    query_codes: Array,
    candidate_codes: Array,
    positives: Positives,
    *,
    query_group: Array | None = None,
    candidate_group: Array | None = None,
) -> MinedCurve:
    """The class-based curve beside `mined_precision`: the pairs within Hamming distance 0, 1, 2, ...

    codes 0/1, one row per query or candidate. Images without annotation are dropped, as PMRP drops them. Thresholds
    are the distances.
    """
    mined, overlap = np.zeros((2, query_codes.shape[1] + 1), np.int64)
    for start in range(0, len(query_codes), _ROWS):
        stop = min(start + _ROWS, len(query_codes))
        distance = hamming(query_codes[start:stop], candidate_codes)
        used = np.outer(query_codes[start:stop].any(axis=1), candidate_codes.any(axis=1))
        if query_group is not None and candidate_group is not None:
            used &= query_group[start:stop, None] != candidate_group
        chosen = positives.rows(start, stop)
        human = np.zeros(distance.shape, bool)
        human[np.repeat(np.arange(stop - start), np.diff(chosen.indptr)), chosen.indices] = True
        mined += np.bincount(distance[used], minlength=len(mined))
        overlap += np.bincount(distance[used & human], minlength=len(mined))
    if not overlap.any():
        raise InputError("no human positives to compare with", remedy="give the lists of CxC or ECCV Caption")
    reach = int(np.flatnonzero(overlap)[-1]) + 1
    return MinedCurve(np.arange(reach), mined.cumsum()[:reach], overlap.cumsum()[:reach], int(overlap.sum()))
