"""How well values agree with human scores: coefficients over all pairs and non-original ones, and
their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy import stats

from capgrade.agreement.judgements import Judgements
from capgrade.metrics.kendall import balances
from capgrade.metrics.ranking import rank
from capgrade.schemas.judges import CHOSEN, RANDOM


def taus(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Kendall's tau-b and tau-c of observations float [n]; NaN where a side is constant.

    b = balance / sqrt((n0 - ties_x) (n0 - ties_y)), balance = concordant less discordant pairs of
    observations, n0 = n (n - 1) / 2; Kendall 1945. c = 2 balance m / (n^2 (m - 1)), m the smaller
    number of distinct values; Stuart 1953. As scipy's variants b and c.
    """
    if not (varies(x) and varies(y)):
        return float("nan"), float("nan")
    one, other = (rank(np.asarray(side, np.float64)[None]) for side in (x, y))
    balance, *untied = balances(one, other)[0].tolist()
    levels = min(1 + np.count_nonzero(np.diff(side.end)) for side in (one, other))
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


_ACCEPTED = 0.5  # a share of yes above it is a yes
SAMPLES, _FEWEST, MANY = 200, 40, 50_000
_Row = dict[str, dict[str, float]]


def varies(values: np.ndarray) -> bool:
    return len(values) > 1 and bool(np.ptp(values) > 0)


def coefficients(values: np.ndarray, people: Judgements, original: np.ndarray) -> _Row:
    """coefficient -> scope -> value. Scopes: `all` pairs and `non_original` ones; CHOSEN and RANDOM
    ones where the judgements say so of each; with several ratings per pair also `all_ratings` and
    the like, where every single rating is an observation.

    Coefficients: pearson, spearman, kendall (tau-b), kendall_c (tau-c); for yes and no also `auc`
    and `average_precision` of what most people accept. One that is not defined (a side is constant)
    is left out.
    """
    every = np.ones(len(original), bool)
    result: _Row = {name: {} for name in ("pearson", "spearman", "kendall", "kendall_c")}
    scopes = {"all": every, "non_original": ~original}
    if people.random is not None:
        scopes |= {CHOSEN: ~people.random, RANDOM: people.random}
    for scope, mask in scopes.items():
        _add(result, scope, values[mask], people.score[mask])
        accepted = people.score[mask] > _ACCEPTED
        yes = int(accepted.sum())
        if people.binary and 0 < yes < len(accepted):
            sides = (values[mask][side].astype(np.float64) for side in (accepted, ~accepted))
            larger = stats.mannwhitneyu(*sides, method="asymptotic").statistic
            result.setdefault("auc", {})[scope] = float(larger / (yes * (len(accepted) - yes)))
            result.setdefault("average_precision", {})[scope] = average_precision(
                values[mask], accepted
            )
        if people.ratings is not None:
            row = np.repeat(np.arange(len(original)), people.ratings.counts)
            of = mask[row]
            _add(result, f"{scope}_ratings", values[row[of]], people.ratings.value[of])
    return result


def _add(result: _Row, scope: str, x: np.ndarray, y: np.ndarray) -> None:
    if varies(x) and varies(y):
        tau_b, tau_c = taus(x, y)
        found = {
            "pearson": stats.pearsonr(x, y).statistic,
            "spearman": stats.spearmanr(x, y).statistic,
        }
        for name, value in {**found, "kendall": tau_b, "kendall_c": tau_c}.items():
            result[name][scope] = float(value)


def pair_draws(
    image: np.ndarray, owner: np.ndarray, samples: int, seed: int
) -> Iterator[np.ndarray]:
    """How often each pair is in each draw of images with their captions, float64 [n]: as often as
    its image was drawn, times as often as the image that its caption is of (`owner` int64 [n]); an
    own pair as often as its image.

    The pigeonhole bootstrap (Owen 2007: a cell counts as the product of its row's and its column's
    draws), but with one draw for both sides, as both are images (Davezies et al. 2021, "Empirical
    process results for exchangeable arrays"). Draws of pairs, or of one side, make too narrow
    intervals: some captions fit much, whatever a measure says. Where images and captions make no
    difference beyond their values, intervals are too wide, at most 1.7 times.
    """
    images, rows = np.unique(np.concatenate([image, owner]), return_inverse=True)
    draws = np.random.default_rng(seed).multinomial(
        len(images), np.full(len(images), 1 / len(images)), size=samples
    )
    of_image, of_owner = rows[: len(image)], rows[len(image) :]
    for draw in draws.astype(np.float64):
        yield draw[of_image] * np.where(of_image == of_owner, 1.0, draw[of_owner])


