"""How well values agree with human scores: coefficients over all pairs and non-original ones, and their intervals."""

from __future__ import annotations

from collections.abc import Mapping

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


def intervals(
    values: np.ndarray, people: Judgements, original: np.ndarray, samples: int | None = None, seed: int = 0
) -> Mapping[str, Mapping[str, list[float]]]:
    """95 % percentile intervals of pearson, kendall and kendall_c: images are drawn with replacement, each with all its
    judged pairs. coefficient -> scope -> [low, high]. SAMPLES draws without `samples`, fewer (FEWEST at least) of more
    than MANY pairs, whose intervals are narrow."""
    samples = samples or min(SAMPLES, max(FEWEST, SAMPLES * MANY // len(people.image)))
    row, draws = image_draws(people.image, samples, seed)
    result: dict[str, dict[str, list[float]]] = {name: {} for name in ("pearson", "kendall", "kendall_c")}
    for scope, mask in {"all": np.ones(len(original), bool), "non_original": ~original}.items():
        x, y, of = values[mask].astype(np.float64), people.score[mask], row[mask]
        if not (varies(x) and varies(y)):
            continue
        ranked = Ranked(x, y)
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw in which a side is constant says nothing
            taus = [ranked.taus(draw[of]) for draw in draws]
            found = {
                "pearson": _pearsons(x, y, of, draws),
                "kendall": np.array([tau.b if tau.levels > 1 else np.nan for tau in taus]),
                "kendall_c": np.array([tau.c if tau.levels > 1 else np.nan for tau in taus]),
            }
        for name, drawn in found.items():
            if np.isfinite(drawn).any():
                result[name][scope] = [float(q) for q in np.nanquantile(drawn, (0.025, 0.975))]
    return result


def _pearsons(x: np.ndarray, y: np.ndarray, row: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """r of each draw from the sums of each image, of centred numbers; NaN where a side is constant, up to rounding."""
    x, y = x - x.mean(), y - y.mean()
    columns = (np.ones(len(x)), x, y, x * x, y * y, x * y)
    sums = np.stack([np.bincount(row, column, draws.shape[1]) for column in columns], axis=1)
    n, sx, sy, xx, yy, xy = (draws @ sums).T
    vx, vy = n * xx - sx * sx, n * yy - sy * sy
    spread = (vx > ROUNDING * n * xx) & (vy > ROUNDING * n * yy)
    return np.where(spread, (n * xy - sx * sy) / np.sqrt(vx * vy), np.nan).clip(-1, 1)
