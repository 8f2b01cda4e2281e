"""What a value means to people: the expected human score 0..5 and the probability that a person accepts the pair.

Isotonic regression of non-original pairs (given pairs are known to belong), by the pool-adjacent-violators algorithm of
scikit-learn; judged on images that it was not fitted on. The curves of bootstrap draws over images say how far the
judgements themselves leave the probability open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.coefficients import image_draws
from capgrade.pipelines.agreement.ratings import Judgements
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version, read_json, write_json
from capgrade.schemas.output import json_with, refuse_file

SHIPPED = Path(__file__).with_name("crisscrossed.json")  # of Crisscrossed Captions, score at least 4.5
KIND, FORMAT = "calibration", 1
KNOTS, DRAWS, FOLDS, BINS = 64, 40, 10, 15
DIGITS = 5  # of every number in the file
FEWEST = 100  # non-original pairs, on at least FOLDS images
TOP = 5.0  # of the expected score
_NOT_MEANT = {"device", "self_reference"}  # of no effect on pairs that were not given


@dataclass(frozen=True)
class Curve:
    """value: KNOTS rising values of a measure; score 0..5 and accepted 0..1 there, straight lines between them, level
    beyond; draws: accepted of each bootstrap draw. ece and reliability are of held-out images."""

    value: list[float]
    score: list[float]
    accepted: list[float]
    draws: list[list[float]]
    ece: float
    reliability: list[dict[str, float]]
    pairs: int

    def expected(self, values: np.ndarray) -> np.ndarray:
        """The expected human score 0..5, of the shape of `values`."""
        return np.asarray(np.interp(values, self.value, self.score))

    def probability(self, values: np.ndarray) -> np.ndarray:
        """P(a person accepts), of the shape of `values`."""
        return np.asarray(np.interp(values, self.value, self.accepted))

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """The same by each bootstrap draw: float64 [draws, len(values)]."""
        return np.stack([np.interp(values, self.value, draw) for draw in self.draws])


@dataclass(frozen=True)
class Calibration:
    """Curves by measure, the parameters each was computed with, and what they were fitted on."""

    curves: dict[str, Curve]
    params: dict[str, Any]
    facts: dict[str, Any]

    def require_alike(self, measure: str, params: Any, made: Path, path: Path) -> None:
        """InputError where the labels in `made` have a measure of other parameters than the calibration at `path`."""
        if _meant(params) != _meant(self.params[measure]):
            remedy = "calibrate for these: capgrade agree --calibrate, then --calibration"
            raise InputError(f"{measure} has other parameters than in {path.name}", file=made, remedy=remedy)


@dataclass(frozen=True)
class Scale:
    """People's scores are low..high; a person accepts from the score `accept` on."""

    accept: float
    low: float
    high: float


def fit(values: np.ndarray, people: Judgements, original: np.ndarray, scale: Scale) -> Curve:
    """A measure's curve. values float [n] of the judged pairs; original bool [n] pairs are left out. Scores low..high
    are brought to 0..5. InputError for fewer than FEWEST other pairs, or than FOLDS images."""
    x = values[~original].astype(np.float64)
    score = (people.score[~original] - scale.low) * (TOP / (scale.high - scale.low))
    image = people.image[~original]
    if len(x) < FEWEST or len(np.unique(image)) < FOLDS:
        problem = f"{len(x)} judged pairs of {len(np.unique(image))} images, own pairs left out"
        raise InputError(problem, remedy=f"calibrate on at least {FEWEST} pairs of {FOLDS} images")
    accepted = (people.score[~original] >= scale.accept).astype(np.float64)
    knots = np.unique(np.round(np.quantile(x, np.linspace(0, 1, KNOTS)), DIGITS))  # as they are written
    row, draws = image_draws(image, DRAWS, 0)
    ece, reliability = _held_out(x, accepted, row)
    return Curve(
        _rounded(knots), _rounded(_isotonic(x, score, knots)), _rounded(_isotonic(x, accepted, knots)),
        [_rounded(_isotonic(x, accepted, knots, draw[row])) for draw in draws], ece, reliability, len(x),
    )  # fmt: skip


