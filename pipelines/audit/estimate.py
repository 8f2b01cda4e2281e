"""How many pairs people would accept: expected counts of each image, and intervals of their mean.

The expected number of accepted captions of image i beyond the given ones is sum over j of w_ij p(v_ij): p from the
calibration, w_ij the inverse of a sampled pair's probability of being kept (Horvitz and Thompson 1952), 1 in a dense
matrix. Intervals are percentiles over draws that resample images, which covers the sampling of shards too, and take one
of the calibration's own bootstrap curves each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.agreement.calibration import Curve
from capgrade.pipelines.audit.candidates import Pairs

DRAWS = 1000
CHUNK = 50  # draws at a time: 113,000 images are 45 MB of them


class Counts:
    """Weights of each image's pairs at the knots of the curve. Between two knots the curve is a straight line, so a
    pair counts at both, by its distance: what is added up is w p(v) itself."""

    def __init__(self, curve: Curve, n_images: int) -> None:
        self.curve = curve
        self.weights = np.zeros((n_images, len(curve.value)))

    def add(self, pairs: Pairs) -> None:
        if not len(pairs.image):
            return
        n = self.weights.shape[1]
        at = np.interp(pairs.value, self.curve.value, np.arange(n))  # level beyond the ends
        knot = at.astype(np.int64)
        upper = at - knot
        first = int(pairs.image.min())
        size = int(pairs.image.max()) - first + 1
        for where, weight in ((knot, pairs.weight * (1 - upper)), (np.minimum(knot + 1, n - 1), pairs.weight * upper)):
            found = np.bincount((pairs.image - first) * n + where, weight, size * n)
            self.weights[first : first + size] += found.reshape(size, n)

    def accepted(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected accepted captions of each image, float64 [images], and by each of the calibration's draws, float64
        [images, draws]."""
        return self.weights @ np.array(self.curve.accepted), self.weights @ np.array(self.curve.draws).T


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def scaled(self, by: float) -> Estimate:
        return Estimate(self.mean * by, self.low * by, self.high * by)


def mean_of(counts: Counts, seed: int = 0) -> Estimate:
    """Mean accepted captions per image beyond the given ones."""
    each, drawn = counts.accepted()
    random, n = np.random.default_rng(seed), len(each)
    curves = np.arange(DRAWS) % drawn.shape[1]
    means = np.empty(DRAWS)
    for start in range(0, DRAWS, CHUNK):
        images = random.multinomial(n, np.full(n, 1 / n), size=CHUNK) / n
        means[start : start + CHUNK] = (images * drawn.T[curves[start : start + CHUNK]]).sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(float(each.mean()), float(low), float(high))
