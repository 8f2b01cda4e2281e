"""Kendall's tau between similarity and relevance: over the whole gallery, exact, O(n log n), ties included; and over
what is retrieved, the coherent score CS@K."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.bits import ones
from capgrade.kernels import njit
from capgrade.metrics.base import Matrix, QueryBlock, check_choice, check_k, of_matrix, share
from capgrade.metrics.ranking import Array, Ranking

VARIANTS = ("a", "b")

_ONE = np.uint64(1)
# _BELOW[d] adds one to every counter under digit d: a fixed 64 lanes, so that the compiler makes vectors of it
_BELOW = np.tril(np.ones((64, 64), np.int16), -1)


@njit(cache=True, nogil=True)
def _inversions(ranks, below, high, middle, bits):
    """Pairs i < j with ranks[i] > ranks[j], for a permutation: digits of 6 bits, the last one a bit set.

    middle[h, d] counts what came before in block h (4,096 ranks) with a digit above d; high[h] what came before in
    blocks above h. So a rank costs two additions, a popcount and one vector addition: half the time of a merge sort.
    """
    high[:], middle[:], bits[:] = 0, 0, 0
    count = np.int64(0)
    for rank in ranks:
        h, word, bit = rank >> 12, rank >> 6, np.uint64(rank & 63)
        digit = word & 63
        count += high[h] + middle[h, digit] + np.int64(ones((bits[word] >> bit) >> _ONE))
        for d in range(64):
            middle[h, d] += below[digit, d]
        for g in range(high.size):  # every block, so that no branch depends on the rank
            high[g] += g < h
        bits[word] |= _ONE << bit
    return count


@njit(cache=True, nogil=True)
def _pairs(end):
    """Pairs inside the groups of one ranking."""
    pos, pairs = 0, np.int64(0)
    while pos < end.size:
        size = np.int64(end[pos] - pos)
        pairs += size * (size - 1) // 2
        pos = end[pos]
    return pairs


@njit(cache=True, nogil=True)
def _kernel(order, end, rel_order, rel_end, below):
    """int64 [rows, 3], as `balances`."""
    rows, n = order.shape
    group, fill, sequence = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    high, middle = np.zeros((n >> 12) + 1, np.int64), np.zeros(((n >> 12) + 1, 64), np.int16)
    bits = np.zeros((n >> 6) + 1, np.uint64)
    out = np.empty((rows, 3), np.int64)
    for row in range(rows):
        start = 0
        for p in range(n):
            if p > 0 and end[row, p - 1] == p:
                start = p
            group[order[row, p]] = start
            fill[p] = p
        start = 0
        for p in range(n):  # sequence: sorted by similarity group, inside it by relevance group
            if p > 0 and rel_end[row, p - 1] == p:
                start = p
            place = group[rel_order[row, p]]
            sequence[fill[place]] = start
            fill[place] += 1
        both, run, stop = 0, 0, end[row, 0]
        for p in range(1, n):
            run = run + 1 if p < stop and sequence[p] == sequence[p - 1] else 0
            both += run
            if p >= stop:
                stop = end[row, p]
        for p in range(n):
            fill[p] = p
        for p in range(n):  # equal relevance: places in order of similarity, so that it is no inversion
            place = sequence[p]
            sequence[p] = fill[place]
            fill[place] += 1
        pairs = np.int64(n) * (n - 1) // 2
        tied, rel_tied = _pairs(end[row]), _pairs(rel_end[row])
        out[row, 0] = pairs - tied - rel_tied + both - 2 * _inversions(sequence, below, high, middle, bits)
        out[row, 1], out[row, 2] = pairs - tied, pairs - rel_tied
    return out


def balances(one: Ranking, other: Ranking) -> Array:
    """Of two rankings of the same items concordant less discordant pairs, and the pairs that each does not tie: int64
    [rows, 3]. Ties are counted, never broken, so the tie rule does not enter."""
    return _kernel(one.order, one.tied_end, other.order, other.tied_end, _BELOW)


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
