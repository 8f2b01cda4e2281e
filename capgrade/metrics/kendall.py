"""Kendall's tau between similarity and relevance: over the whole gallery, exact, O(n log n), ties included; and over
what is retrieved, the coherent score CS@K."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.kernels import njit
from capgrade.metrics.base import Matrix, QueryBlock, check_choice, check_k, of_matrix, share
from capgrade.metrics.ranking import Array, Ranking

VARIANTS = ("a", "b")


@njit(cache=True, nogil=True)
def _kernel(order, end, rel_order, rel_end):
    """Concordant less discordant pairs, int64 [rows]. By falling similarity, a binary indexed tree (Fenwick 1994)
    counts how many candidates of each relevance came before; those of one similarity all ask before one is added."""
    rows, n = order.shape
    group, same, tree = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n + 1, np.int32)
    out = np.zeros(rows, np.int64)
    for row in range(rows):
        same[:], tree[:] = 0, 0
        start = 0
        for p in range(n):  # a group of equal relevance is called by its first place
            if p > 0 and rel_end[row, p - 1] == p:
                start = p
            group[rel_order[row, p]] = start
        pos = 0
        while pos < n:
            stop = end[row, pos]
            for p in range(pos, stop):  # of the `pos` before: twice those of more relevance, and the same, less all
                node = group[order[row, p]]
                out[row] += same[node] - pos
                while node > 0:
                    out[row] += 2 * tree[node]
                    node &= node - 1
            for p in range(pos, stop):
                node = group[order[row, p]]
                same[node] += 1
                node += 1
                while node <= n:
                    tree[node] += 1
                    node += node & -node
            pos = stop
    return out


def balances(one: Ranking, other: Ranking) -> Array:
    """Of two rankings of the same items concordant less discordant pairs, and the pairs that each does not tie: int64
    [rows, 3]. Ties are counted, never broken, so the tie rule does not enter."""
    balance = _kernel(one.order, one.tied_end, other.order, other.tied_end)
    untied = [(each.order.shape[1] - each.tied_end).sum(axis=1, dtype=np.int64) for each in (one, other)]
    return np.stack([balance, *untied], axis=1)


def tau_of(block: QueryBlock, relevance: str, variant: str) -> Array:
    """`kendall_tau` of a block."""
    counts = block.once(f"tau {relevance}", lambda: balances(block.ranking, block.ideal(relevance)))
    pairs = np.full(len(counts), block.width * (block.width - 1) / 2)
    return share(counts[:, 0], pairs if variant == "a" else np.sqrt(counts[:, 1]) * np.sqrt(counts[:, 2]))


def kendall_tau(scores: Matrix, relevance: Matrix, *, variant: str = "a") -> Any:
    """Kendall's tau of scores and relevance over all candidates; in [-1, 1].

    `a`: (C - D) / (n(n - 1)/2), ties in the denominator only (Liu et al. 2023 "BCLS", sec. III: what the formula
    says). `b`: (C - D) / sqrt((n0 - n1)(n0 - n2)), n1, n2 the pairs tied in either, as `scipy.stats.kendalltau`;
    0 where all scores or all labels are equal (scipy: NaN), which is what chance scores. Counts are 64-bit integers,
    so the value is exact.

    >>> kendall_tau(np.array([[0.9, 0.2, 0.5]]), np.array([[3.0, 1.0, 2.0]]))
    array([1.])
    """
    return of_matrix(scores, tau_of, relevance=relevance, variant=check_choice("variant", variant, VARIANTS))


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
def _head_kernel(order, end, values, k, tau_b):
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


def cs_of(block: QueryBlock, relevance: str, k: int, variant: str = "b") -> Array:
    """`coherent_score` of a block."""
    ranking = block.ranking
    return _head_kernel(ranking.order, ranking.tied_end, block.relevance(relevance), k, variant == "b")


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
