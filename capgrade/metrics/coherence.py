"""Coherent score CS@K: is what was retrieved in the order of its relevance?"""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import Block, Matrix, check_choice, check_k, of_matrix
from capgrade.metrics.kendall import VARIANTS
from capgrade.metrics.ranking import Array
from capgrade.schemas.compiled import njit


@njit(cache=True, nogil=True)
def _untied(values):
    """Pairs of different value."""
    ordered = np.sort(values)
    run, tied = 0, 0
    for p in range(1, ordered.size):
        run = run + 1 if ordered[p] == ordered[p - 1] else 0
        tied += run
    return ordered.size * (ordered.size - 1) // 2 - tied


@njit(cache=True, nogil=True)
def _kernel(order, end, values, k, tau_b):
    """Pairs weighted by the probability that both candidates are among the first k."""
    rows, n = order.shape
    k = min(k, n)
    out = np.zeros(rows)
    for row in range(rows):
        pos, agree, ordered, labelled = 0, 0.0, 0.0, 0.0
        while pos < k:
            stop = end[row, pos]
            size, places = stop - pos, min(stop, k) - pos
            chance = places / size
            for p in range(pos, stop):
                for q in range(pos):
                    gap = values[row, order[row, q]] - values[row, order[row, p]]
                    agree += chance * np.sign(gap)
                    labelled += chance * (gap != 0)
            ordered += pos * places
            if places > 1:
                both = places * (places - 1.0) / (size * (size - 1.0))
                labelled += both * _untied(values[row][order[row, pos:stop]])
            pos = stop
        weight = np.sqrt(ordered * labelled) if tau_b else k * (k - 1) / 2.0
        if weight > 0:
            out[row] = agree / weight
    return out


def cs_of(block: Block, relevance: str, k: int, variant: str = "b") -> Array:
    """`coherent_score` of a block."""
    ranking = block.ranking(k)
    return _kernel(ranking.order, ranking.tied_end, block.graded(relevance, 1).values, k, variant == "b")


def coherent_score(scores: Matrix, relevance: Matrix, k: int = 5, *, variant: str = "b") -> Any:
    """CS@K: Kendall's tau of scores and relevance over the first k retrieved; in [-1, 1]. k >= 2.

    Zhou et al. 2020 "Ladder Loss": tau of the K first; their ladderloss.py calls scipy.stats.kendalltau, tau-b,
    so `b` is the default here and `a` the variant with K(K-1)/2 below. Where ties straddle the K-th place, pairs
    count with the probability that a random order brings both into the first K: exact for `a`, for `b` the ratio
    of the expected numerator and denominator. No untied pair: 0 (scipy: NaN). It says nothing of whether the right
    items were retrieved: read it beside NCS.

    >>> coherent_score(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 9.0, 2.0]]), k=2)
    array([-1.])
    """
    check_choice("variant", variant, VARIANTS)
    return of_matrix(scores, cs_of, relevance=relevance, k=check_k(k, least=2), variant=variant)
