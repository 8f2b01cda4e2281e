"""How many pairs people would accept: expected counts of each image, and intervals of their mean.

The expected number of accepted captions of image i beyond the given ones is sum over j of w_ij p(v_ij): p from the
calibration, w_ij the inverse of a sampled pair's probability of being kept (Horvitz and Thompson 1952), 1 in a dense
matrix. Intervals are percentiles over draws that resample images, which covers the sampling of shards too, and take one
of the calibration's own bootstrap curves each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.agreement.calibration import Curve
from capgrade.pipelines.audit.candidates import Pairs

BINS, DRAWS = 512, 1000


class Counts:
    """Weights of each image's pairs by bins of their value."""

    def __init__(self, curve: Curve, n_images: int) -> None:
        self.curve = curve
        self.low, self.high = curve.value[0], curve.value[-1]
        self.weights = np.zeros((n_images, BINS))

    def add(self, pairs: Pairs) -> None:
        if not len(pairs.image):
            return
        at = ((pairs.value - self.low) * (BINS / (self.high - self.low))).astype(np.int64).clip(0, BINS - 1)
        first = int(pairs.image.min())
        size = int(pairs.image.max()) - first + 1
        found = np.bincount((pairs.image - first) * BINS + at, pairs.weight, size * BINS)
        self.weights[first : first + size] += found.reshape(size, BINS)

    def accepted(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected accepted captions of each image, float64 [images], and by each of the calibration's draws, float64
        [images, draws]."""
        middles = self.low + (np.arange(BINS) + 0.5) * (self.high - self.low) / BINS
        return self.weights @ self.curve.probability(middles), self.weights @ self.curve.probabilities(middles).T


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def scaled(self, by: float) -> Estimate:
        return Estimate(self.mean * by, self.low * by, self.high * by)


def estimate(blocks: Iterable[Pairs], curve: Curve, n_images: int, seed: int = 0) -> Estimate:
    """Mean accepted captions per image beyond the given ones."""
    counts = Counts(curve, n_images)
    for pairs in blocks:
        counts.add(pairs)
    return mean_of(counts, seed)


def mean_of(counts: Counts, seed: int = 0) -> Estimate:
    each, drawn = counts.accepted()
    random, n = np.random.default_rng(seed), len(each)
    images = random.multinomial(n, np.full(n, 1 / n), size=DRAWS) / n
    curves = np.arange(DRAWS) % drawn.shape[1]
    means = np.array([weight @ drawn[:, k] for weight, k in zip(images, curves, strict=True)])
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(float(each.mean()), float(low), float(high))
