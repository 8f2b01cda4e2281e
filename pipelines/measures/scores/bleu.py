"""BLEU of candidates with their references: sentence by sentence, and of the corpus from summed counts."""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.pipelines.measures.bleu_kernel import SMALL, TINY
from capgrade.pipelines.measures.scores.grams import Grams
from capgrade.schemas.compiled import njit


@njit(cache=True, forceinline=True)
def _clipped(c, refs, n, grams, found):
    """Matches of order n + 1 of candidate c, each n-gram counted at most as often as in one of the references."""
    ptr, gram, count, used = grams
    most = used.shape[1]
    start = ptr[c] * most + n * (ptr[c + 1] - ptr[c])
    k = used[c, n]
    found[:k] = 0
    for r in refs:
        at = ptr[r] * most + n * (ptr[r + 1] - ptr[r])
        end = at + used[r, n]
        for x in range(k):
            while at < end and gram[at] < gram[start + x]:
                at += 1
            if at < end and gram[at] == gram[start + x]:
                found[x] = max(found[x], count[at])
    total = 0
    for x in range(k):
        total += min(found[x], count[start + x])
    return total


@njit(parallel=True, cache=True)
def _statistics(owner, ref_ptr, first, grams, out):
    ptr, most = grams.ptr, grams.used.shape[1]
    for c in prange(owner.shape[0]):
        refs = np.arange(first + ref_ptr[owner[c]], first + ref_ptr[owner[c] + 1])
        size = ptr[c + 1] - ptr[c]
        closest = np.int64(-1)
        for r in refs:
            words = ptr[r + 1] - ptr[r]
            nearer, near = abs(words - size), abs(closest - size)
            if closest < 0 or nearer < near or (nearer == near and words < closest):
                closest = words
        out[c, 0], out[c, 1] = size, closest
        found = np.empty(size, np.int64)
        for n in range(most):
            out[c, 2 + n] = _clipped(c, refs, n, grams, found)
            out[c, 2 + most + n] = max(size - n, 0)


def bleu_statistics(grams: Grams, owner: np.ndarray, ref_ptr: np.ndarray) -> np.ndarray:
    """Counts of each candidate, float64 [candidates, 2 + 2 most]: its words, those of the reference of closest length
    (the shorter of two), matches of each order, n-grams of each order.

    Candidates are the first sentences, `owner` int64 has the image of each; references follow, split by `ref_ptr`.
    """
    out = np.empty((len(owner), 2 + 2 * grams.most))
    _statistics(owner, ref_ptr, len(owner), grams, out)
    return out


def bleu_of(statistics: np.ndarray) -> np.ndarray:
    """BLEU-1..most from counts or sums of counts [..., 2 + 2 most], float64 [..., most].

    `BP (Π_n correct_n / guess_n)^(1/k)`, n = 1..k; source: pycocoevalcap `bleu_scorer.py`, with its 1e-15 and 1e-9.
    """
    most = (statistics.shape[-1] - 2) // 2
    words, closest = statistics[..., 0], statistics[..., 1]
    correct, guess = statistics[..., 2 : 2 + most], statistics[..., 2 + most :]
    precision = np.cumprod((correct + TINY) / (guess + SMALL), axis=-1) ** (1 / np.arange(1, most + 1))
    ratio = (words + TINY) / (closest + SMALL)
    with np.errstate(divide="ignore", over="ignore"):
        penalty = np.where(ratio < 1, np.exp(1 - 1 / ratio), 1.0)
    return precision * penalty[..., None]
