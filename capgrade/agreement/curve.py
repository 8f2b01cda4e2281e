"""What a value means to people: the expected human score 0..5 and the probability that a person
accepts the pair.

Isotonic regression of non-original pairs (given pairs are known to belong), by the
pool-adjacent-violators algorithm of scipy; judged on images that it was not fitted on. The curves
of bootstrap draws over images say how far the judgements themselves leave the probability open
(`pair_draws`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression

from capgrade.agreement.judgements import Judgements
from capgrade.metrics.uncertainty import pair_draws
from capgrade.schemas.errors import InputError

KNOTS, _DRAWS, FOLDS, _BINS = 64, 40, 10, 15
_DIGITS = 5  # of every number
FEWEST = 100  # non-original pairs, on at least FOLDS images
FEWEST_ABOVE = 5  # pairs above the last knot of `through`
_TOP = 5.0  # of the expected score


@dataclass(frozen=True)
class Curve:
    """value: KNOTS rising values of a measure; score 0..5 and accepted 0..1 there, straight lines
    between them, level beyond; draws: accepted of each bootstrap draw. ece and reliability are of
    held-out images. image_spread and caption_spread: the variances of a and b, where a pair of
    value v is accepted with probability p(v) (1 + a + b), a random effect of its image, and one of
    the image that its caption is of."""

    value: list[float]
    score: list[float]
    accepted: list[float]
    draws: list[list[float]]
    ece: float
    reliability: list[dict[str, float]]
    pairs: int
    image_spread: float
    caption_spread: float

    def expected(self, values: np.ndarray) -> np.ndarray:
        """The expected human score 0..5, float64 of the shape of `values`."""
        return np.asarray(np.interp(values, self.value, self.score))

    def probability(self, values: np.ndarray) -> np.ndarray:
        """P(a person accepts), float64 of the shape of `values`."""
        return np.asarray(np.interp(values, self.value, self.accepted))

    def value_at(self, p: float) -> float:
        """The least value of which people accept at least the share `p`. InputError where no value
        has it."""
        if not self.accepted[-1] >= p > 0:
            remedy = f"give a P above 0, at most {self.accepted[-1]:g}"
            raise InputError(f"no value has P {p:g} in this calibration", remedy=remedy)
        k = int(np.searchsorted(self.accepted, p))
        if k == 0:
            return self.value[0]
        low, high = self.accepted[k - 1], self.accepted[k]
        return self.value[k - 1] + (self.value[k] - self.value[k - 1]) * (p - low) / (high - low)


@dataclass(frozen=True)
class Scale:
    """People's scores are low..high; a person accepts from the score `accept` on."""

    accept: float
    low: float
    high: float


def fit(values: np.ndarray, people: Judgements, owner: np.ndarray, scale: Scale) -> Curve:
    """A measure's curve. values float [n] of the judged pairs; owner int64 [n]: the image that each
    caption is of; own pairs are left out. Scores low..high are brought to 0..5. InputError for
    too few pairs (`require_enough`)."""
    other = owner != people.image
    x, image, owner = values[other].astype(np.float64), people.image[other], owner[other]
    score = (people.score[other] - scale.low) * (_TOP / (scale.high - scale.low))
    require_enough(image, owner)
    accepted = (people.score[other] >= scale.accept).astype(np.float64)
    # as they are written
    knots = np.unique(np.round(np.quantile(x, np.linspace(0, 1, KNOTS)), _DIGITS))
    ece, reliability = _held_out(x, accepted, np.unique(image, return_inverse=True)[1])
    curve = _isotonic(x, accepted, knots)
    p, two = np.interp(x, knots, curve), (image, owner)
    return Curve(
        _rounded(knots),
        _rounded(_isotonic(x, score, knots)),
        _rounded(curve),
        [
            _rounded(_isotonic(x, accepted, knots, weight))
            for weight in pair_draws(image, owner, _DRAWS, 0)
        ],
        ece,
        reliability,
        len(x),
        *_rounded([_spread(accepted - p, p, *sides) for sides in (two, two[::-1])]),
    )


def require_enough(image: np.ndarray, owner: np.ndarray) -> None:
    """InputError for pairs that are too few to fit a curve: their images, and the images of their
    captions, int64 [n]; without own pairs."""
    counts = len(np.unique(image)), len(np.unique(owner))
    if len(image) < FEWEST or min(counts) < FOLDS:
        problem = (
            f"{len(image)} judged pairs of {counts[0]} images with captions of {counts[1]}, own"
            " pairs left out"
        )
        remedy = f"calibrate on at least {FEWEST} pairs of {FOLDS} images with captions of {FOLDS}"
        raise InputError(problem, remedy=remedy)


