"""Metrics from a sample of judged pairs, each with its probability of being judged; intervals hold
queries and sample.

A judged pair stands for 1 / probability pairs (Horvitz and Thompson 1952). A metric of a query is
its formula with such sums in place of the true ones: statAP for average precision (Pavlu and Aslam
2007), the like of infNDCG for NDCG (Yilmaz, Kanoulas and Aslam 2008). Sums are unbiased. Where a
sum divides, the plug-in is biased, by much if few pairs of a query are judged. How much, worlds
tell that are drawn like the sample: relevant pairs as often as judged ones of like rank and weight,
and more of them in some queries than in others, as products of two pairs of one query show. The
mean error of the plug-in in these worlds is taken off (a parametric bootstrap: Efron and Tibshirani
1993, chapter 10).

No interval is given where it could not hold: where pairs that nobody saw might move the value by
more than its width, or where the bias is larger than half of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtri

from capgrade.metrics.base import Matrix, check_k, check_matrix, place_pairs, share
from capgrade.metrics.positives import Positives
from capgrade.metrics.uncertainty import resampled_means, share_interval, tails
from capgrade.schemas.arrays import Array, as_numpy
from capgrade.schemas.errors import InputError, check_choice
from capgrade.schemas.pairs import Pairs

_DRAWS = 8  # of how much sampling changes a value
_DRAWN, _LEAST_DRAWN = 2000, 20  # queries of a drawn world, by which a bias is told, and at least
_DRAWN_CELLS = 2_000_000  # relevant pairs of it
_LARGEST = 0.5  # bias that can be taken off, in widths of the interval
_EVEN = 1e-6  # a variance of factors below which queries do not differ
_FEW = 5  # relevant pairs, from which on those that were judged tell how many there are
_LEVEL = 0.95  # of the limit of those that nobody saw
_CELLS = 1_000_000  # of a block of scores that is ranked at a time
_SAMPLES = 2000  # bootstrap draws of the queries


@dataclass(frozen=True)
class Estimate:
    """A metric's value, its interval over both chances, and the standard error by the sampling of
    pairs alone. Without an interval `low` and `high` are NaN, and `note` says what was judged too
    rarely."""

    value: float
    low: float
    high: float
    sampling_error: float
    note: str = ""


@dataclass(frozen=True)
class Places:
    """The difference of two systems, and the probability that they change places: that the one
    behind is ahead."""

    difference: Estimate
    change: float


def estimate(
    scores: Matrix,
    sample: Pairs,
    metrics: Sequence[str] = ("recall@1", "ndcg@25", "map@r"),
    *,
    above: float = 0.0,
    level: float = 0.95,
    seed: int = 0,
    groups: Array | None = None,
) -> dict[str, Estimate]:
    """Metrics of scores [Q, N] over all their pairs, from a judged sample of these: recall@K (is
    any relevant among the first K), r@K, precision@K, map, map@r, r_precision, ndcg@K, ndcg_exp@K,
    ncs@K. Relevant is a gain over `above`. No interval is given where too little is judged for one;
    `Estimate.note` then says what.

    recall@K and precision@K are exact where the first K are judged for certain. A query without a
    relevant item counts as 0. Tied scores are put in a random order. Rows of one group int [Q]
    (captions of an image) are drawn together. docs/metrics.md has how often the intervals hold.

    >>> every = Pairs.judged(np.array([0, 0]), np.array([0, 1]), np.array([0.0, 1.0]), np.ones(2))
    >>> round(estimate(np.array([[0.9, 0.2]]), every, ["ndcg@2"])["ndcg@2"].value, 4)
    0.6309
    """
    by_metric = query_values(scores, sample, metrics, above=above, seed=seed)
    return {name: values.estimate(level, groups) for name, values in by_metric.items()}


def change_places(
    scores_a: Matrix,
    scores_b: Matrix,
    sample: Pairs,
    metric: str = "map@r",
    *,
    above: float = 0.0,
    level: float = 0.95,
    seed: int = 0,
    groups: Array | None = None,
) -> Places:
    """The difference a - b of two systems by one sample, and the share of bootstrap draws of
    queries and sample in which its sign is the other one; options as `estimate` has them.

    >>> every = Pairs.judged(np.array([0, 0]), np.array([0, 1]), np.array([0.0, 1.0]), np.ones(2))
    >>> change_places(np.array([[0.9, 0.2]]), np.array([[0.2, 0.9]]), every,
    ...     "recall@1").difference.value
    -1.0
    """
    first, second = (
        query_values(scores, sample, [metric], above=above, seed=seed)[metric]
        for scores in (scores_a, scores_b)
    )
    return places_of(first, second, level, seed, groups)


def places_of(
    first: QueryValues, second: QueryValues, level: float, seed: int, groups: Array | None
) -> Places:
    """`change_places` of two systems' query values; `groups`, int [Q], are drawn as one.
    InputError for two numbers of queries."""
    if first.values.shape != second.values.shape:
        raise InputError(
            "the systems have other numbers of queries", remedy="score the same queries with both"
        )
    gap = first.less(second)
    drawn = resampled_means(gap.values, samples=_SAMPLES, seed=seed, groups=groups)
    low, high = map(float, np.quantile(drawn, tails(level)))
    difference = gap.with_interval(low, high, level)
    drawn = drawn * np.sign(difference.value)
    return Places(difference, float((drawn < 0).mean() + (drawn == 0).mean() / 2))


@dataclass(frozen=True)
class QueryValues:
    """A metric's estimate of each query, float64 [Q], and how much sampling changes it in some
    draws, float64 [draws, Q]. Values of single queries may leave [0, 1]; their mean is what is
    estimated.

    `bias` was taken off each value, with the standard error `noise`. `unseen` is how far relevant
    pairs that nobody saw might move the mean, by groups of pairs, and `rare` says which do most.
    `empty` is by how much it is too low if queries of which none was found have a relevant pair.
    """

    values: Array
    errors: Array
    bias: float = 0.0
    noise: float = 0.0
    empty: float = 0.0
    unseen: Mapping[tuple[int, bool], float] = field(default_factory=dict)
    rare: str = ""

    def estimate(self, level: float, groups: Array | None) -> Estimate:
        """Of the mean, with its interval."""
        return self.with_interval(*share_interval(self.values, level, groups), level)

    def less(self, other: QueryValues) -> QueryValues:
        """The difference of two systems, of the same draws."""
        return QueryValues(
            self.values - other.values,
            self.errors - other.errors,
            self.bias - other.bias,
            float(np.hypot(self.noise, other.noise)),
            self.empty - other.empty,
            {
                group: self.unseen.get(group, 0.0) - other.unseen.get(group, 0.0)
                for group in {**self.unseen, **other.unseen}
            },
            self.rare or other.rare,
        )

    def with_interval(self, low: float, high: float, level: float) -> Estimate:
        """The mean with this interval, or with a note why none can be given. A third of the bias is
        added to both sides, as worlds are not like the sample in all, and the noise of it."""
        value, width, note = float(self.values.mean()), high - low, ""
        if sum(map(abs, self.unseen.values())) > width:
            note = f"no interval: {self.rare}"
        elif abs(self.empty) > width / 4:
            note = "no interval: of many queries no judged pair is relevant"
        elif abs(self.bias) > _LARGEST * width:
            note = f"no interval: few pairs of a query are judged, which alone adds {self.bias:.2g}"
        elif width > 1:
            note = "no interval: it would be wider than from 0 to 1"
        noise, model = float(ndtri(tails(level)[1])) * self.noise, abs(self.bias) / 3
        low = value - float(np.hypot(value - low, noise)) - model
        high = value + float(np.hypot(high - value, noise)) + model
        if note:
            low = high = float("nan")
        return Estimate(value, low, high, self.sampling_error, note)

    @property
    def sampling_error(self) -> float:
        """Of the mean."""
        return float(np.sqrt((self.errors**2).mean(axis=0).sum())) / len(self.values)


def query_values(
    scores: Matrix,
    sample: Pairs,
    metrics: Sequence[str],
    *,
    above: float = 0.0,
    seed: int = 0,
    counted: CountedPairs | None = None,
) -> dict[str, QueryValues]:
    """Each metric's estimate of every query, float64 [Q], by scores [Q, N]; `counted` are its
    pairs, if their places are known.

    InputError for an unknown metric, for pairs outside the scores, and for a sample whose weights
    do not add up to their number of pairs."""
    check_matrix("similarity", similarity := as_numpy(scores))
    chosen = [_Metric.parse(name) for name in metrics]
    sample.require_gains()
    if counted is None:
        counted = CountedPairs.count(similarity, sample)
    sample.require_all(
        *similarity.shape,
        remedy="give every pair a chance, as draw_pool does, and scores of these pairs alone",
    )
    placed = _PlacedPairs.by_place(counted, similarity.shape, sample, np.random.default_rng(seed))
    by_metric: dict[str, QueryValues] = {}
    for graded in (True, False):
        some = [metric for metric in chosen if metric.graded == graded]
        if some:
            gains = placed if graded else placed.of_relevant(above)
            by_metric |= _estimate_queries(gains, some, np.random.default_rng(seed))
    return {name: by_metric[name] for name in metrics}


@dataclass(frozen=True)
class CountedPairs:
    """Pairs of a sample by query: their rows in it, and how many candidates of the query score
    higher, and the same, all int64 [n]. Samples of the same pairs have them in common."""

    row: Array
    above: Array
    tied: Array

    @classmethod
    def count(cls, similarity: Array, sample: Pairs) -> CountedPairs:
        """InputError for pairs outside the scores."""
        queries, width = similarity.shape
        sides = ("query", sample.image, queries), ("item", sample.caption, width)
        for what, values, size in sides:
            if not len(values) or values.min() < 0 or values.max() >= size:
                problem = (
                    f"a pair of the sample has its {what} outside the {queries} x {width} scores"
                )
                raise InputError(problem, remedy="give rows and columns of the scores")
        if len(np.unique(sample.image * width + sample.caption)) < len(sample):
            remedy = "give it one gain, such as the mean of its judges"
            raise InputError("a pair is judged twice", remedy=remedy)
        row = np.argsort(sample.image, kind="stable")
        first = np.searchsorted(sample.image[row], np.arange(queries + 1))
        lists = Positives(first, sample.caption[row], np.zeros(queries, np.int64))
        return cls(row, *place_pairs(similarity, lists))


@dataclass(frozen=True)
class _PlacedPairs:
    """Judged pairs by query and place: the query, the place in its ranking from 0, the gain, how
    many pairs it stands for, the largest gain that these can have, and its row in the sample,
    all [n]."""

    queries: int
    width: int  # candidates
    query: Array
    place: Array
    gain: Array
    weight: Array
    most: Array
    row: Array

    @classmethod
    def by_place(
        cls,
        counted: CountedPairs,
        shape: tuple[int, int],
        sample: Pairs,
        random: np.random.Generator,
    ) -> _PlacedPairs:
        """Tied candidates are put in a random order."""
        query = sample.image[counted.row]
        place = counted.above + _drawn_offsets(query, counted.above, counted.tied, random)
        within = np.lexsort((place, query))
        row = counted.row[within]
        columns = np.asarray(sample.value, np.float64)[row], sample.weight[row], sample.limits[row]
        return cls(*shape, query[within], place[within], *columns, row)

    def of_relevant(self, above: float) -> _PlacedPairs:
        """The same with gains of 0 and 1."""
        gain, most = ((values > above).astype(np.float64) for values in (self.gain, self.most))
        return replace(self, gain=gain, most=most)

    @cached_property
    def unsure(self) -> Array:
        """bool [n]: stands for others too."""
        return np.asarray(self.weight > 1)

    @cached_property
    def drawn(self) -> Array:
        """The rows of pairs with a gain, int [found]."""
        return np.flatnonzero(self.gain > 0)

    @cached_property
    def found(self) -> _Found:
        """These pairs."""
        return _Found(self.query[self.drawn], self.place[self.drawn], self.gain[self.drawn])


def _drawn_offsets(query: Array, above: Array, tied: Array, random: np.random.Generator) -> Array:
    """The place of each judged pair within its tie group, as in a random order of the group: those
    of one group have different places."""
    offset = np.zeros(len(query), np.int64)
    rows = np.flatnonzero(tied > 1)
    if len(rows):
        key = query[rows] * (above.max() + 1) + above[rows]
        _, group, count = np.unique(key, return_inverse=True, return_counts=True)
        alone = count[group] == 1
        offset[rows[alone]] = random.integers(0, tied[rows[alone]])
        for members in _groups(np.where(alone, -1, group)):
            if not alone[members[0]]:
                some = rows[members]
                offset[some] = random.choice(tied[some[0]], len(some), replace=False)
    return offset


def _estimate_queries(
    placed: _PlacedPairs, metrics: Sequence[_Metric], random: np.random.Generator
) -> dict[str, QueryValues]:
    """The plug-in of each query less the bias that it has in drawn worlds, by metric."""
    found = placed.found
    drawn = placed.drawn
    weight = placed.weight[drawn]
    # Weights that differ by their own standard deviation, to either side: how much sampling alone
    # changes a value. A pair keeps its side, whatever ranks it.
    deviation = np.sqrt(weight * (weight - 1))
    sides = random.integers(0, 2, (_DRAWS, len(placed.row)), np.int8)[:, placed.row[drawn]] * 2 - 1
    weights: list[Callable[[slice], Array]] = [
        weight.__getitem__,
        *(partial(_moved, weight, side, deviation) for both in sides for side in (both, -both)),
    ]
    values, *moved = _score(placed.queries, placed.width, metrics, found, weights)
    errors = np.stack([(moved[k] - moved[k + 1]) / 2 for k in range(0, len(moved), 2)])
    # Fewer tell nothing of others.
    tells = int(placed.unsure[drawn].sum()) >= _FEW
    world = _World.like(placed, random) if tells else None
    biased = [metric for metric in metrics if metric.divides and world is not None]
    biases = {} if world is None else world.biases(biased)
    by_metric = {}
    for at, metric in enumerate(metrics):
        bias, noise, empty = biases.get(metric.name, (0.0, 0.0, 0.0))
        unseen, words = _unseen(placed, metric, values[at], random)
        if metric.divides and world is None:  # the bias is there, and nothing tells how large
            unseen = {group: 2 * moved for group, moved in unseen.items()}
        by_metric[metric.name] = QueryValues(
            values[at] - bias, errors[:, at], bias, noise, empty, unseen, words
        )
    return by_metric


def _moved(weight: Array, side: Array, deviation: Array, rows: Any) -> Array:
    """Weights of these pairs, moved to a side by their deviation. They are made as they are read:
    all of them would take a hundred bytes a pair."""
    return np.asarray(weight[rows] + side[rows] * deviation[rows])


@dataclass(frozen=True)
class _Found:
    """Pairs with a gain, by query and place: query, place and gain, all [n]."""

    query: Array
    place: Array
    gain: Array

    @classmethod
    def sort(
        cls, query: Array, place: Array, gain: Array, *more: Array
    ) -> tuple[_Found, list[Array]]:
        """From pairs in any order, and more columns in theirs."""
        order = np.lexsort((place, query))
        return cls(query[order], place[order], gain[order]), [column[order] for column in more]


@dataclass(frozen=True)
class _World:
    """Queries as those of the sample might be, when every pair is judged: found pairs, and the
    weight of each in a sample of them, 0 where it is not drawn."""

    queries: int
    width: int
    found: _Found
    weight: Array

    @classmethod
    def like(cls, placed: _PlacedPairs, random: np.random.Generator) -> _World:
        """Queries of the sample, drawn with replacement: with the pairs that are known of each for
        certain, and others like judged ones of all queries at like places (each half of the ranks,
        of the first half, and so on). A gamma factor says how many more a query has than others:
        its mean and variance by products of two judged pairs of one query, then by those of the
        query itself."""
        unsure, relevant = placed.unsure, placed.gain > 0
        band_of = np.log2(placed.place + 1).astype(np.int64)
        first = 2 ** np.arange(int(np.log2(placed.width)) + 1) - 1  # places at which bands begin
        size = np.diff(np.append(first, placed.width))
        certain = np.zeros((placed.queries, len(size)), np.int64)
        np.add.at(certain, (placed.query[~unsure], band_of[~unsure]), 1)
        open_places = np.maximum(size - certain, 0)
        donors = [np.flatnonzero(unsure & relevant & (band_of == h)) for h in range(len(size))]
        number = np.array([placed.weight[rows].sum() for rows in donors])
        chance = np.minimum(share(number, open_places.sum(axis=0).astype(float)), 1.0)
        factor = _factors(placed, chance[band_of])

        expected = max(1.0, float((open_places @ chance).mean() + certain.sum(axis=1).mean()))
        most = max(_LEAST_DRAWN, int(_DRAWN_CELLS / expected))
        queries = min(max(_DRAWN, 4 * placed.queries), most)
        chosen = random.integers(0, placed.queries, queries)
        factors = factor(chosen, random)
        parts = [_known_of(placed, chosen)]
        for band, rows in enumerate(donors):
            if not len(rows):
                continue
            count = random.binomial(open_places[chosen, band], 1 - (1 - chance[band]) ** factors)
            query = np.repeat(np.arange(queries), count)
            # One in each of as many equal parts of the band.
            at = np.arange(len(query)) - np.repeat(count.cumsum() - count, count)
            part = (at + random.random(len(at))) / np.maximum(count, 1)[query]
            weight = placed.weight[rows]
            like = rows[random.choice(len(rows), len(query), p=weight / weight.sum())]
            weight = placed.weight[like]
            weight = np.where(random.random(len(weight)) * weight < 1, weight, 0.0)
            place = first[band] + (part * size[band]).astype(np.int64)
            parts.append((query, place, placed.gain[like], weight))
        found, (weight,) = _Found.sort(*map(np.concatenate, zip(*parts, strict=True)))
        return cls(queries, placed.width, found, weight)

    def biases(self, metrics: Sequence[_Metric]) -> dict[str, tuple[float, float, float]]:
        """By how much the plug-in of each metric exceeds the true value, and the standard error of
        that; and how much the mean would rise if each query without a relevant pair had one, as
        those have of which none is drawn."""
        weights = [self.weight.__getitem__, np.ones(len(self.weight)).__getitem__]
        estimated, true = _score(self.queries, self.width, metrics, self.found, weights)
        errors = estimated - true
        noise = errors.std(axis=1) / np.sqrt(self.queries)
        has, drawn = (
            np.bincount(self.found.query[rows], minlength=self.queries) > 0
            for rows in (slice(None), self.weight > 0)
        )
        missed = has & ~drawn
        empty = np.zeros(len(metrics))
        if missed.any():
            empty = (~has).mean() * true[:, missed].mean(axis=1)
        columns = (errors.mean(axis=1).tolist(), noise.tolist(), empty.tolist())
        names = [metric.name for metric in metrics]
        return dict(zip(names, zip(*columns, strict=True), strict=True))


def _known_of(placed: _PlacedPairs, chosen: Array) -> tuple[Array, Array, Array, Array]:
    """The pairs with a gain that are known for certain of chosen queries: the number of the
    choice, place, gain and weight."""
    rows = np.flatnonzero(~placed.unsure & (placed.gain > 0))
    start = np.searchsorted(placed.query[rows], np.arange(placed.queries + 1))
    count = np.diff(start)[chosen]
    query = np.repeat(np.arange(len(chosen)), count)
    at = np.arange(len(query)) - np.repeat(count.cumsum() - count, count)
    known = rows[start[chosen][query] + at]
    return query, placed.place[known], placed.gain[known], np.ones(len(known))


def _factors(placed: _PlacedPairs, chance: Array) -> Callable[[Array, np.random.Generator], Array]:
    """Draws, for chosen queries, how many times as many relevant pairs they have as others;
    `chance` [n] is that of each judged pair by all queries."""
    unsure = placed.unsure
    query, expected = placed.query[unsure], chance[unsure]
    hits = (placed.gain[unsure] > 0).astype(np.float64)

    def per_query(amounts: Array) -> Array:
        return np.bincount(query, amounts, placed.queries)

    products = [
        float((per_query(some) ** 2 - per_query(some**2)).sum())
        for some in (hits - expected, expected)
    ]
    spread = products[0] / products[1] if products[1] > 0 else 0.0
    if spread < _EVEN:
        return lambda chosen, random: np.ones(len(chosen))
    shape, rate = 1 / spread + per_query(hits), 1 / spread + per_query(expected)
    return lambda chosen, random: random.gamma(shape[chosen], 1 / rate[chosen])


def _groups(keys: Array) -> list[Array]:
    """The rows of each key."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(keys) else []


