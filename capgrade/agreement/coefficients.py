"""Agreement of values with human scores: coefficients over all pairs and over non-original ones,
and their intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from capgrade.agreement.judgements import Judgements
from capgrade.metrics.kendall import count_pairs
from capgrade.metrics.ranking import rank
from capgrade.metrics.uncertainty import pair_draws
from capgrade.schemas.judges import CHOSEN, RANDOM


def taus(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Kendall's tau-b and tau-c of observations float [n]; NaN where a side is constant.

    b = balance / sqrt((n0 - ties_x) (n0 - ties_y)), balance = concordant less discordant pairs of
    observations, n0 = n (n - 1) / 2; Kendall 1945. c = 2 balance m / (n^2 (m - 1)), m the smaller
    number of distinct values; Stuart 1953. As scipy's variants b and c.

    >>> round(taus(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3]))[0], 3)
    0.667
    """
    if not (varies(x) and varies(y)):
        return float("nan"), float("nan")
    ranks_x, ranks_y = (rank(np.asarray(side, np.float64)[None]) for side in (x, y))
    balance, *untied = count_pairs(ranks_x, ranks_y)[0].tolist()
    levels = min(1 + np.count_nonzero(np.diff(side.end)) for side in (ranks_x, ranks_y))
    return balance / float(np.sqrt(untied[0] * untied[1])), 2 * balance * levels / (
        len(x) ** 2 * (levels - 1)
    )


def average_precision(value: np.ndarray, accepted: np.ndarray) -> float:
    """Sum over distinct thresholds of (recall gained) x precision, as scikit-learn computes it.

    value float [n], accepted bool [n] with at least one True.
    """
    order = np.argsort(-value, kind="stable")
    hits = np.cumsum(accepted[order])
    ends = np.flatnonzero(np.append(np.diff(value[order]) != 0, True))
    precision, recall = hits[ends] / (ends + 1), hits[ends] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


_ACCEPTED = 0.5  # a larger share of yes is a yes
SAMPLES, _FEWEST, MANY = 200, 40, 50_000  # draws of `intervals`, their minimum, many pairs
COEFFICIENTS = ("pearson", "spearman", "kendall", "kendall_c")
_Row = dict[str, dict[str, float]]


def varies(values: np.ndarray) -> bool:
    return len(values) > 1 and bool(np.ptp(values) > 0)


def coefficients(values: np.ndarray, people: Judgements, original: np.ndarray) -> _Row:
    """coefficient -> scope -> value. Scopes: `all` and `non_original` pairs; CHOSEN and RANDOM ones
    where the judgements say how each pair was sampled; with several ratings per pair each scope
    also as `all_ratings` and so on, where every rating is an observation.

    Coefficients: pearson, spearman, kendall (tau-b), kendall_c (tau-c); for yes and no also `auc`
    and `average_precision` of pairs that most people accept. One that is not defined, because a
    side is constant, is left out."""
    all_pairs = np.ones(len(original), bool)
    result: _Row = {name: {} for name in COEFFICIENTS}
    scopes = {"all": all_pairs, "non_original": ~original}
    if people.random is not None:
        scopes |= {CHOSEN: ~people.random, RANDOM: people.random}
    for scope, mask in scopes.items():
        _add(result, scope, values[mask], people.score[mask])
        accepted = people.score[mask] > _ACCEPTED
        yes = int(accepted.sum())
        if people.binary and 0 < yes < len(accepted):
            sides = (values[mask][side].astype(np.float64) for side in (accepted, ~accepted))
            n_larger = stats.mannwhitneyu(*sides, method="asymptotic").statistic
            result.setdefault("auc", {})[scope] = float(n_larger / (yes * (len(accepted) - yes)))
            result.setdefault("average_precision", {})[scope] = average_precision(
                values[mask], accepted
            )
        if people.ratings is not None:
            row = np.repeat(np.arange(len(original)), people.ratings.counts)
            in_scope = mask[row]
            _add(result, f"{scope}_ratings", values[row[in_scope]], people.ratings.value[in_scope])
    return result


def _add(result: _Row, scope: str, x: np.ndarray, y: np.ndarray) -> None:
    if varies(x) and varies(y):
        for name, value in _coefficients_of(x, y).items():
            result[name][scope] = value