def through(curve: Curve, known: np.ndarray, fewer: np.ndarray) -> Curve:
    """The curve of a value that knows less, such as the largest over fewer references: on average,
    what `curve` says of pairs that have it. known and fewer float [n]: both values of pairs of
    which any was as likely to be drawn.

    Judged pairs that were chosen for their likeness cannot give it: where the lesser value is low,
    the others that were chosen are those that the better value saw. What P by `curve` exceeds, this
    exceeds on average."""
    # most pairs are alike at the low end
    tail = 1 - np.geomspace(1, min(FEWEST_ABOVE / len(fewer), 1), KNOTS)
    knots = np.unique(np.round(np.quantile(fewer, tail), _DIGITS))
    values, row = np.unique(fewer, return_inverse=True)
    weights = np.bincount(row).astype(np.float64)

    def of(line: list[float]) -> list[float]:
        mean = np.bincount(row, np.interp(known, curve.value, line)) / weights
        return _rounded(np.interp(knots, values, isotonic_regression(mean, weights=weights).x))

    draws = [of(draw) for draw in curve.draws]
    return replace(
        curve,
        value=_rounded(knots),
        score=of(curve.score),
        accepted=of(curve.accepted),
        draws=draws,
    )


def _spread(residual: np.ndarray, p: np.ndarray, side: np.ndarray, other: np.ndarray) -> float:
    """Variance of the random effect of `side` int64 [n], of moments: two residuals of one image
    whose captions are of two have the mean p p' var(a). 0 where there are no two, or they say less
    than none."""
    row, column = (np.unique(one, return_inverse=True)[1] for one in (side, other))
    cell = np.unique(row * len(row) + column, return_inverse=True)[1]
    products, scale = (
        float((np.bincount(row, one) ** 2).sum() - (np.bincount(cell, one) ** 2).sum())
        for one in (residual, p)
    )
    return max(products / scale, 0.0) if scale > 0 else 0.0


def _isotonic(
    x: np.ndarray, y: np.ndarray, at: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray:
    """The rising function of least squares, at the values `at`; level beyond the data."""
    values, row = np.unique(x, return_inverse=True)
    weight = np.ones(len(x)) if weight is None else weight
    weights, sums = np.bincount(row, weight), np.bincount(row, weight * y)
    some = weights > 0
    fitted = isotonic_regression(sums[some] / weights[some], weights=weights[some]).x
    return np.interp(at, values[some], fitted)


def _held_out(
    x: np.ndarray, accepted: np.ndarray, row: np.ndarray
) -> tuple[float, list[dict[str, float]]]:
    """Expected calibration error, and predicted against observed acceptance in bins of equally many
    pairs; each pair's probability by a curve that saw none of its image's pairs."""
    fold = np.random.default_rng(0).permutation(row.max() + 1)[row] % FOLDS
    predicted = np.empty(len(x))
    for k in range(FOLDS):
        knots = np.unique(np.quantile(x[fold != k], np.linspace(0, 1, KNOTS)))
        curve = _isotonic(x[fold != k], accepted[fold != k], knots)
        predicted[fold == k] = np.interp(x[fold == k], knots, curve)
    return reliability(predicted, accepted)


def reliability(
    predicted: np.ndarray, accepted: np.ndarray
) -> tuple[float, list[dict[str, float]]]:
    """Expected calibration error (Naeini et al. 2015: mean |accepted - predicted| over bins, by
    their pairs) of probabilities float [n] with who accepted, 0 or 1 [n]; and both in bins of
    equally many pairs, as far as equal probabilities, which stay together, allow it."""
    order = np.argsort(predicted, kind="stable")
    ends = np.linspace(0, len(order), _BINS + 1).astype(np.int64)[1:-1]
    rising = predicted[order]
    parts = np.split(order, np.searchsorted(rising, rising[ends]))
    table = [
        {
            "predicted": float(predicted[part].mean()),
            "accepted": float(accepted[part].mean()),
            "pairs": len(part),
        }
        for part in parts
        if len(part)
    ]
    off = sum(row["pairs"] * abs(row["accepted"] - row["predicted"]) for row in table)
    return float(off / len(order)), table


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), _DIGITS) for value in values]
