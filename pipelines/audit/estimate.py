"""How many pairs people would accept: expected counts of each image, and intervals of their mean.

The expected number of accepted captions of image i among some pairs, such as the likely ones, is
sum over j of w_ij p(v_ij): p from the calibration, w_ij the inverse of a sampled pair's probability
of being kept (Horvitz and Thompson 1952), 1 in a dense matrix. Intervals are percentiles of draws,
each with one of the calibration's bootstrap curves, and with what that leaves open, as a normal
variable: the random effects of images and of captions, chance where p is neither 0 nor 1, and the
sampling of shards, as if each pair were kept or not by itself.

All this holds for a calibration on pairs of which any was as likely to be judged. Where they were
chosen for some likeness that the measure does not see, as Crisscrossed Captions', people accept
more of them than of other pairs of the same value, and no judged pair says how many more. What then
follows is one side: people accept at most so many. They accept at least what they were seen to
accept, where the judged pairs are of the captions that are audited.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from capgrade.agreement.curve import Curve
from capgrade.labels.stored import ValuedPairs
from capgrade.lists import LIKELY

DRAWS = 1000
EDGES = (0.0, 0.2, LIKELY, 1.0)
_LAST = len(EDGES) - 2


class PairCounts:
    """Weights of each image's pairs at the knots of the curve; what each image's captions add to
    other images; and the variance of single pairs, of chance and of sampling. owner int64
    [n_captions].

    Between two knots the curve is a straight line, so a pair counts at both, by its distance: what
    is added up is w p(v) itself."""

    def __init__(self, curve: Curve, n_images: int, owner: np.ndarray) -> None:
        self.curve, self.owner = curve, owner
        self.weights, self.of_captions = np.zeros((n_images, len(curve.value))), np.zeros(n_images)
        self.squares, self.single, self.sampled = 0.0, 0.0, False

    def add(self, pairs: ValuedPairs) -> None:
        if not len(pairs.image):
            return
        n = self.weights.shape[1]
        at = np.interp(pairs.value, self.curve.value, np.arange(n))  # level beyond the ends
        knot = at.astype(np.int64)
        upper = at - knot
        first = int(pairs.image.min())
        size = int(pairs.image.max()) - first + 1
        for where, weight in (
            (knot, pairs.weight * (1 - upper)),
            (np.minimum(knot + 1, n - 1), pairs.weight * upper),
        ):
            found = np.bincount((pairs.image - first) * n + where, weight, size * n)
            self.weights[first : first + size] += found.reshape(size, n)
        p = self.curve.probability(pairs.value)
        accepted = pairs.weight * p
        self.of_captions += np.bincount(self.owner[pairs.caption], accepted, len(self.of_captions))
        self.sampled |= bool((pairs.weight > 1).any())
        self.squares += float((accepted**2).sum())
        of_sampling = (pairs.weight - 1).clip(0)  # none of a share of a pair
        self.single += float((accepted * (1 - p) + of_sampling * accepted * p).sum())

    def joined(self, others: Sequence[Self]) -> Self:
        """These pairs and those of the others."""
        whole = copy(self)
        for one in others:
            whole.weights, whole.of_captions = (
                whole.weights + one.weights,
                whole.of_captions + one.of_captions,
            )
            whole.squares, whole.single = whole.squares + one.squares, whole.single + one.single
            whole.sampled |= one.sampled
        return whole

    def accepted(self) -> np.ndarray:
        """Expected accepted captions of each image, float64 [images]."""
        return self.weights @ np.array(self.curve.accepted)

    def left_open(self) -> float:
        """The standard deviation of the number of accepted pairs, the curve given. Chance has all
        of a single pair: the effects add what different pairs of an image, or of one image's
        captions, have in common."""
        sides = (
            (self.curve.image_spread, self.accepted()),
            (self.curve.caption_spread, self.of_captions),
        )
        effects = [spread * ((side**2).sum() - self.squares) for spread, side in sides]
        return float(np.sqrt(max(sum(effects) + self.single, 0.0)))

    def sums(self, seed: int = 0) -> np.ndarray:
        """How many pairs people accept in all, float64 [DRAWS]: by each of the calibration's
        curves, with what that leaves open."""
        drawn = self.weights.sum(axis=0) @ np.array(self.curve.draws).T
        return np.resize(drawn, DRAWS) + np.random.default_rng(seed).normal(
            scale=self.left_open(), size=DRAWS
        )


class Bands:
    """Pairs by their probability, from EDGES[k] on and below EDGES[k + 1]; the last band is that of
    the likely ones. `random`: whether the calibration is on pairs of which any was as likely to be
    judged."""

    def __init__(self, curve: Curve, n_images: int, owner: np.ndarray, random: bool) -> None:
        self.curve, self.random, self.n_images = curve, random, n_images
        self.tenths = np.zeros(10)  # pairs by P, from k / 10 on
        self.counts = [PairCounts(curve, n_images, owner) for _ in range(_LAST + 1)]

    def add(self, pairs: ValuedPairs) -> None:
        p = self.curve.probability(pairs.value)
        self.tenths += np.bincount(np.minimum(p * 10, 9).astype(np.int64), pairs.weight, 10)
        band = np.minimum(np.searchsorted(EDGES, p, side="right") - 1, _LAST)
        for k, counts in enumerate(self.counts):
            counts.add(pairs.take(band == k))

    def by_tenth(self) -> list[float]:
        """Captions per image by P, from k / 10 on; the last is that of 0.9 to 1. How many people
        accept is not told."""
        return (self.tenths / self.n_images).tolist()

    def likely(self, by: float = 1.0) -> dict[str, Any]:
        """Of the likely pairs, as `mean_of`."""
        return mean_of(self.counts[_LAST], self.random, by)

    def accepted(self, seen: float | None = None) -> dict[str, float | None]:
        """Captions per image beside its own that people accept: "at_least", None where no lower end
        holds, and "at_most"; "below_half": at most so many of them are not likely. Of chosen pairs,
        `seen` per image were judged and accepted."""
        first, *others = self.counts
        whole, unlikely = (
            mean_of(first.joined(others), self.random),
            mean_of(first.joined(others[:-1]), self.random),
        )
        at_least = whole["low"] if self.random else seen
        at_most = max(whole["high"], at_least or 0.0)
        return {"at_least": at_least, "at_most": at_most, "below_half": unlikely["high"]}

    def told(self) -> list[dict[str, Any]] | None:
        """from, to, and captions per image as `mean_of`, of each band; None of chosen pairs."""
        if not self.random:
            return None
        edges = zip(EDGES, EDGES[1:], strict=False)
        return [{"from": a, "to": b, **mean_of(self.counts[k])} for k, (a, b) in enumerate(edges)]


def mean_of(counts: PairCounts, random: bool = True, by: float = 1.0) -> dict[str, Any]:
    """Of the pairs that were counted, per image and times `by`: "pairs", how many; "accepted", how
    many people accept, with its 95 % interval "low" to "high". Unless any pair was as likely to be
    judged (`random`), accepted is None and low 0: people accept at most `high`."""
    n = len(counts.weights)
    pairs = float(counts.weights.sum()) / n
    ends = np.quantile(counts.sums() / n, (0.025, 0.975))
    low, high = ends.clip(0, np.inf if counts.sampled else pairs).tolist()
    accepted, low = (float(counts.accepted().mean()) * by, low * by) if random else (None, 0.0)
    return {"pairs": pairs * by, "accepted": accepted, "low": low, "high": high * by}
