"""CIDEr-D of candidates with their references, in double precision."""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.pipelines.measures.scores.grams import Grams
from capgrade.schemas.compiled import njit


@njit(cache=True, forceinline=True)
def _norm(s, n, grams, idf):
    ptr, gram, count, used = grams
    start = ptr[s] * used.shape[1] + n * (ptr[s + 1] - ptr[s])
    total = 0.0
    for x in range(start, start + used[s, n]):
        total += (count[x] * idf[gram[x]]) ** 2
    return np.sqrt(total)


@njit(cache=True, forceinline=True)
def _product(c, r, n, grams, idf):
    """Sum over common n-grams of the clipped weight times the reference's."""
    ptr, gram, count, used = grams
    most, total = used.shape[1], 0.0
    at = ptr[r] * most + n * (ptr[r + 1] - ptr[r])
    end = at + used[r, n]
    start = ptr[c] * most + n * (ptr[c + 1] - ptr[c])
    for x in range(start, start + used[c, n]):
        while at < end and gram[at] < gram[x]:
            at += 1
        if at < end and gram[at] == gram[x]:
            total += min(count[x], count[at]) * count[at] * idf[gram[x]] ** 2
    return total


@njit(parallel=True, cache=True)
def _norms(grams, idf, out):
    for s in prange(out.shape[0]):
        for n in range(out.shape[1]):
            out[s, n] = _norm(s, n, grams, idf)


@njit(parallel=True, cache=True)
def _score(owner, ref_ptr, first, grams, idf, norm, sigma, out):
    ptr, most = grams.ptr, grams.used.shape[1]
    for c in prange(owner.shape[0]):
        bigrams, total = max(ptr[c + 1] - ptr[c] - 1, 0), 0.0
        start, end = first + ref_ptr[owner[c]], first + ref_ptr[owner[c] + 1]
        for r in range(start, end):
            difference = bigrams - max(ptr[r + 1] - ptr[r] - 1, 0)
            cosines = 0.0
            for n in range(most):
                if norm[c, n] > 0 and norm[r, n] > 0:
                    cosines += _product(c, r, n, grams, idf) / (norm[c, n] * norm[r, n])
            total += cosines * np.exp(-(difference**2) / (2 * sigma**2))
        out[c] = 10.0 * total / (most * (end - start))


def cider_scores(grams: Grams, owner: np.ndarray, ref_ptr: np.ndarray, idf: np.ndarray, sigma: float) -> np.ndarray:
    """CIDEr-D, 0..10, float64 [candidates]; `idf` float64 [n_grams].

    Candidates are the first sentences, `owner` int64 has the image of each; references follow, split by `ref_ptr`.
    Source: Vedantam et al. 2015, section 7; pycocoevalcap `cider/cider_scorer.py`, where a caption's length is its
    number of bigrams.
    """
    norm, out = np.empty(grams.used.shape), np.empty(len(owner))
    _norms(grams, idf, norm)
    _score(owner, ref_ptr, len(owner), grams, idf, norm, sigma, out)
    return out
