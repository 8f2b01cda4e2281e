"""Kendall's tau-b and tau-c of weighted pairs of numbers, and the area under the ROC curve, from one count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.schemas.compiled import njit


@njit(cache=True, nogil=True)
def _counts(order, groups, rank, weight, levels):
    """Concordant less discordant, ties in x, ties in y, total, and occupied levels of x and y: all of weights.

    `order` sorts x; `groups` are where each value of x starts in it; `rank` int64 is y's dense rank.
    """
    tree, at_y = np.zeros(levels + 1), np.zeros(levels)
    seen = balance = ties_x = 0.0
    used_x = 0
    for g in range(groups.size - 1):
        group = 0.0
        for k in range(groups[g], groups[g + 1]):  # against the values below, none of its own group
            w, r = weight[order[k]], rank[order[k]]
            group += w
            below, i = 0.0, r
            while i > 0:
                below += tree[i]
                i -= i & -i
            balance += w * (below - (seen - below - at_y[r]))
        for k in range(groups[g], groups[g + 1]):
            w, r = weight[order[k]], rank[order[k]]
            at_y[r] += w
            i = r + 1
            while i <= levels:
                tree[i] += w
                i += i & -i
        seen += group
        ties_x += group * (group - 1) / 2
        used_x += group > 0
    ties_y, used_y = 0.0, 0
    for r in range(levels):
        ties_y += at_y[r] * (at_y[r] - 1) / 2
        used_y += at_y[r] > 0
    return balance, ties_x, ties_y, seen, used_x, used_y


@dataclass(frozen=True)
class Taus:
    """What rank agreement is computed from: `balance` = concordant less discordant pairs of observations."""

    balance: float
    ties_x: float
    ties_y: float
    total: float
    levels: int  # min(distinct x, distinct y)

    @property
    def b(self) -> float:
        """balance / sqrt((n0 - ties_x) (n0 - ties_y)), n0 = n (n - 1) / 2; Kendall 1945, as scipy's variant b."""
        pairs = self.total * (self.total - 1) / 2
        return self.balance / float(np.sqrt((pairs - self.ties_x) * (pairs - self.ties_y)))

    @property
    def c(self) -> float:
        """2 balance m / (n^2 (m - 1)), m the smaller number of distinct values; Stuart 1953, as scipy's variant c."""
        return 2 * self.balance * self.levels / (self.total**2 * (self.levels - 1))


class Ranked:
    """x and y float [n] sorted once, for any weights: how often each observation counts."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self._order = np.argsort(x, kind="stable")
        ordered = x[self._order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self._groups = np.append(starts, len(x))
        levels, self._rank = np.unique(y, return_inverse=True)
        self._levels = len(levels)

    def taus(self, weight: np.ndarray) -> Taus:
        """weight float64 [n], whole numbers of at least 0."""
        found = _counts(self._order, self._groups, self._rank, weight, self._levels)
        balance, ties_x, ties_y, total, used_x, used_y = found
        return Taus(balance, ties_x, ties_y, total, min(used_x, used_y))


def auc(balance: float, positives: float, negatives: float) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs in the right order, ties half; y is binary."""
    return (balance / (positives * negatives) + 1) / 2


def average_precision(value: np.ndarray, accepted: np.ndarray) -> float:
    """Sum over distinct thresholds of (recall gained) x precision, as scikit-learn computes it.

    value float [n], accepted bool [n] with at least one True.
    """
    order = np.argsort(-value, kind="stable")
    hits = np.cumsum(accepted[order])
    ends = np.flatnonzero(np.append(np.diff(value[order]) != 0, True))
    precision, recall = hits[ends] / (ends + 1), hits[ends] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))