def intervals(
    values: np.ndarray,
    people: Judgements,
    owner: np.ndarray,
    samples: int | None = None,
    seed: int = 0,
) -> Mapping[str, Mapping[str, list[float]]]:
    """95 % percentile intervals of pearson, kendall and kendall_c by `pair_draws`; owner int64 [n]:
    the image that each caption is of. coefficient -> scope -> [low, high]. SAMPLES draws without
    `samples`, fewer (FEWEST at least) of more than MANY pairs, whose intervals are narrow."""
    samples = samples or min(SAMPLES, max(_FEWEST, SAMPLES * MANY // len(people.image)))
    result: dict[str, dict[str, list[float]]] = {
        name: {} for name in ("pearson", "kendall", "kendall_c")
    }
    for scope, mask in {
        "all": np.ones(len(owner), bool),
        "non_original": owner != people.image,
    }.items():
        x, y = values[mask].astype(np.float64), people.score[mask]
        found: dict[str, list[float]] = {name: [] for name in result}
        for draw in pair_draws(people.image, owner, samples, seed):
            rows = np.repeat(np.arange(len(x)), draw[mask].astype(np.int64))
            if varies(x[rows]) and varies(
                y[rows]
            ):  # a draw in which a side is constant says nothing
                pearson = float(stats.pearsonr(x[rows], y[rows]).statistic)
                for name, value in zip(found, (pearson, *taus(x[rows], y[rows])), strict=True):
                    found[name].append(value)
        for name, drawn in found.items():
            if drawn:
                result[name][scope] = [float(q) for q in np.quantile(drawn, (0.025, 0.975))]
    return result


HALVES, AT_ONCE = 1000, 50  # draws of `bootstrapped_spearman`, and how many are ranked together


def bootstrapped_spearman(
    values: np.ndarray, people: Judgements, seed: int = 0
) -> dict[str, float] | None:
    """Spearman's rho as Parekh et al. 2021 print it for Crisscrossed Captions: each draw takes half
    of the queries, here images, and one judged pair of each; "mean" and "sd" of HALVES draws. None
    for fewer than four images, and where a side is constant in every draw."""
    order = np.argsort(people.image, kind="stable")
    _, first, counts = np.unique(people.image[order], return_index=True, return_counts=True)
    half = len(first) // 2
    if half < 2:
        return None
    random, found = np.random.default_rng(seed), []
    for _ in range(HALVES // AT_ONCE):
        some = random.permuted(np.tile(np.arange(len(first)), (AT_ONCE, 1)), axis=1)[:, :half]
        pair = order[first[some] + random.integers(counts[some])]
        x, y = (
            stats.rankdata(side, axis=1) - (half + 1) / 2
            for side in (values[pair], people.score[pair])
        )
        scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
        found.append((x * y).sum(axis=1) / np.where(scale > 0, scale, np.nan))
    drawn = np.concatenate(found)
    drawn = drawn[np.isfinite(drawn)]
    return {"mean": float(drawn.mean()), "sd": float(drawn.std())} if len(drawn) else None


NO_RATERS: dict[str, object] = {
    **{name: {} for name in ("pearson", "spearman", "kendall", "kendall_c")},
    "pairs": 0,
    "ratings": 1.0,
}
_DRAWS = 20  # each draw takes one of a pair's ratings as the rater's


def human(people: Judgements, original: np.ndarray, seed: int = 0) -> dict[str, object]:
    """The coefficients of `coefficients`, with one rating of each pair in the place of a measure
    and the mean of the pair's others in that of the score; the mean of DRAWS draws of that rating.
    Pairs of one rating are left out.

    Files that do not name raters cannot tell them apart, so a rating is drawn from each pair alike.
    `pairs` is how many have several ratings, `ratings` how many of these a pair has on average; the
    coefficients are empty without.
    """
    several = (
        np.flatnonzero(people.ratings.counts > 1)
        if people.ratings is not None
        else np.empty(0, np.int64)
    )
    if people.ratings is None or not len(several):
        return NO_RATERS
    random, ratings, original = np.random.default_rng(seed), people.ratings, original[several]
    counts, rows = ratings.counts[several], []
    random_pairs = None if people.random is None else people.random[several]
    for _ in range(_DRAWS):
        one = ratings.value[ratings.ptr[several] + random.integers(counts)]
        others = (ratings.means[several] * counts - one) / (counts - 1)
        those = Judgements(
            people.image[several], people.caption[several], others, random=random_pairs
        )
        rows.append(coefficients(one, those, original))
    mean = {
        name: {
            scope: float(np.mean([row[name][scope] for row in rows if scope in row[name]]))
            for scope in found
        }
        for name, found in rows[0].items()
    }
    return {**mean, "pairs": len(several), "ratings": float(counts.mean())}
