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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtri

from capgrade.kernels import get_num_threads, in_threads, njit
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
_NO_VALUE = "no interval", "no value"  # of a note


@dataclass(frozen=True)
class Estimate:
    """A metric's value, its interval over both chances, and the standard error by the sampling of
    pairs alone. Without an interval `low` and `high` are NaN, and `note` says what was judged too
    rarely; the value is NaN too where it would lie outside of 0..1."""

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
        """Of the mean, with its interval. One that has none, and lies outside of the metric's range
        besides, is no value: NaN."""
        found = self.with_interval(*share_interval(self.values, level, groups), level)
        if not found.note or 0 <= found.value <= 1:
            return found
        return replace(found, value=float("nan"), note=found.note.replace(*_NO_VALUE, 1))

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
            note = "no interval: by this sample it may be anything from 0 to 1"
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
    places: PairPlaces | None = None,
) -> dict[str, QueryValues]:
    """Each metric's estimate of every query, float64 [Q], by scores [Q, N]; `places` are those of
    its pairs, if they are known.

    InputError for an unknown metric, for pairs outside the scores, and for a sample whose weights
    do not add up to their number of pairs."""
    check_matrix("similarity", similarity := as_numpy(scores))
    chosen = [_Metric.parse(name) for name in metrics]
    sample.require_gains()
    if places is None:
        places = PairPlaces.find(similarity, sample, seed)
    sample.require_all(
        *similarity.shape,
        remedy="give every pair a chance, as draw_pool does, and scores of these pairs alone",
    )
    placed = _PlacedPairs.of(places, similarity.shape, sample)
    by_metric: dict[str, QueryValues] = {}
    for graded in (True, False):
        some = [metric for metric in chosen if metric.graded == graded]
        if some:
            gains = placed if graded else placed.of_relevant(above)
            by_metric |= _estimate_queries(gains, some, np.random.default_rng(seed))
    return {name: by_metric[name] for name in metrics}


@dataclass(frozen=True)
class PairPlaces:
    """Pairs of a sample by query and place: the query, the place in its ranking from 0, and the row
    in the sample, all int64 [n]. Samples of the same pairs have them in common."""

    query: Array
    place: Array
    row: Array

    @classmethod
    def find(cls, similarity: Array, sample: Pairs, seed: int) -> PairPlaces:
        """Tied candidates are put in a random order. InputError for pairs outside the scores, and
        for one that is judged twice."""
        queries, width = similarity.shape
        sides = ("query", sample.image, queries), ("item", sample.caption, width)
        for what, values, size in sides:
            if not len(values) or values.min() < 0 or values.max() >= size:
                problem = (
                    f"a pair of the sample has its {what} outside the {queries} x {width} scores"
                )
                raise InputError(problem, remedy="give rows and columns of the scores")
        cells = np.sort(sample.image * width + sample.caption)
        if (cells[1:] == cells[:-1]).any():
            remedy = "give it one gain, such as the mean of its judges"
            raise InputError("a pair is judged twice", remedy=remedy)
        row = np.argsort(sample.image, kind="stable")
        query = sample.image[row]
        first = np.searchsorted(query, np.arange(queries + 1))
        lists = Positives(first, sample.caption[row], np.zeros(queries, np.int64))
        above, tied = place_pairs(similarity, lists)
        place = above + _drawn_offsets(query, above, tied, np.random.default_rng(seed))
        within = np.argsort(query * width + place)
        return cls(query[within], place[within], row[within])


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
    def of(cls, places: PairPlaces, shape: tuple[int, int], sample: Pairs) -> _PlacedPairs:
        """The pairs of a sample, at their places."""
        row = places.row
        columns = np.asarray(sample.value, np.float64)[row], sample.weight[row], sample.limits[row]
        return cls(*shape, places.query, places.place, *columns, row)

    def of_relevant(self, above: float) -> _PlacedPairs:
        """The same with gains of 0 and 1."""
        gain, most = ((values > above).astype(np.float64) for values in (self.gain, self.most))
        return replace(self, gain=gain, most=most)

    @cached_property
    def unsure(self) -> Array:
        """bool [n]: stands for others too."""
        return np.asarray(self.weight > 1)

    @cached_property
    def weight_group(self) -> Array:
        """Pairs of like weight, by the logarithm of it, int64 [n]."""
        return np.log2(self.weight).astype(np.int64)

    @cached_property
    def drawn(self) -> Array:
        """The rows of pairs with a gain, int [found]."""
        return np.flatnonzero(self.gain > 0)

    @cached_property
    def found(self) -> _Found:
        """These pairs."""
        rows = self.drawn
        return _Found(self.queries, self.query[rows], self.place[rows], self.gain[rows])


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
    values, *moved = _score(placed.width, metrics, found, weights)
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
    """Pairs with a gain, by query and place: the number of queries, and query, place and gain, all
    [n]."""

    queries: int
    query: Array
    place: Array
    gain: Array

    @classmethod
    def sort(
        cls, queries: int, query: Array, place: Array, gain: Array, *more: Array
    ) -> tuple[_Found, list[Array]]:
        """From pairs in any order, and more columns in theirs."""
        order = np.lexsort((place, query))
        found = cls(queries, query[order], place[order], gain[order])
        return found, [column[order] for column in more]

    @cached_property
    def start(self) -> Array:
        """Where the pairs of each query begin, int64 [queries + 1]."""
        return np.searchsorted(self.query, np.arange(self.queries + 1))

    @cached_property
    def by_gain(self) -> Array:
        """The rows of each query by gain, falling, int64 [n]."""
        order = np.empty(len(self.gain), np.int64)
        in_threads(_sort_by_gain, self.queries, self.start, self.gain, order)
        return order