def _coefficients_of(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """COEFFICIENTS of observations float [n], of which no side is constant."""
    correlations = (stats.pearsonr(x, y).statistic, stats.spearmanr(x, y).statistic)
    return dict(zip(COEFFICIENTS, map(float, (*correlations, *taus(x, y))), strict=True))


def intervals(
    values: np.ndarray,
    people: Judgements,
    owner: np.ndarray,
    samples: int | None = None,
    seed: int = 0,
) -> Mapping[str, Mapping[str, list[float]]]:
    """95 % percentile intervals of pearson, spearman, kendall and kendall_c by `pair_draws`:
    coefficient -> scope -> [low, high]. owner int64 [n]: each caption's image. Without `samples`
    SAMPLES draws, and fewer, but at least _FEWEST, for more than MANY pairs, whose intervals are
    narrow."""
    samples = samples or min(SAMPLES, max(_FEWEST, SAMPLES * MANY // len(people.image)))
    result: dict[str, dict[str, list[float]]] = {name: {} for name in COEFFICIENTS}
    for scope, mask in {
        "all": np.ones(len(owner), bool),
        "non_original": owner != people.image,
    }.items():
        x, y = values[mask].astype(np.float64), people.score[mask]
        draws_of: dict[str, list[float]] = {name: [] for name in result}
        for draw in pair_draws(people.image, owner, samples, seed):
            rows = np.repeat(np.arange(len(x)), draw[mask].astype(np.int64))
            # A draw in which a side is constant has no coefficient.
            if varies(x[rows]) and varies(y[rows]):
                for name, value in _coefficients_of(x[rows], y[rows]).items():
                    draws_of[name].append(value)
        for name, values_of_draws in draws_of.items():
            if values_of_draws:
                result[name][scope] = [
                    float(q) for q in np.quantile(values_of_draws, (0.025, 0.975))
                ]
    return result


HALVES, AT_ONCE = 1000, 50  # draws of `bootstrapped_spearman`, and how many are ranked at once


def bootstrapped_spearman(
    values: np.ndarray, people: Judgements, seed: int = 0
) -> dict[str, float] | None:
    """Spearman's rho as Parekh et al. 2021 report it for Crisscrossed Captions: "mean" and "sd" of
    HALVES draws, each of half of the queries, here images, with one judged pair of each. None for
    fewer than four images, and where a side is constant in every draw."""
    order = np.argsort(people.image, kind="stable")
    _, first, counts = np.unique(people.image[order], return_index=True, return_counts=True)
    half = len(first) // 2
    if half < 2:
        return None
    random, rhos = np.random.default_rng(seed), []
    for _ in range(HALVES // AT_ONCE):
        chosen = random.permuted(np.tile(np.arange(len(first)), (AT_ONCE, 1)), axis=1)[:, :half]
        pair = order[first[chosen] + random.integers(counts[chosen])]
        x, y = (
            stats.rankdata(side, axis=1) - (half + 1) / 2
            for side in (values[pair], people.score[pair])
        )
        scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
        rhos.append((x * y).sum(axis=1) / np.where(scale > 0, scale, np.nan))
    all_rhos = np.concatenate(rhos)
    all_rhos = all_rhos[np.isfinite(all_rhos)]
    return {"mean": float(all_rhos.mean()), "sd": float(all_rhos.std())} if len(all_rhos) else None


NO_RATERS: dict[str, object] = {
    **{name: {} for name in COEFFICIENTS},
    "pairs": 0,
    "ratings": 1.0,
}
_DRAWS = 20  # draws of one rating of each pair, in `human`


def human(people: Judgements, original: np.ndarray, seed: int = 0) -> dict[str, object]:
    """The agreement of one rater with the others: `coefficients` of one rating of each pair, in the
    place of a measure, and the mean of its other ratings. Means of _DRAWS random choices of that
    rating, because not all files tell raters apart. Pairs with one rating are left out.

    `pairs`: the number of pairs with several ratings; `ratings`: their mean number of ratings. The
    coefficients are empty without such pairs."""
    ratings = people.ratings
    if ratings is None or not (ratings.counts > 1).any():
        return NO_RATERS
    several = np.flatnonzero(ratings.counts > 1)
    random, original = np.random.default_rng(seed), original[several]
    counts, rows = ratings.counts[several], []
    random_pairs = None if people.random is None else people.random[several]
    for _ in range(_DRAWS):
        drawn = ratings.value[ratings.ptr[several] + random.integers(counts)]
        others = (ratings.means[several] * counts - drawn) / (counts - 1)
        of_others = Judgements(
            people.image[several], people.caption[several], others, random=random_pairs
        )
        rows.append(coefficients(drawn, of_others, original))
    mean = {
        name: {
            scope: float(np.mean([row[name][scope] for row in rows if scope in row[name]]))
            for scope in scopes
        }
        for name, scopes in rows[0].items()
    }
    return {**mean, "pairs": len(several), "ratings": float(counts.mean())}
