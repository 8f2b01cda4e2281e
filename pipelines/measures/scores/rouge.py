"""ROUGE-L of candidates with their references, in double precision."""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.pipelines.measures.scores.words import Words
from capgrade.schemas.compiled import njit


@njit(cache=True)
def _common(a, b, row):
    """Length of the longest common subsequence; `row` has room for b and one more."""
    row[: b.shape[0] + 1] = 0
    for i in range(a.shape[0]):
        diagonal = 0
        for j in range(b.shape[0]):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if a[i] == b[j] else max(above, row[j])
            diagonal = above
    return row[b.shape[0]]


@njit(parallel=True, cache=True)
def _score(owner, ref_ptr, first, ptr, word, longest, beta, out):
    for c in prange(owner.shape[0]):
        row = np.empty(longest + 1, np.int32)
        own = word[ptr[c] : ptr[c + 1]]
        precision, recall = 0.0, 0.0
        for r in range(first + ref_ptr[owner[c]], first + ref_ptr[owner[c] + 1]):
            other = word[ptr[r] : ptr[r + 1]]
            common = _common(own, other, row)
            precision = max(precision, common / own.shape[0])
            recall = max(recall, common / other.shape[0])
        out[c] = 0.0
        if precision > 0 and recall > 0:
            out[c] = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def rouge_scores(words: Words, owner: np.ndarray, ref_ptr: np.ndarray, beta: float = 1.2) -> np.ndarray:
    """ROUGE-L, 0..1, float64 [candidates]: F of the largest precision and the largest recall over the references, each
    on its own, as pycocoevalcap `rouge/rouge.py` takes them. No sentence is without words (an empty one has one, "").

    Candidates are the first sentences, `owner` int64 has the image of each; references follow, split by `ref_ptr`.
    """
    out = np.empty(len(owner))
    longest = int(words.sizes.max(initial=0))
    _score(owner, ref_ptr, len(owner), words.ptr, words.word, longest, beta, out)
    return out