@dataclass(frozen=True)
class _World:
    """Queries as those of the sample might be, when every pair is judged: found pairs, and the
    weight of each in a sample of them, 0 where it is not drawn."""

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
        columns = map(np.concatenate, zip(*parts, strict=True))
        found, (weight,) = _Found.sort(queries, *columns)
        return cls(placed.width, found, weight)

    def biases(self, metrics: Sequence[_Metric]) -> dict[str, tuple[float, float, float]]:
        """By how much the plug-in of each metric exceeds the true value, and the standard error of
        that; and how much the mean would rise if each query without a relevant pair had one, as
        those have of which none is drawn."""
        weights = [self.weight.__getitem__, np.ones(len(self.weight)).__getitem__]
        estimated, true = _score(self.width, metrics, self.found, weights)
        errors, queries = estimated - true, self.found.queries
        noise = errors.std(axis=1) / np.sqrt(queries)
        has, drawn = (
            np.bincount(self.found.query[rows], minlength=queries) > 0
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
    group = placed.weight_group * 2 + inside
    found = placed.found
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
    unsure_group = group[unsure]
    found_in = np.bincount(unsure_group, placed.gain[unsure] > 0)
    for number in np.flatnonzero((np.bincount(unsure_group) > 0) & (found_in < _FEW)):
        rows, relevant = np.flatnonzero(unsure & (group == number)), int(found_in[number])
        mixed = random.permutation(rows)
        # One of each query: what is written last stays, the first of the order.
        chosen = np.full(placed.queries, -1)
        chosen[placed.query[mixed[::-1]]] = mixed[::-1]
        query = np.flatnonzero(chosen >= 0)
        rows_added, asked = chosen[query], len(query)
        gain = np.minimum(typical, placed.most[rows_added])
        query, rows_added, gain = (column[gain > 0] for column in (query, rows_added, gain))
        added = _Found(placed.queries, query, placed.place[rows_added], gain)
        weights = [placed.weight[placed.drawn].__getitem__]
        changed = _score(placed.width, [metric], found, weights, added)[0, 0]
        change = float((changed - values).sum()) / asked
        limit = gammaincinv(relevant + 1, _LEVEL) - relevant
        stands_for = float(placed.weight[rows].mean())
        others = min(limit * stands_for, float((placed.weight[rows] - 1).sum()))
        part = others * change / placed.queries
        moved[int(number) // 2, bool(number % 2)] = part
        if abs(part) > largest:
            largest = abs(part)
            words = (
                f"{relevant} of {len(rows):,} judged pairs are relevant where one stands for"
                f" {stands_for:,.0f}"
            )
    return moved, words


_Weights = Sequence[Callable[[slice], Array]]  # of some rows of found pairs, each


def _score(
    width: int,
    metrics: Sequence[_Metric],
    found: _Found,
    weights: _Weights,
    added: _Found | None = None,
) -> Array:
    """Each metric of each query, float64 [weights, metrics, queries], where found pairs count as
    each of `weights` says. Either all metrics add up gains, or none does. `added` has more pairs,
    at most one a query, that count as 1."""
    values = np.zeros((len(weights), len(metrics), found.queries))
    if all(metric.graded for metric in metrics):
        _add_up_gains(metrics, found, weights, added, values)
    else:
        _count_hits(width, metrics, found, weights, added, values)
    return values


def _add_up_gains(
    metrics: Sequence[_Metric],
    found: _Found,
    weights: _Weights,
    added: _Found | None,
    values: Array,
) -> None:
    """`_score` of metrics that add up gains, into `values`."""
    place, more = np.zeros(found.queries, np.int64), np.zeros(found.queries)
    if added is not None:
        place[added.query], more[added.query] = added.place, added.gain
    linear = found.gain, more
    exponential = linear
    if any(metric.kind == "ndcg_exp" for metric in metrics):
        exponential = 2.0**found.gain - 1, 2.0**more - 1
    for weight, by_metric in zip(weights, values, strict=True):
        columns = found.start, found.by_gain, found.place, weight(slice(None)), place
        for metric, out in zip(metrics, by_metric, strict=True):
            gains = exponential if metric.kind == "ndcg_exp" else linear
            in_threads(_add_up, found.queries, *columns, *gains, metric.discounts, out)


@njit(cache=True, nogil=True)
def _sort_by_gain(begin, end, start, gain, order):
    """The rows of each query by gain, falling."""
    for query in range(begin, end):
        first, stop = start[query], start[query + 1]
        order[first:stop] = first + np.argsort(-gain[first:stop], kind="mergesort")


@njit(cache=True, nogil=True)
def _add_up(begin, end, start, order, place, count, at, gain, more, discounts, out):
    """The gains found at the first k places, by discounts [k], over those of the best order; 0
    where there are none.

    Pairs of query q, start[q] to start[q + 1], are in the order of places, and in `order` by gain.
    One more of a gain more[q], if that is not 0, is at place at[q]. In the best order a pair takes
    as many places as it counts, also parts of them. It ends at place k, which few pairs reach.
    """
    k = len(discounts)
    for query in range(begin, end):
        first, stop, extra = start[query], start[query + 1], more[query]
        found = extra * discounts[at[query]] if at[query] < k else 0.0
        for row in range(first, stop):
            if place[row] >= k:
                break
            found += gain[row] * count[row] * discounts[place[row]]
        best, filled, whole, next_row = 0.0, 0.0, 0, first  # `whole` places are filled to the end
        while whole < k and (next_row < stop or extra > 0):
            if next_row == stop or (extra > 0 and extra > gain[order[next_row]]):
                pair_gain, size, extra = extra, 1.0, 0.0
            else:
                pair_gain, size = gain[order[next_row]], count[order[next_row]]
                next_row += 1
            reaches, taken = filled + size, 0.0
            while whole < k and reaches >= whole + 1:
                taken += (whole + 1 - filled) * discounts[whole]
                whole += 1
                filled = np.float64(whole)
            if whole < k:
                taken += (reaches - filled) * discounts[whole]
                filled = reaches
            best += pair_gain * taken
        out[query] = found / best if best > 0 else 0.0


def _count_hits(
    width: int,
    metrics: Sequence[_Metric],
    found: _Found,
    weights: _Weights,
    added: _Found | None,
    values: Array,
) -> None:
    """`_score` of metrics of what is relevant, into `values`, by blocks of queries on threads."""
    if added is not None:
        both = (found.query, added.query), (found.place, added.place), (found.gain, added.gain)
        counts = (np.append(weight(slice(None)), np.ones(len(added.query))) for weight in weights)
        found, columns = _Found.sort(found.queries, *map(np.concatenate, both), *counts)
        weights = [column.__getitem__ for column in columns]
    start, sizes = found.start, np.diff(found.start)

    def score(block: slice) -> None:
        part = slice(start[block.start], start[block.stop])
        row = found.query[part] - block.start
        at = row, np.arange(part.start, part.stop) - start[block][row]
        shape = block.stop - block.start, max(1, int(sizes[block].max()))
        place, table = np.full(shape, width), np.zeros(shape)
        place[at] = found.place[part]
        for weight, by_metric in zip(weights, values, strict=True):
            table[at] = weight(part)
            pairs = _Pairs(place, table)
            for metric, out in zip(metrics, by_metric, strict=True):
                out[block] = metric.of(pairs)

    with ThreadPoolExecutor(get_num_threads()) as pool:
        for _ in pool.map(score, _blocks(sizes)):
            pass


def _blocks(sizes: Array) -> Iterator[slice]:
    """As many queries as fit, each as wide as the one with the most pairs."""
    start = 0
    while start < len(sizes):
        wide = np.maximum.accumulate(sizes[start : start + _CELLS])
        stop = start + max(1, int((wide * np.arange(1, len(wide) + 1) <= _CELLS).sum()))
        yield slice(start, stop)
        start = stop


@dataclass(frozen=True)
class _Pairs:
    """Found pairs of queries [b, P], by place: place, and how many relevant pairs each counts
    as."""

    place: Array
    count: Array

    @cached_property
    def relevant(self) -> Array:
        """How many are relevant, [b]."""
        return self.count.sum(axis=1)

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

    @property
    def discounts(self) -> Array:
        """The weights of the first K places, of a metric that adds up gains, [K]."""
        return np.ones(self.k) if self.kind == "ncs" else 1 / np.log2(np.arange(self.k) + 2.0)

    def of(self, pairs: _Pairs) -> Array:
        """The plug-in of each query of a metric that adds up no gains: Horvitz and Thompson's
        estimates in place of sums, [b]."""
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


_GRADED = ("ndcg", "ndcg_exp", "ncs")
_BINARY = ("recall", "r", "precision")
_WITHOUT_K = ("map", "map@r", "r_precision")