def _unseen(
    placed: _PlacedPairs, metric: _Metric, values: Array, random: np.random.Generator
) -> tuple[dict[tuple[int, bool], float], str]:
    """How far relevant pairs that nobody saw might move the mean: of each group of pairs of like
    weight, inside and outside the first K, in which fewer than `_FEW` are relevant, as many as the
    95 % limit of a Poisson number allows, and no more than there are. By the logarithm of the
    weight, and inside or not; and what is most of it, in words."""
    moved, largest, words = dict[tuple[int, bool], float](), 0.0, ""
    inside = placed.place < metric.k if metric.k else np.zeros(len(placed.place), bool)
    group = np.log2(placed.weight).astype(np.int64) * 2 + inside
    found, drawn = placed.found, placed.drawn
    typical = float(found.gain.mean()) if len(found.gain) else 1.0
    unsure = placed.unsure
    open_queries = np.ones(placed.queries, bool)
    if metric.kind == "recall":  # what else a query has is of no account where it has a sure one
        open_queries[placed.query[~unsure & inside & (placed.gain > 0)]] = False
        unsure = unsure & open_queries[placed.query]
    if metric.k and not (unsure & inside).any():
        first = int(open_queries.sum()) * min(metric.k, placed.width)
        missed = first - int((inside & open_queries[placed.query]).sum())
        # Each might change its query by 1.
        largest = moved[0, True] = missed / placed.queries
        words = f"{missed:,} of {first:,} pairs among the first {metric.k} are not judged"
    for rows in _groups(np.where(unsure, group, -1)):
        relevant = int((placed.gain[rows] > 0).sum())
        if not unsure[rows[0]] or relevant >= _FEW:
            continue
        mixed = random.permutation(rows)
        query, one = np.unique(placed.query[mixed], return_index=True)
        added, asked = mixed[one], len(one)
        gain = np.minimum(typical, placed.most[added])
        query, added, gain = (column[gain > 0] for column in (query, added, gain))
        with_added, (weight,) = _Found.sort(
            np.concatenate([found.query, query]),
            np.concatenate([found.place, placed.place[added]]),
            np.concatenate([found.gain, gain]),
            np.concatenate([placed.weight[drawn], np.ones(len(added))]),
        )
        changed = _score(placed.queries, placed.width, [metric], with_added, [weight.__getitem__])[
            0, 0
        ]
        change = float((changed - values).sum()) / asked
        limit = gammaincinv(relevant + 1, _LEVEL) - relevant
        stands_for = float(placed.weight[rows].mean())
        others = min(limit * stands_for, float((placed.weight[rows] - 1).sum()))
        part = others * change / placed.queries
        moved[int(group[rows[0]]) // 2, bool(inside[rows[0]])] = part
        if abs(part) > largest:
            largest = abs(part)
            words = (
                f"{relevant} of {len(rows):,} judged pairs are relevant where one stands for"
                f" {stands_for:,.0f}"
            )
    return moved, words


def _score(
    queries: int,
    width: int,
    metrics: Sequence[_Metric],
    found: _Found,
    weights: Sequence[Callable[[slice], Array]],
) -> Array:
    """Each metric of each query, float64 [weights, metrics, queries], by blocks of queries, where
    found pairs count as each of `weights` says of some rows."""
    values = np.zeros((len(weights), len(metrics), queries))
    ends = np.searchsorted(found.query, np.arange(queries + 1))
    sizes = np.diff(ends)
    by_gain = any(metric.graded for metric in metrics)
    start = 0
    while start < queries:
        # As many queries as fit, each as wide as the one with the most pairs.
        wide = np.maximum.accumulate(sizes[start : start + _CELLS])
        stop = start + max(1, int((wide * np.arange(1, len(wide) + 1) <= _CELLS).sum()))
        part = slice(ends[start], ends[stop])
        row = found.query[part] - start
        at = row, np.arange(ends[start], ends[stop]) - ends[start:stop][row]
        shape = stop - start, max(1, int(sizes[start:stop].max()))
        place, gain = np.full(shape, width), np.zeros(shape)
        place[at], gain[at] = found.place[part], found.gain[part]
        order = np.argsort(-gain, axis=1, kind="stable") if by_gain else None
        for number, weight in enumerate(weights):
            counts = np.zeros(shape)
            counts[at] = weight(part)
            pairs = _Pairs(place, gain, counts, order)
            for column, metric in enumerate(metrics):
                values[number, column, start:stop] = metric.of(pairs)
        start = stop
    return values


@dataclass(frozen=True)
class _Pairs:
    """Found pairs of queries [b, P], by place: place, gain, how many pairs each counts as, and
    their order by gain."""

    place: Array
    gain: Array
    count: Array
    order: Array | None  # by gain, falling

    @cached_property
    def relevant(self) -> Array:
        """How many are relevant, [b]."""
        return self.count.sum(axis=1)

    @cached_property
    def best(self) -> tuple[Array, Array]:
        """The gains, falling, and up to which place each of these pairs reaches in the best order,
        where a pair takes as many places as it counts."""
        assert self.order is not None  # of metrics that add up gains
        gain, count = (np.take_along_axis(of, self.order, axis=1) for of in (self.gain, self.count))
        return gain, count.cumsum(axis=1)

    @cached_property
    def precision(self) -> Array:
        """The precision at the place of each pair, itself being one."""
        return (self.count.cumsum(axis=1) - self.count + 1) / (self.place + 1)


@dataclass(frozen=True)
class _Metric:
    """A metric of found pairs. `k` is 0 where it has no cut-off; `graded`, whether it adds up
    gains."""

    name: str
    kind: str
    k: int

    @classmethod
    def parse(cls, name: str) -> _Metric:
        """InputError for an unknown metric."""
        match = re.fullmatch(r"([a-z_]+)@(\d+)", name)
        known = (*_GRADED, *_BINARY, *_WITHOUT_K)
        kind = check_choice("metric of a judged sample", match[1] if match else name, known)
        if (match is None) != (kind in _WITHOUT_K):
            raise InputError(
                f"metric {name!r}", remedy=f"write {kind if kind in _WITHOUT_K else f'{kind}@K'}"
            )
        return cls(name, kind, 0 if match is None else check_k(int(match[2])))

    @property
    def graded(self) -> bool:
        return self.kind in _GRADED

    @property
    def divides(self) -> bool:
        """Whether a sum divides, so that the plug-in is biased."""
        return self.kind not in ("recall", "precision")

    def of(self, pairs: _Pairs) -> Array:
        """The plug-in of each query: Horvitz and Thompson's estimates in place of sums, [b]."""
        if self.graded:
            return self._of_gains(pairs)
        if self.kind in _WITHOUT_K:
            hits = pairs.count if self.kind == "r_precision" else pairs.count * pairs.precision
            if self.kind != "map":  # those among the first R
                hits = hits * np.clip(pairs.relevant[:, None] - pairs.place, 0, 1)
            return share(hits.sum(axis=1), pairs.relevant)
        inside = pairs.place < self.k
        if self.kind == "recall":
            # The product of 1 - weight is unbiased for that of 1 - gain: whether none is relevant.
            return 1 - np.prod(1 - pairs.count * inside, axis=1)
        hits = (pairs.count * inside).sum(axis=1)
        return hits / self.k if self.kind == "precision" else share(hits, pairs.relevant)

    def _of_gains(self, pairs: _Pairs) -> Array:
        """The gains of the first K over those of the best order: NCS, or discounted by place."""
        gain, (best, filled) = pairs.gain, pairs.best
        if self.kind == "ndcg_exp":
            gain, best = 2.0**gain - 1, 2.0**best - 1
        inside = (pairs.place < self.k).astype(np.float64)
        filled = np.minimum(filled, self.k)
        if self.kind != "ncs":
            discounts = 1 / np.log2(np.arange(self.k) + 2.0)
            inside /= np.log2(pairs.place + 2.0)
            filled = np.interp(filled, np.arange(self.k + 1), np.append(0, discounts.cumsum()))
        ideal = (best * np.diff(filled, axis=1, prepend=0)).sum(axis=1)
        return share((gain * pairs.count * inside).sum(axis=1), ideal)


_GRADED = ("ndcg", "ndcg_exp", "ncs")
_BINARY = ("recall", "r", "precision")
_WITHOUT_K = ("map", "map@r", "r_precision")
