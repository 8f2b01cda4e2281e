"""CIDEr-D of candidates with their references, in double precision."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, prange

from capgrade.pipelines.measures.scores.grams import SMALL, Grams
from capgrade.schemas.compiled import njit


@njit(cache=True, forceinline=True)
def _product(c, r, n, grams, idf):
    """Sum over common n-grams of order n + 1 of the clipped weight times the reference's."""
    ptr, gram, count, used = grams
    most, total = used.shape[1], 0.0
    at = ptr[r] * most + n * (ptr[r + 1] - ptr[r])
    end = at + used[r, n]
    start = ptr[c] * most + n * (ptr[c + 1] - ptr[c])
    for x in range(start, start + used[c, n]):
        while at < end and gram[at] < gram[x]:
            at += 1
        if at < end and gram[at] == gram[x]:
            total += min(count[x], count[at]) * count[at] * idf[x] ** 2
    return total


@njit(cache=True)
def _norms(first, last, grams, idf, out):
    ptr, _, count, used = grams
    most = used.shape[1]
    for s in range(first, last):
        for n in range(most):
            start, total = ptr[s] * most + n * (ptr[s + 1] - ptr[s]), 0.0
            for x in range(start, start + used[s, n]):
                total += (count[x] * idf[x]) ** 2
            out[s, n] = np.sqrt(total)


@njit(cache=True)
def _score(first, last, owner, ref_ptr, grams, idf, norm, sigma, out):
    ptr, most, before = grams.ptr, grams.used.shape[1], owner.shape[0]
    for c in range(first, last):
        bigrams, total = max(ptr[c + 1] - ptr[c] - 1, 0), 0.0
        start, end = before + ref_ptr[owner[c]], before + ref_ptr[owner[c] + 1]
        for r in range(start, end):
            difference = bigrams - max(ptr[r + 1] - ptr[r] - 1, 0)
            cosines = 0.0
            for n in range(most):
                if norm[c, n] > 0 and norm[r, n] > 0:
                    cosines += _product(c, r, n, grams, idf) / (norm[c, n] * norm[r, n])
            total += cosines * np.exp(-(difference**2) / (2 * sigma**2))
        out[c] = 10.0 * total / (most * (end - start))


@njit(parallel=True, cache=True)
def _score_all(parts, owner, ref_ptr, grams, idf, norm, sigma, out):
    for k in prange(parts):
        _norms(k * norm.shape[0] // parts, (k + 1) * norm.shape[0] // parts, grams, idf, norm)
    for k in prange(parts):
        first, last = k * out.shape[0] // parts, (k + 1) * out.shape[0] // parts
        _score(first, last, owner, ref_ptr, grams, idf, norm, sigma, out)


def cider_scores(grams: Grams, owner: np.ndarray, ref_ptr: np.ndarray, idf: np.ndarray, sigma: float) -> np.ndarray:
    """CIDEr-D, 0..10, float64 [candidates]; `idf` float64, of each n-gram as `grams.gram` lists them.

    Candidates are the first sentences, `owner` int64 has the image of each; references follow, split by `ref_ptr`.
    Source: Vedantam et al. 2015, section 7; pycocoevalcap `cider/cider_scorer.py`, where a caption's length is its
    number of bigrams.
    """
    norm, out = np.empty(grams.used.shape), np.empty(len(owner))
    if len(grams.gram) < SMALL:
        _norms(0, len(norm), grams, idf, norm)
        _score(0, len(owner), owner, ref_ptr, grams, idf, norm, sigma, out)
    else:
        _score_all(8 * get_num_threads(), owner, ref_ptr, grams, idf, norm, sigma, out)
    return out
