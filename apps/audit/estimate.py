"""How many pairs people would accept: expected counts of each image, and intervals of their mean.

The expected number of accepted captions of image i among some pairs is sum over j of w_ij p(v_ij):
p from the calibration, w_ij the inverse of a sampled pair's probability of being kept (Horvitz and
Thompson 1952). Each draw of an interval takes one of the calibration's bootstrap curves and adds a
normal variable for all other variance (docs/false_negatives.md#how-far-to-trust-it). By a
calibration on chosen pairs the counts are upper limits.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from capgrade.agreement.curve import Curve
from capgrade.lists import LIKELY
from capgrade.schemas.pairs import Pairs

DRAWS = 1000
EDGES = (0.0, 0.2, LIKELY, 1.0)
_LAST = len(EDGES) - 2


class PairCounts:
    """Sums over pairs from which the number of accepted pairs follows by any curve with the same
    knots. owner int64 [n_captions].

    Between two knots the curve is a straight line, so the weight of a pair is divided between
    both by its distance to them: the sum over knots is then exactly that of w p(v)."""

    def __init__(self, curve: Curve, n_images: int, owner: np.ndarray) -> None:
        self.curve, self.owner = curve, owner
        self.weights = np.zeros((n_images, len(curve.value)))  # of each image's pairs, by knot
        self.of_captions = np.zeros(n_images)  # accepted pairs of each image's own captions
        self.squares = 0.0  # sum of (w p)^2 over pairs
        self.variance = 0.0  # of chance and of sampling, over pairs
        self.sampled = False  # whether a pair has a weight above 1

    def add(self, pairs: Pairs) -> None:
        """Count these pairs; each is to be added once."""
        if not len(pairs):
            return
        n = self.weights.shape[1]
        # The position of each value among the knots; values beyond the ends count as the end.
        position = np.interp(pairs.value, self.curve.value, np.arange(n))
        knot = position.astype(np.int64)
        upper = position - knot
        first = int(pairs.image.min())
        size = int(pairs.image.max()) - first + 1
        for knots, weight in (
            (knot, pairs.weight * (1 - upper)),
            (np.minimum(knot + 1, n - 1), pairs.weight * upper),
        ):
            added = np.bincount((pairs.image - first) * n + knots, weight, size * n)
            self.weights[first : first + size] += added.reshape(size, n)
        p = self.curve.probability(pairs.value)
        accepted = pairs.weight * p
        self.of_captions += np.bincount(self.owner[pairs.caption], accepted, len(self.of_captions))
        self.sampled |= bool((pairs.weight > 1).any())
        self.squares += float((accepted**2).sum())
        # Weights below 1 are shares of one pair, which add no variance of sampling.
        of_sampling = (pairs.weight - 1).clip(0)
        self.variance += float((accepted * (1 - p) + of_sampling * accepted * p).sum())

    def combine(self, others: Sequence[Self]) -> Self:
        """The counts of these pairs and of the others'."""
        combined = copy(self)
        for other in others:
            # Not in place: the arrays are still those of `self`.
            combined.weights = combined.weights + other.weights
            combined.of_captions = combined.of_captions + other.of_captions
            combined.squares += other.squares
            combined.variance += other.variance
            combined.sampled |= other.sampled
        return combined

    def expected_accepted(self) -> np.ndarray:
        """Expected accepted captions of each image, float64 [images]."""
        return self.weights @ np.array(self.curve.accepted)

    def standard_deviation(self) -> float:
        """The standard deviation of the number of accepted pairs for a fixed curve. The variance of
        single pairs is complete without the random effects, which add the covariance of different
        pairs of one image, and of pairs of one image's captions."""
        sides = (
            (self.curve.image_spread, self.expected_accepted()),
            (self.curve.caption_spread, self.of_captions),
        )
        effects = [spread * ((side**2).sum() - self.squares) for spread, side in sides]
        return float(np.sqrt(max(sum(effects) + self.variance, 0.0)))

    def draw_sums(self, seed: int = 0) -> np.ndarray:
        """How many pairs people accept in all, float64 [DRAWS]: each draw by one of the
        calibration's curves, plus a normal variable of `standard_deviation`."""
        by_curve = self.weights.sum(axis=0) @ np.array(self.curve.draws).T
        random = np.random.default_rng(seed)
        return np.resize(by_curve, DRAWS) + random.normal(
            scale=self.standard_deviation(), size=DRAWS
        )


