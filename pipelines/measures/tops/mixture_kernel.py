"""The kernel of a mixture's exact tops: which captions have a threshold that reaches what is needed."""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.schemas.compiled import njit


@njit(parallel=True, cache=True)
def reaching(weights, last, scored, values, least, hits):
    """Fill hits bool [images, n]: whether the weighted sum reaches least float32 [images]. Of part p, weights[p]
    float32, the values are values[scored[p]] float32 [images, n], where scored[p] is -1 last[p] float32 [images]; each
    product and each sum is rounded, in the parts' order."""
    for b in prange(hits.shape[0]):
        one = hits[b]
        high = np.zeros(one.shape[0], np.float32)
        for p in range(weights.shape[0]):
            w = weights[p]
            if scored[p] < 0:
                x = w * last[p, b]
                for c in range(high.shape[0]):
                    high[c] += x
            else:
                some = values[scored[p], b]
                for c in range(high.shape[0]):
                    high[c] += w * some[c]
        for c in range(high.shape[0]):
            one[c] = high[c] >= least[b]
