"""Kendall's tau between similarity and relevance: over the whole gallery, exact, O(n log n), ties
included; and over what is retrieved, the coherent score CS@K."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.kernels import njit
from capgrade.metrics.base import Matrix, QueryBlock, check_k, score_matrix, share
from capgrade.metrics.ranking import Ranking
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import check_choice

VARIANTS = ("a", "b")


@njit(cache=True, nogil=True)
def _count_pairs(order, end, rel_order, rel_end, k):
    """float64 [rows, 3], as `count_pairs` returns them. Candidates come by falling similarity. A
    binary indexed tree (Fenwick 1994) counts those of each relevance that came before. All of one
    similarity are counted before any of them is added."""
    rows, n = order.shape
    group, same, tree = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n + 1, np.int32)
    out = np.zeros((rows, 3))
    for row in range(rows):
        same[:], tree[:] = 0, 0
        start = 0
        for p in range(n):  # A group of equal relevance is known by its first place.
            if p > 0 and rel_end[row, p - 1] == p:
                start = p
            group[rel_order[row, p]] = start
        pos = 0
        while pos < k:
            stop = end[row, pos]
            size, places = stop - pos, min(stop, k) - pos
            agree, apart, inside = np.int64(0), np.int64(0), np.int64(0)
            # Of the `pos` candidates before, the sum counts twice those of more relevance, adds
            # those of the same, and takes all away: agreeing less disagreeing pairs.
            for p in range(pos, stop):
                node = group[order[row, p]]
                apart += pos - same[node]
                while node > 0:
                    agree += 2 * tree[node]
                    node &= node - 1
            agree -= apart
            for p in range(pos, stop):
                node = group[order[row, p]]
                inside += p - same[node]
                same[node] += 1
                node += 1
                while node <= n:
                    tree[node] += 1
                    node += node & -node
            chance = places / size
            out[row, 0] += chance * agree
            out[row, 1] += pos * places
            out[row, 2] += chance * apart
            if places > 1:
                out[row, 2] += chance * (places - 1) / (size - 1) * (inside - apart)
            pos = stop
    return out


def count_pairs(first: Ranking, second: Ranking, k: int | None = None) -> Array:
    """float64 [rows, 3] of two rankings of the same items: concordant less discordant pairs, pairs
    that `first` does not tie, and pairs that `second` does not tie.

    With `k` only pairs among the first k of `first` count, each by the probability that a random
    order of ties brings both there. Ties are counted, never broken, so no tie rule applies."""
    width = first.order.shape[1]
    return _count_pairs(
        first.order,
        first.tied_end,
        second.order,
        second.tied_end,
        width if k is None else min(k, width),
    )


def tau_of(block: QueryBlock, relevance: str, variant: str) -> Array:
    """`kendall_tau` of a block."""
    counts = block.compute_once(
        f"tau {relevance}", count_pairs, block.ranking, block.ideal(relevance)
    )
    pairs = np.full(len(counts), block.width * (block.width - 1) / 2)
    return share(
        counts[:, 0], pairs if variant == "a" else np.sqrt(counts[:, 1]) * np.sqrt(counts[:, 2])
    )


def kendall_tau(scores: Matrix, relevance: Matrix, *, variant: str = "a") -> Any:
    """Kendall's tau of scores and relevance over all candidates; in [-1, 1].

    `a`: (C - D) / (n(n - 1)/2), ties in the denominator only (Liu et al. 2023 "BCLS", sec. III:
    what the formula says). `b`: (C - D) / sqrt((n0 - n1)(n0 - n2)), n1, n2 the pairs tied in
    either, as `scipy.stats.kendalltau`; 0 where all scores or all labels are equal (scipy: NaN),
    which is what chance scores. Counts are whole numbers, so the value is exact.

    >>> kendall_tau(np.array([[0.9, 0.2, 0.5]]), np.array([[3.0, 1.0, 2.0]]))
    array([1.])
    """
    return score_matrix(
        scores, tau_of, relevance=relevance, variant=check_choice("variant", variant, VARIANTS)
    )


def cs_of(block: QueryBlock, relevance: str, k: int, variant: str = "b") -> Array:
    """`coherent_score` of a block."""
    counts, depth = count_pairs(block.ranking, block.ideal(relevance), k), min(k, block.width)
    pairs = np.full(len(counts), depth * (depth - 1) / 2)
    return share(counts[:, 0], pairs if variant == "a" else np.sqrt(counts[:, 1] * counts[:, 2]))


def coherent_score(scores: Matrix, relevance: Matrix, k: int = 5, *, variant: str = "b") -> Any:
    """CS@K: Kendall's tau of scores and relevance over the first k retrieved; in [-1, 1]. k >= 2.

    Zhou et al. 2020 "Ladder Loss": tau of the K first; their ladderloss.py calls
    scipy.stats.kendalltau, tau-b, so `b` is the default here and `a` the variant with K(K-1)/2
    below. Where ties straddle the K-th place, pairs count with the probability that a random order
    brings both into the first K: exact for `a`, for `b` the ratio of the expected numerator and
    denominator. No untied pair: 0 (scipy: NaN). It says nothing of whether the right items were
    retrieved: read it beside NCS.

    >>> coherent_score(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 9.0, 2.0]]), k=2)
    array([-1.])
    """
    check_choice("variant", variant, VARIANTS)
    return score_matrix(scores, cs_of, relevance=relevance, k=check_k(k, least=2), variant=variant)