class ProbabilityBands:
    """Counts of pairs by their probability, from EDGES[k] on and below EDGES[k + 1]; the last band
    has the likely pairs. `random`: whether the calibration is on random pairs, not chosen ones.
    `listed` are the likely pairs that were added, each as one pair; `behind` what they stand for
    beside themselves."""

    def __init__(self, curve: Curve, n_images: int, owner: np.ndarray, random: bool) -> None:
        self.curve, self.random, self.n_images = curve, random, n_images
        self.tenths = np.zeros(10)  # pairs by P, from k / 10 on
        self.counts = [PairCounts(curve, n_images, owner) for _ in range(_LAST + 1)]
        self.listed, self.behind = (PairCounts(curve, n_images, owner) for _ in range(2))

    def add(self, pairs: Pairs) -> None:
        p = self.curve.probability(pairs.value)
        self.tenths += np.bincount(np.minimum(p * 10, 9).astype(np.int64), pairs.weight, 10)
        band = np.minimum(np.searchsorted(EDGES, p, side="right") - 1, _LAST)
        for k, counts in enumerate(self.counts):
            counts.add(pairs.take(band == k))
        likely = pairs.take(band == _LAST)
        self.listed.add(replace(likely, weight=np.ones(len(likely))))
        sampled = likely.take(likely.weight != 1)
        self.behind.add(replace(sampled, weight=sampled.weight - 1))

    def unlisted(self) -> PairCounts:
        """The counts of all pairs that are not listed."""
        first, *others, _ = self.counts
        return first.combine([*others, self.behind])

    def by_tenth(self) -> list[float]:
        """Number of captions per image with P from k / 10 to (k + 1) / 10, for k of 0 to 9."""
        return (self.tenths / self.n_images).tolist()

    def likely(self, by: float = 1.0) -> dict[str, Any]:
        """`mean_of` the likely pairs."""
        return mean_of(self.counts[_LAST], self.random, by)

    def accepted_range(self, observed: float | None = None) -> dict[str, float | None]:
        """Captions per image beside its own that people accept: "at_least", "at_most", and
        "below_half", the most of them that are not likely. With a calibration on chosen pairs
        "at_least" is `observed`, the accepted pairs per image among the judged ones, or None."""
        first, *others = self.counts
        all_pairs = mean_of(first.combine(others), self.random)
        unlikely = mean_of(first.combine(others[:-1]), self.random)
        at_least = all_pairs["low"] if self.random else observed
        at_most = max(all_pairs["high"], at_least or 0.0)
        return {"at_least": at_least, "at_most": at_most, "below_half": unlikely["high"]}

    def summarise(self) -> list[dict[str, Any]] | None:
        """from, to, and captions per image as `mean_of`, of each band; None of chosen pairs."""
        if not self.random:
            return None
        edges = zip(EDGES, EDGES[1:], strict=False)
        return [{"from": a, "to": b, **mean_of(self.counts[k])} for k, (a, b) in enumerate(edges)]


def mean_of(counts: PairCounts, random: bool = True, by: float = 1.0) -> dict[str, Any]:
    """Means per image, times `by`: "pairs", the number of pairs; "accepted", how many of them
    people accept, with its 95 % interval "low" to "high". With a calibration that is not on
    `random` pairs, accepted is None and low 0: people accept at most `high`."""
    n = len(counts.weights)
    pairs = float(counts.weights.sum()) / n
    ends = np.quantile(counts.draw_sums() / n, (0.025, 0.975))
    low, high = ends.clip(0, np.inf if counts.sampled else pairs).tolist()
    accepted = float(counts.expected_accepted().mean()) * by if random else None
    low = low * by if random else 0.0
    return {"pairs": pairs * by, "accepted": accepted, "low": low, "high": high * by}
