"""How many pairs people would accept: expected counts of each image, and intervals of their mean.

The expected number of accepted captions of image i beyond the given ones is sum over j of w_ij p(v_ij): p from the
calibration, w_ij the inverse of a sampled pair's probability of being kept (Horvitz and Thompson 1952), 1 in a dense
matrix. Intervals are percentiles of draws, each with one of the calibration's bootstrap curves, and with what that
leaves open, as a normal variable: the random effects of images and of captions, chance where p is neither 0 nor 1, and
the sampling of shards, as if each pair were kept or not by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.agreement.curve import Curve
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


class PairCounts(Counts):
    """The same; what each image's captions add to other images; and the variance of single pairs, of chance and of
    sampling. owner int64 [n_captions]."""

    def __init__(self, curve: Curve, n_images: int, owner: np.ndarray) -> None:
        super().__init__(curve, n_images)
        self.owner, self.of_captions, self.squares, self.single = owner, np.zeros(n_images), 0.0, 0.0

    def add(self, pairs: Pairs) -> None:
        super().add(pairs)
        p = self.curve.probability(pairs.value)
        accepted = pairs.weight * p
        self.of_captions += np.bincount(self.owner[pairs.caption], accepted, len(self.of_captions))
        self.squares += float((accepted**2).sum())
        self.single += float((accepted * (1 - p) + (pairs.weight - 1) * accepted * p).sum())

    def left_open(self) -> float:
        """The standard deviation of the number of accepted pairs, the curve given. Chance has all of a single pair: the
        effects add what different pairs of an image, or of one image's captions, have in common."""
        sides = (self.curve.image_spread, self.accepted()[0]), (self.curve.caption_spread, self.of_captions)
        effects = [spread * ((side**2).sum() - self.squares) for spread, side in sides]
        return float(np.sqrt(sum(effects) + self.single))


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def scaled(self, by: float) -> Estimate:
        return Estimate(self.mean * by, self.low * by, self.high * by)


def mean_of(counts: PairCounts, seed: int = 0) -> Estimate:
    """Mean accepted captions per image beyond the given ones."""
    each, drawn = counts.accepted()
    n, random = len(each), np.random.default_rng(seed)
    means = np.resize(drawn.mean(axis=0), DRAWS) + random.normal(scale=counts.left_open() / n, size=DRAWS)
    low, high = np.quantile(means, (0.025, 0.975)).clip(0)
    return Estimate(float(each.mean()), float(low), float(high))
