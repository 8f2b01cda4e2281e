"""CIDEr-D of candidates with their references, in double precision."""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.pipelines.measures.scores.grams import SMALL, Grams
from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import get_num_threads


@njit(cache=True)
def _norms(first, last, grams, idf, out):
    ptr, gram, count, used = grams
    most = used.shape[1]
    for s in range(first, last):
        for n in range(most):
            start, total = ptr[s] * most + n * (ptr[s + 1] - ptr[s]), 0.0
            for x in range(start, start + used[s, n]):
                total += (count[x] * idf[gram[x]]) ** 2
            out[s, n] = np.sqrt(total)


@njit(cache=True, forceinline=True)
def _put(s, grams, there, counted):
    """How often sentence s has each n-gram; or, when not `counted`, 0 again."""
    ptr, gram, count, used = grams
    for n in range(used.shape[1]):
        start = ptr[s] * used.shape[1] + n * (ptr[s + 1] - ptr[s])
        for x in range(start, start + used[s, n]):
            there[gram[x]] = count[x] if counted else 0


@njit(cache=True, forceinline=True)
def _cosines(c, r, grams, idf, norm, there):
    """Of each order: the sum over n-grams of the clipped weight times the reference's, `there` has its counts."""
    ptr, gram, count, used = grams
    most, cosines = used.shape[1], 0.0
    for n in range(most):
        start, total = ptr[c] * most + n * (ptr[c + 1] - ptr[c]), 0.0
        for x in range(start, start + used[c, n]):
            total += min(count[x], there[gram[x]]) * there[gram[x]] * idf[gram[x]] ** 2
        if norm[c, n] > 0 and norm[r, n] > 0:
            cosines += total / (norm[c, n] * norm[r, n])
    return cosines


@njit(cache=True)
def _score(first, last, owner, ref_ptr, grams, idf, norm, sigma, out):
    """Candidates first..last; those of one image follow each other."""
    ptr, there, c = grams.ptr, np.zeros(idf.shape[0], np.int32), first
    while c < last:
        start, end, until = owner.shape[0] + ref_ptr[owner[c]], owner.shape[0] + ref_ptr[owner[c] + 1], c
        while until < last and owner[until] == owner[c]:
            out[until] = 0.0
            until += 1
        for r in range(start, end):
            _put(r, grams, there, True)
            for k in range(c, until):
                difference = max(ptr[k + 1] - ptr[k] - 1, 0) - max(ptr[r + 1] - ptr[r] - 1, 0)
                out[k] += _cosines(k, r, grams, idf, norm, there) * np.exp(-(difference**2) / (2 * sigma**2))
            _put(r, grams, there, False)
        for k in range(c, until):
            out[k] *= 10.0 / (grams.used.shape[1] * (end - start))
        c = until


@njit(parallel=True, cache=True)
def _score_all(parts, owner, ref_ptr, grams, idf, norm, sigma, out):
    for k in prange(parts):
        _norms(k * norm.shape[0] // parts, (k + 1) * norm.shape[0] // parts, grams, idf, norm)
    for k in prange(parts):
        first, last = k * out.shape[0] // parts, (k + 1) * out.shape[0] // parts
        _score(first, last, owner, ref_ptr, grams, idf, norm, sigma, out)


def cider_scores(grams: Grams, owner: np.ndarray, ref_ptr: np.ndarray, idf: np.ndarray, sigma: float) -> np.ndarray:
    """CIDEr-D, 0..10, float64 [candidates]; `idf` float64, of each n-gram by its number.

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