def _isotonic(x: np.ndarray, y: np.ndarray, at: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """The rising function of least squares, at the values `at`; level beyond the data."""
    from sklearn.isotonic import IsotonicRegression

    some = slice(None) if weight is None else weight > 0
    fitted = IsotonicRegression(out_of_bounds="clip").fit(x[some], y[some], None if weight is None else weight[some])
    return np.asarray(fitted.predict(at))


def _held_out(x: np.ndarray, accepted: np.ndarray, row: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Expected calibration error, and predicted against observed acceptance in bins of equally many pairs; each pair's
    probability by a curve that saw none of its image's pairs."""
    fold = np.random.default_rng(0).permutation(row.max() + 1)[row] % FOLDS
    predicted = np.empty(len(x))
    for k in range(FOLDS):
        knots = np.unique(np.quantile(x[fold != k], np.linspace(0, 1, KNOTS)))
        curve = _isotonic(x[fold != k], accepted[fold != k], knots)
        predicted[fold == k] = np.interp(x[fold == k], knots, curve)
    parts = np.array_split(np.argsort(predicted, kind="stable"), BINS)
    table = [
        {"predicted": float(predicted[part].mean()), "accepted": float(accepted[part].mean()), "pairs": len(part)}
        for part in parts
        if len(part)
    ]
    return calibration_error(table), table


def calibration_error(table: list[dict[str, float]]) -> float:
    """Expected calibration error (Naeini et al. 2015): mean |accepted - predicted| over bins, by their pairs."""
    total = sum(row["pairs"] for row in table)
    return float(sum(row["pairs"] * abs(row["accepted"] - row["predicted"]) for row in table) / total)


def _meant(params: Any) -> Any:
    """Parameters without those that do not matter here."""
    if isinstance(params, dict):
        return {key: _meant(value) for key, value in params.items() if key not in _NOT_MEANT}
    return params


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), DIGITS) for value in values]


def refuse_other(path: Path) -> None:
    """InputError where a file stands at `path` that is no calibration."""
    refuse_file(path, "calibration", json_with(lambda found: isinstance(found, dict) and found.get("kind") == KIND))


def save(path: Path, calibration: Calibration) -> None:
    curves = {name: asdict(curve) for name, curve in calibration.curves.items()}
    facts = {"kind": KIND, "format": FORMAT, "package": package_version(), **calibration.facts}
    refuse_other(path)
    write_json(path, {**facts, "params": calibration.params, "measures": curves})


def load(path: Path) -> Calibration:
    """InputError for a file that `save` did not write."""
    found = read_json(path)
    try:
        if found["kind"] != KIND or found["format"] != FORMAT:
            raise ValueError("another kind or format")
        curves = {name: Curve(**curve) for name, curve in found["measures"].items()}
        whole = all(
            len(curve.value) == len(curve.score) == len(line) and np.all(np.diff(curve.value) > 0)
            for curve in curves.values()
            for line in (curve.accepted, *curve.draws)
        )
        if not whole:
            raise ValueError("curves of uneven lengths")
        facts = {key: found[key] for key in ("judgements", "accept", "low", "high", "package")}
        return Calibration(curves, dict(found["params"]), facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"not a calibration ({type(error).__name__}: {error})"
        raise InputError(problem, file=path, remedy="give what capgrade agree --calibrate wrote") from error


def scale_of(people: Judgements) -> Scale:
    """A review's are 0..5 (accepted from 3 on). Others tell it themselves: shares of yes or truth in 0..1 (accepted
    from a half on), several ratings of 1..4 (from 3 on, as Flickr8k's experts), else 0..5 (from 3 on, as Crisscrossed
    Captions). InputError for other scores."""
    if people.graded:
        return Scale(3.0, 0.0, TOP)
    given = people.score if people.ratings is None else people.ratings.value
    low, high = float(given.min()), float(given.max())
    if low < 0 or high > TOP:
        problem = f"scores from {low:g} to {high:g}"
        raise InputError(problem, remedy="calibrate on scores of 0 to 1, 1 to 4 or 0 to 5: divide them first")
    if high <= 1:
        return Scale(0.5, 0.0, 1.0)
    return Scale(3.0, 1.0, 4.0) if people.ratings is not None and high <= 4 and low >= 1 else Scale(3.0, 0.0, TOP)


def calibrate(
    labels: Mapping[str, np.ndarray], people: Judgements, original: np.ndarray, accept: float | None
) -> tuple[dict[str, Curve], dict[str, float]]:
    """Curves by measure, and `accept`, `low` and `high` of the judgements. InputError for an `accept` beyond those."""
    scale = scale_of(people)
    if accept is not None:
        scale = replace(scale, accept=accept)
    if not scale.low < scale.accept <= scale.high:
        problem = f"accepted from {scale.accept:g} on, scores are {scale.low:g} to {scale.high:g}"
        raise InputError(problem, remedy="give --accept on the scale of the judgements")
    return {name: fit(values, people, original, scale) for name, values in labels.items()}, asdict(scale)
