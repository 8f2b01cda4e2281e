"""CIDEr-D of candidates with their references, in double precision."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.cider_pairs import Form, Weighted, inverse_norms, score_pairs
from capgrade.pipelines.measures.scores.grams import Grams


def cider_scores(grams: Grams, owner: np.ndarray, ref_ptr: np.ndarray, idf: np.ndarray, sigma: float) -> np.ndarray:
    """CIDEr-D, 0..10, float64 [candidates]; `idf` float64, of each n-gram by its number.

    Candidates are the first sentences, `owner` int64 has the image of each; references follow, split by `ref_ptr`.
    """
    gain, n = idf**2, len(owner)
    weighted = Weighted(grams.sentences, inverse_norms(grams.sentences, gain))
    refs, form = np.arange(n, len(weighted.inverse)), Form(leave_out=False, clip=True, sigma=sigma)
    return score_pairs(owner, np.arange(n), weighted, weighted, ref_ptr, refs, gain, form)
