"""How well values agree with human scores: coefficients over all pairs and non-original ones, and their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy import stats

from capgrade.pipelines.agreement.kendall import Ranked, auc, average_precision
from capgrade.pipelines.agreement.ratings import Judgements

ACCEPTED = 0.5  # a share of yes above it is a yes
SAMPLES, FEWEST, MANY = 200, 40, 50_000
ROUNDING = 1e-12  # of a sum of squares: a variance below it is none
Row = dict[str, dict[str, float]]


def varies(values: np.ndarray) -> bool:
    return len(values) > 1 and bool(np.ptp(values) > 0)


def coefficients(values: np.ndarray, people: Judgements, original: np.ndarray) -> Row:
    """coefficient -> scope -> value. Scopes: `all` pairs and `non_original` ones; with several ratings per pair also
    `all_ratings` and `non_original_ratings`, where every single rating is an observation.

    Coefficients: pearson, spearman, kendall (tau-b), kendall_c (tau-c); for yes and no also `auc` and
    `average_precision` of what most people accept. One that is not defined (a side is constant) is left out.
    """
    every = np.ones(len(original), bool)
    result: Row = {name: {} for name in ("pearson", "spearman", "kendall", "kendall_c")}
    for scope, mask in {"all": every, "non_original": ~original}.items():
        _add(result, scope, values[mask], people.score[mask])
        if people.binary:
            _add_binary(result, scope, values[mask], people.score[mask] > ACCEPTED)
        if people.ratings is not None:
            row = np.repeat(np.arange(len(original)), people.ratings.counts)
            of = mask[row]
            _add(result, f"{scope}_ratings", values[row[of]], people.ratings.value[of])
    return result


def _add(result: Row, scope: str, x: np.ndarray, y: np.ndarray) -> None:
    if varies(x) and varies(y):
        taus = Ranked(x, y).taus(np.ones(len(x)))
        found = {"pearson": stats.pearsonr(x, y).statistic, "spearman": stats.spearmanr(x, y).statistic}
        for name, value in {**found, "kendall": taus.b, "kendall_c": taus.c}.items():
            result[name][scope] = float(value)


def _add_binary(result: Row, scope: str, values: np.ndarray, accepted: np.ndarray) -> None:
    yes = int(accepted.sum())
    if 0 < yes < len(accepted):
        balance = Ranked(values, accepted).taus(np.ones(len(values))).balance
        result.setdefault("auc", {})[scope] = auc(balance, yes, len(accepted) - yes)
        result.setdefault("average_precision", {})[scope] = average_precision(values, accepted)


def image_draws(image: np.ndarray, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap over images: row of each pair's image int64 [n], and how often each image was drawn, float64
    [samples, images]."""
    images, row = np.unique(image, return_inverse=True)
    draws = np.random.default_rng(seed).multinomial(len(images), np.full(len(images), 1 / len(images)), size=samples)
    return row, draws.astype(np.float64)


def pair_draws(image: np.ndarray, owner: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each pair is in each draw of images with their captions, float64 [n]: as often as its image was drawn,
    times as often as the image that its caption is of (`owner` int64 [n]); an own pair as often as its image.

    The pigeonhole bootstrap (Owen 2007: a cell counts as the product of its row's and its column's draws), but with one
    draw for both sides, as both are images (Davezies et al. 2021, "Empirical process results for exchangeable arrays").
    Draws of pairs, or of one side, make too narrow intervals: some captions fit much, whatever a measure says. Where
    images and captions make no difference beyond their values, intervals are too wide, at most 1.7 times.
    """
    rows, draws = image_draws(np.concatenate([image, owner]), samples, seed)
    of_image, of_owner = rows[: len(image)], rows[len(image) :]
    for draw in draws:
        yield draw[of_image] * np.where(of_image == of_owner, 1.0, draw[of_owner])


def intervals(
    values: np.ndarray, people: Judgements, owner: np.ndarray, samples: int | None = None, seed: int = 0
) -> Mapping[str, Mapping[str, list[float]]]:
    """95 % percentile intervals of pearson, kendall and kendall_c by `pair_draws`; owner int64 [n]: the image that each
    caption is of. coefficient -> scope -> [low, high]. SAMPLES draws without `samples`, fewer (FEWEST at least) of more
    than MANY pairs, whose intervals are narrow."""
    samples = samples or min(SAMPLES, max(FEWEST, SAMPLES * MANY // len(people.image)))
    result: dict[str, dict[str, list[float]]] = {name: {} for name in ("pearson", "kendall", "kendall_c")}
    for scope, mask in {"all": np.ones(len(owner), bool), "non_original": owner != people.image}.items():
        x, y = values[mask].astype(np.float64), people.score[mask]
        if not (varies(x) and varies(y)):
            continue
        found: dict[str, list[float]] = {name: [] for name in result}
        ranked = Ranked(x, y)
        for weight in pair_draws(people.image, owner, samples, seed):
            with np.errstate(invalid="ignore", divide="ignore"):  # a draw in which a side is constant says nothing
                taus = ranked.taus(weight[mask])
                found["pearson"].append(_pearson(x, y, weight[mask]))
                found["kendall"].append(taus.b if taus.levels > 1 else np.nan)
                found["kendall_c"].append(taus.c if taus.levels > 1 else np.nan)
        for name, drawn in found.items():
            if np.isfinite(drawn).any():
                result[name][scope] = [float(q) for q in np.nanquantile(drawn, (0.025, 0.975))]
    return result


def _pearson(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """r of weighted pairs; NaN where a side is constant, up to rounding."""
    x, y = x - x.mean(), y - y.mean()
    n, sx, sy, xx, yy, xy = (weight @ column for column in (np.ones(len(x)), x, y, x * x, y * y, x * y))
    vx, vy = n * xx - sx * sx, n * yy - sy * sy
    if not (vx > ROUNDING * n * xx and vy > ROUNDING * n * yy):
        return float("nan")
    return float(np.clip((n * xy - sx * sy) / np.sqrt(vx * vy), -1, 1))
