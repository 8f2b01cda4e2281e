"""Normalised cumulative semantic score: relevance gathered in the top K over the most that could be."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from capgrade.metrics.base import Block, Matrix, Positives, check_choice, check_k, of_matrix
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.compiled import njit

FORMS = ("paper", "eq5", "authors")


@njit(cache=True, nogil=True)
def top_sum(order, end, weights, skip, groups, k):
    """Expected sum of the weights of the first k candidates of one ranking, those of group `skip` left out.

    Of a tie group that reaches past k, every candidate enters with the same probability: places / size.
    """
    pos, filled, total = 0, 0, 0.0
    while pos < order.size and filled < k:
        size, group_sum = 0, 0.0
        for p in range(pos, end[pos]):
            if groups[order[p]] != skip:
                size += 1
                group_sum += weights[order[p]]
        if size > 0:
            places = min(size, k - filled)
            total += group_sum * places / size
            filled += places
        pos = end[pos]
    return total


@njit(cache=True, nogil=True)
def ideal_weights(order, end, values, skip, groups, m, power, weights):
    """Fill `weights` with membership of the m most relevant candidates, times value ** power; returns their sum.

    Ties at the m-th place are members with the probability that a random order gives them.
    """
    pos, filled, total = 0, 0, 0.0
    weights[:] = 0.0
    while pos < order.size and filled < m:
        size = 0
        for p in range(pos, end[pos]):
            size += groups[order[p]] != skip
        places = min(size, m - filled)
        for p in range(pos, end[pos]):
            if groups[order[p]] != skip:
                weights[order[p]] = places / size * values[order[p]] ** power
        if size > 0:
            total += places * np.float64(values[order[pos]]) ** power
        filled += places
        pos = end[pos]
    return total


@njit(cache=True, nogil=True)
def _kernel(order, end, ideal, ideal_end, values, skip, groups, k, only_ideal, epsilon):
    rows, n = order.shape
    out, weights = np.zeros(rows), np.empty(n)
    for row in range(rows):
        if only_ideal:
            best = ideal_weights(ideal[row], ideal_end[row], values[row], skip[row], groups, k, 1, weights)
            got = top_sum(order[row], end[row], weights, skip[row], groups, k)
        else:
            best = top_sum(ideal[row], ideal_end[row], values[row], skip[row], groups, k)
            got = top_sum(order[row], end[row], values[row], skip[row], groups, k)
        if best > 0:
            out[row] = got / (best + k * epsilon)
    return out


def ncs_of(block: Block, relevance: str, k: int, form: str, removes: bool) -> Array:
    """`ncs` of a block."""
    skip, groups = block.groups(removes)
    deep = depth_without(block.positives() if removes else None, k)
    graded, ranking = block.gains(relevance, deep), block.ranking(deep)
    epsilon = 1e-10 if form == "authors" else 0.0
    ideal = graded.ranking
    return _kernel(
        ranking.order,
        ranking.end,
        ideal.order,
        ideal.end,
        graded.values,
        skip,
        groups,
        k,
        form == "eq5",
        epsilon,
    )


def depth_without(removed: Positives | None, k: int) -> int:
    """Positions to rank so that k remain once the removed items are gone."""
    return k if removed is None else k + int(removed.sizes.max(initial=0))


def ncs(
    scores: Matrix, relevance: Matrix, k: int = 5, *, form: str = "paper", query_group: Matrix = None,
    candidate_group: Matrix = None, ties: Ties = "expected",
) -> Any:  # fmt: skip
    """NCS@k = relevance of the k retrieved / the k largest relevances; in [0, 1]. Biten et al. 2022.

    relevance >= 0; 0 where it is all zero. `paper`: as sec. 3.3 words it, and as the tables were made. `eq5`: eq. 5 as
    printed: only those retrieved that are among the k most relevant count. `authors`: metric.py:NCS, mean / (mean +
    1e-10). With groups int [Q] and [N], a query's own candidates, those of its group, leave the ranking and the ideal
    (the authors' default).

    >>> ncs(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2)
    array([0.6])
    """
    k, removes = check_k(k), query_group is not None
    check_choice("form", form, FORMS)
    groups, score = (query_group, candidate_group), partial(ncs_of, relevance="", k=k, form=form, removes=removes)
    return of_matrix(scores, score, relevance=relevance, groups=groups, ties=ties)
