"""Metrics from a sample of judged pairs, each with its probability of being judged; intervals hold
queries and sample.

What was not judged is drawn, a few times, from judged pairs of other queries at like ranks, and the
metric of the completed ranking is taken. Then each judged pair corrects what was drawn: it stands
for itself and 1 / probability - 1 others, so it counts that often by how much the metric changes
when its own gain is drawn as well. So what is linear in the gains is Horvitz and Thompson's
estimate, unbiased whatever is drawn (as statAP and infNDCG have it: Aslam and Pavlu 2007; Yilmaz,
Kanoulas and Aslam 2008), and ratios are unbiased to the first order (augmented inverse probability
weights: Robins, Rotnitzky and Zhao 1994). Queries differ in how much is relevant to them: a gamma
factor of each drawing, whose variance comes from products of two judged pairs of one query, carries
that over to what is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from capgrade.metrics.base import (
    Matrix,
    Positives,
    as_numpy,
    check_choice,
    check_k,
    check_matrix,
    share,
)
from capgrade.metrics.ranking import Array, as_rankable, rank
from capgrade.metrics.uncertainty import resampled_means, share_interval, tails
from capgrade.schemas.errors import InputError

_COMPLETIONS = 8  # of each query
_FOLDS = 5  # a query is completed from those of other folds
_BANDS, _IN_BAND = 20, 50  # bands of ranks at most, and judged pairs of each at least
_CLASSES, _IN_CLASS = 8, 200  # the same of classes of queries, in each band
_BEST = 25  # pairs a query of high gain, by which it is told how queries differ
_TABLE = 4096  # gains of a band that are drawn from
_CELLS = 1_000_000  # of a block of scores that is ranked at a time
_READ = 2**26  # cells of a block that is read at a time: 256 MB
_SAMPLES = 2000  # bootstrap draws of the queries


class WeightedLabels(Protocol):
    """What `JudgedSample.from_labels` takes: `capgrade.Labels`."""

    @property
    def file(self) -> Any: ...
    @property
    def image_ids(self) -> list[str]: ...
    @property
    def n_captions(self) -> int: ...
    @property
    def stored(self) -> Any: ...
    def choose_measure(self, measure: str | None) -> str: ...


@dataclass(frozen=True)
class JudgedSample:
    """Judged pairs: query and item int [n] (row and column of the scores), gain float [n], at least
    0, and the probability in (0, 1] with which each pair was chosen to be judged, float [n].

    InputError for columns that do not fit, for other values, and for a pair that is there twice.

    >>> pairs = JudgedSample(np.array([0, 0]), np.array([1, 2]), np.array([1.0, 0.0]),
    ...     np.array([1.0, 0.5]))
    >>> pairs.weight
    array([1., 2.])
    """

    query: Array
    item: Array
    gain: Array
    probability: Array

    def __post_init__(self) -> None:
        sizes = [
            np.shape(column) for column in (self.query, self.item, self.gain, self.probability)
        ]
        if len(set(sizes)) > 1 or len(sizes[0]) != 1:
            raise InputError(
                f"columns of the shapes {sizes}", remedy="give four columns of one length"
            )
        if not (np.isfinite(self.gain).all() and (np.asarray(self.gain) >= 0).all()):
            raise InputError(
                "a gain is below 0 or no number", remedy="give finite gains of at least 0"
            )
        if not ((self.probability > 0) & (self.probability <= 1)).all():
            raise InputError(
                "a probability is outside (0, 1]", remedy="give that with which the pair was chosen"
            )
        order = np.lexsort((self.item, self.query))
        query, item = np.asarray(self.query)[order], np.asarray(self.item)[order]
        if ((np.diff(query) == 0) & (np.diff(item) == 0)).any():
            raise InputError(
                "a pair is judged twice", remedy="give it one gain, such as the mean of its judges"
            )

    @classmethod
    def certain(cls, own: Positives, gain: float = 1.0) -> JudgedSample:
        """Pairs whose gain is known without a judge, such as those of the own items."""
        gains = np.full(len(own.indices), gain)
        return cls(own.queries, own.indices, gains, np.ones(len(gains)))

    @classmethod
    def from_labels(cls, labels: WeightedLabels, measure: str | None = None) -> JudgedSample:
        """What is known of labels, images as queries: a pair of a shard was kept with probability 1
        / weight. Relevance below 0 is a gain of 0.

        InputError for another measure, for one that scores some pairs alone, and for weights that
        do not add up to all pairs: some had no chance.

        >>> import capgrade
        >>> labels = capgrade.Labels.load("dataset")
        >>> sample = JudgedSample.from_labels(labels, "cider")
        >>> bool(abs(sample.weight.sum() / (len(labels.image_ids) * labels.n_captions) - 1) < 0.1)
        True
        """
        name = labels.choose_measure(measure)
        if labels.stored.partial(name):
            problem = f"{name} scores some pairs alone, and no weights tell of the others"
            remedy = "evaluate by a measure of every pair"
            raise InputError(problem, file=labels.file, remedy=remedy)
        parts = list(labels.stored.pairs(name))
        image, caption, value, weight = (
            np.concatenate(columns) for columns in zip(*parts, strict=True)
        )
        _require_all_pairs(
            weight,
            (len(labels.image_ids), labels.n_captions),
            file=labels.file,
            remedy="make shards with a chance for every pair: shards.uniform of 1 or more",
        )
        return cls(image, caption, np.maximum(value, 0), 1 / weight)

    def of(self, queries: Array, items: Array) -> JudgedSample:
        """The pairs among these queries and items, int, numbered by their places there."""
        rows, columns = (
            np.full(max(all_numbers.max(initial=0), kept_numbers.max(initial=0)) + 1, -1)
            for all_numbers, kept_numbers in ((self.query, queries), (self.item, items))
        )
        rows[queries], columns[items] = np.arange(len(queries)), np.arange(len(items))
        kept = (rows[self.query] >= 0) & (columns[self.item] >= 0)
        query, item = rows[self.query[kept]], columns[self.item[kept]]
        return JudgedSample(query, item, self.gain[kept], self.probability[kept])

    def __add__(self, other: JudgedSample) -> JudgedSample:
        names = ("query", "item", "gain", "probability")
        return JudgedSample(
            *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names)
        )

    @property
    def weight(self) -> Array:
        """How many pairs each stands for, itself included, float64 [n]."""
        return 1 / np.asarray(self.probability, np.float64)

    def transposed(self) -> JudgedSample:
        """The same pairs for the other direction of retrieval."""
        return JudgedSample(self.item, self.query, self.gain, self.probability)


@dataclass(frozen=True)
class Estimate:
    """A metric's value, its interval over both chances, and the standard error by the sampling of
    pairs alone."""

    value: float
    low: float
    high: float
    sampling_error: float


@dataclass(frozen=True)
class Places:
    """The difference of two systems, and the probability that they change places: that the one
    behind is ahead."""

    difference: Estimate
    change: float


def estimate(
    scores: Matrix,
    sample: JudgedSample,
    metrics: Sequence[str] = ("recall@1", "ndcg@25", "map@r"),
    *,
    above: float = 0.0,
    level: float = 0.95,
    seed: int = 0,
    groups: Array | None = None,
) -> dict[str, Estimate]:
    """Metrics of scores [Q, N] over all their pairs, from a judged sample of these: recall@K (is
    any relevant among the first K), r@K, precision@K, map@r, r_precision, ndcg@K, ndcg_exp@K,
    ncs@K. Relevant is a gain over `above`.

    recall@K and precision@K are exact where the first K are judged for certain. A query without a
    relevant item counts as 0. Tied scores are put in a random order. Rows of one group int [Q]
    (captions of an image) are drawn together. docs/metrics.md has how often the intervals hold.

    >>> every = JudgedSample(np.array([0, 0]), np.array([0, 1]), np.array([0.0, 1.0]), np.ones(2))
    >>> round(estimate(np.array([[0.9, 0.2]]), every, ["ndcg@2"])["ndcg@2"].value, 4)
    0.6309
    """
    by_metric = query_values(scores, sample, metrics, above=above, seed=seed)
    return {name: values.estimate(level, groups) for name, values in by_metric.items()}


def change_places(
    scores_a: Matrix,
    scores_b: Matrix,
    sample: JudgedSample,
    metric: str = "map@r",
    *,
    above: float = 0.0,
    level: float = 0.95,
    seed: int = 0,
    groups: Array | None = None,
) -> Places:
    """The difference a - b of two systems by one sample, and the share of bootstrap draws of
    queries and sample in which its sign is the other one; options as `estimate` has them.

    >>> every = JudgedSample(np.array([0, 0]), np.array([0, 1]), np.array([0.0, 1.0]), np.ones(2))
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
    """`change_places` of two systems' query values. InputError for two numbers of queries."""
    if first.values.shape != second.values.shape:
        raise InputError(
            "the systems have other numbers of queries", remedy="score the same queries with both"
        )
    gap = QueryValues(first.values - second.values, first.changes - second.changes, first.weight)
    drawn = resampled_means(gap.values, samples=_SAMPLES, seed=seed, groups=groups)
    low, high = np.quantile(drawn, tails(level))
    difference = Estimate(float(gap.values.mean()), float(low), float(high), gap.sampling_error)
    drawn = drawn * np.sign(difference.value)
    return Places(difference, float((drawn < 0).mean() + (drawn == 0).mean() / 2))


@dataclass(frozen=True)
class QueryValues:
    """A metric's estimate of each query, float64 [Q]; how much each judged pair changes it, and its
    weight, float64 [n]. Values of single queries may leave [0, 1]; their mean is what is estimated.
    """

    values: Array
    changes: Array
    weight: Array

    def estimate(self, level: float, groups: Array | None) -> Estimate:
        """Of the mean, with its interval."""
        low, high = share_interval(self.values, level, groups)
        return Estimate(float(self.values.mean()), low, high, self.sampling_error)

    @property
    def sampling_error(self) -> float:
        """Of the mean, by Poisson sampling: (1 - p) / p^2."""
        variance = ((self.weight - 1) * self.weight) @ self.changes**2
        return float(np.sqrt(variance)) / len(self.values)


def query_values(
    scores: Matrix,
    sample: JudgedSample,
    metrics: Sequence[str],
    *,
    above: float = 0.0,
    seed: int = 0,
) -> dict[str, QueryValues]:
    """Each metric's estimate of every query. InputError for an unknown metric, for pairs outside
    the scores, and for a sample whose weights do not add up to their number of pairs."""
    check_matrix("similarity", similarity := as_numpy(scores))
    chosen = {name: _parse_metric(name) for name in metrics}
    _check_sample(sample, *similarity.shape)
    order = np.argsort(sample.query, kind="stable")
    placed = _PlacedPairs.rank(similarity, sample, order, np.random.default_rng(seed))
    by_metric: dict[str, QueryValues] = {}
    for graded in (True, False):
        functions = {
            name: function for name, (of_gains, function) in chosen.items() if of_gains == graded
        }
        gain = placed.gain if graded else (placed.gain > above).astype(np.float64)
        values, changes = (
            _estimate_queries(placed, gain, functions, np.random.default_rng(seed))
            if functions
            else ({}, {})
        )
        for name in functions:
            by_metric[name] = QueryValues(values[name], np.empty(len(order)), sample.weight)
            by_metric[name].changes[order] = changes[name]
    return {name: by_metric[name] for name in metrics}


@dataclass(frozen=True)
class _PlacedPairs:
    """Judged pairs query by query: the place of each in its query's ranking, from 0, gain and
    weight, all [n]."""

    width: int  # candidates
    first: Array  # (queries + 1,)
    query: Array
    place: Array
    gain: Array
    weight: Array

    @classmethod
    def rank(
        cls, similarity: Array, sample: JudgedSample, order: Array, random: np.random.Generator
    ) -> _PlacedPairs:
        query, item = sample.query[order], sample.item[order]
        first = np.searchsorted(query, np.arange(len(similarity) + 1))
        place, where = np.empty(len(query), np.int64), np.empty(similarity.shape[1], np.int64)
        for q, ranked in _rankings(similarity, random):
            where[ranked] = np.arange(len(where))
            place[first[q] : first[q + 1]] = where[item[first[q] : first[q + 1]]]
        return cls(
            len(where),
            first,
            query,
            place,
            np.asarray(sample.gain[order], np.float64),
            sample.weight[order],
        )


def _rankings(similarity: Array, random: np.random.Generator) -> Iterator[tuple[int, Array]]:
    """Each query, and its candidates from best to worst, tied ones in a random order. The matrix is
    read in blocks, so that one in a file is never in memory whole."""
    width = similarity.shape[1]
    # A block of columns of a file is as wide as may be, as each reads something of every page.
    wide, step = max(1, _READ // width), max(1, _CELLS // width)
    for first in range(0, len(similarity), wide):
        block = as_rankable(similarity[first : first + wide])
        if np.isnan(block).any():
            raise InputError(
                "similarity holds NaN", remedy="find the pair that has no score and score it"
            )
        for start in range(0, len(block), step):
            ranking = rank(block[start : start + step])
            for q, (order, end) in enumerate(zip(ranking.order, ranking.end, strict=True)):
                if (end[:-1] > np.arange(1, width)).any():
                    order = order[np.lexsort((random.random(width), end))]
                yield first + start + q, order


def _check_sample(sample: JudgedSample, queries: int, width: int) -> None:
    for what, values, size in (("query", sample.query, queries), ("item", sample.item, width)):
        if not len(values) or values.min() < 0 or values.max() >= size:
            problem = f"a pair of the sample has its {what} outside the {queries} x {width} scores"
            raise InputError(problem, remedy="give rows and columns of the scores")
    _require_all_pairs(
        sample.weight,
        (queries, width),
        remedy="give every pair a chance, as draw_pool does, and scores of these pairs alone",
    )


def _require_all_pairs(weight: Array, shape: tuple[int, int], **error: Any) -> None:
    """InputError where judged pairs of these weights do not stand for all pairs."""
    pairs = shape[0] * shape[1]
    if abs(weight.sum() - pairs) > 1 + 6 * np.sqrt(((weight - 1) * weight).sum()):
        problem = (
            f"the judged pairs stand for {weight.sum():,.0f} of {pairs:,} pairs"
            f" ({shape[0]:,} x {shape[1]:,})"
        )
        raise InputError(problem, **error)


@dataclass(frozen=True)
class _Completions:
    """Gains of completed rankings of a query, [completions, N] from best to worst, and exchanges of
    single ones: the completion, the place in it and the new gain, all [f]. No graded metric reads
    more than `most` of the best gains."""

    gains: Array
    row: Array
    place: Array
    new: Array
    most: int

    @cached_property
    def best(self) -> tuple[Array, Array]:
        """The highest `most` gains and one more, falling, 0 where there are fewer: of each
        completion, and after each exchange."""
        best = np.zeros((len(self.gains), self.most + 1))
        last = min(self.most, self.gains.shape[1] - 1)
        # Of the negative: partition takes ten times as long where most values are the smallest.
        least = np.partition(-self.gains, last, axis=1)[:, : last + 1]
        best[:, : last + 1] = -np.sort(least, axis=1)
        # The old gain leaves the best ones. If it is not among them, the last of them leaves, which
        # no metric reads.
        after, old = best[self.row], self.gains[self.row, self.place]
        leaves = np.minimum((after > old[:, None]).sum(axis=1), self.most)
        after[np.arange(len(after)), leaves] = self.new
        return best, -np.sort(-after, axis=1)


def _estimate_queries(
    placed: _PlacedPairs, gain: Array, metrics: dict[str, _Metric], random: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array]]:
    """For each metric the estimate of each query, and how much each judged pair changes it."""
    queries = len(placed.first) - 1
    edges, classes, tables = _donor_gains(placed, gain, random)
    band = np.searchsorted(edges, np.arange(placed.width), side="right")
    high = _high_gain(placed, gain)
    rates = (tables >= high).mean(axis=3)
    expected = rates[placed.query % _FOLDS, classes[placed.query], band[placed.place]]
    spread = _spread_of_queries(
        placed, (gain >= high).astype(np.float64), expected, band[placed.place]
    )
    binary = bool(np.isin(gain, (0, 1)).all())
    most = min(placed.width, max(metric.keywords.get("k", 0) for metric in metrics.values()))
    values = {name: np.empty(queries) for name in metrics}
    changes = {name: np.empty(len(gain)) for name in metrics}
    for q in range(queries):
        pairs = slice(placed.first[q], placed.first[q + 1])
        place, weight = placed.place[pairs], placed.weight[pairs]
        table = tables[q % _FOLDS, classes[q]]
        completed = _draw_gains(table, band, np.ones((_COMPLETIONS, 1)), spread, random)
        row, judged, instead, chance = _draw_exchanges(
            table, band[place], gain[pairs], weight, spread, binary, random
        )
        completed[:, place] = gain[pairs]
        completions = _Completions(completed, row, place[judged], instead, most)
        for name, metric in metrics.items():
            scores, exchanged = metric(completions)
            change = (
                np.bincount(judged, chance * (scores[row] - exchanged), len(place)) / _COMPLETIONS
            )
            values[name][q] = scores.mean() + (weight - 1) @ change
            changes[name][pairs] = change
    return values, changes


def _donor_gains(
    placed: _PlacedPairs, gain: Array, random: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Places at which another band of ranks begins; the class of each query, by the gains that it
    has for certain; and gains to draw from, rising, float64 [folds, classes, bands, `_TABLE`]:
    those of the pairs that stand for unjudged ones, as often as they do, of queries of other folds.
    """
    donors, certain = np.flatnonzero(placed.weight > 1), placed.weight == 1
    queries = len(placed.first) - 1
    if not len(donors):  # all is judged
        return np.zeros(0, np.int64), np.zeros(queries, np.int64), np.zeros((_FOLDS, 1, 1, 1))
    bands = int(np.clip(len(donors) // _IN_BAND, 1, _BANDS))
    edges = np.unique(
        np.quantile(placed.place[donors], np.arange(1, bands) / bands, method="higher")
    )
    edges = edges[edges > placed.place[donors].min()]  # else the first band would have no donors
    band = np.searchsorted(edges, placed.place[donors], side="right")
    certain_gain = np.bincount(placed.query[certain], gain[certain], queries)
    parts = int(np.clip(len(donors) // (bands * _IN_CLASS), 1, _CLASSES))
    cuts = np.unique(np.quantile(certain_gain, np.arange(1, parts) / parts, method="higher"))
    classes = np.searchsorted(cuts, certain_gain, side="right")
    fold, class_of = placed.query[donors] % _FOLDS, classes[placed.query[donors]]
    tables = np.empty((_FOLDS, len(cuts) + 1, len(edges) + 1, _TABLE))
    for cell in np.ndindex(*tables.shape[:3]):
        inside = band == cell[2]
        for source in (
            inside & (class_of == cell[1]) & (fold != cell[0]),
            inside & (fold != cell[0]),
            inside,
        ):
            if source.any():  # the last is not empty, and the others are only of a few queries
                break
        share_of = placed.weight[donors[source]] - 1
        tables[cell] = np.sort(
            random.choice(gain[donors[source]], _TABLE, p=share_of / share_of.sum())
        )
    return edges, classes, tables


def _high_gain(placed: _PlacedPairs, gain: Array) -> float:
    """The gain that `_BEST` pairs a query reach, and the least gain above 0 if fewer pairs have
    any. Queries differ more in their best gains than in the mean."""
    order = np.argsort(-gain, kind="stable")
    reached = placed.weight[order].cumsum() <= _BEST * (len(placed.first) - 1)
    least = gain[order][min(int(reached.sum()), len(gain) - 1)]
    positive = gain[gain > 0]
    return float(max(least, positive.min() if len(positive) else 1.0))


def _spread_of_queries(placed: _PlacedPairs, gain: Array, expected: Array, band: Array) -> float:
    """The variance of the factor by which queries differ in their number of pairs of high gain.

    Products of two judged pairs of one query estimate it: those of gain less expected gain, divided
    by those of expected gain. A gain is expected by its rank."""
    unsure = placed.weight > 1
    # Shards keep a pair by its value too, so within a band a pair counts by what it stands for.
    pairs, total = (np.bincount(band, weights) for weights in (unsure, placed.weight - 1))
    relative = (placed.weight - 1) * share(pairs, total)[band]

    def products(values: Array) -> float:
        sums, squares = (
            np.bincount(placed.query[unsure], power[unsure], len(placed.first) - 1)
            for power in (values, values**2)
        )
        return float((sums**2 - squares).sum())

    total_expected = products(relative * expected)
    return (
        max(0.0, products(relative * (gain - expected)) / total_expected)
        if total_expected > 0
        else 0.0
    )


def _draw_gains(
    table: Array, band: Array, factors: Array, spread: float, random: np.random.Generator
) -> Array:
    """Draw gains for places of these bands, float64 [completions, len(band)]. A factor f turns the
    probability p of reaching a gain into 1 - (1 - p)^f, about f p where p is small."""
    uniform = random.random((len(factors), len(band)), np.float32)
    if spread > 0:
        uniform **= (1 / np.maximum(random.gamma(1 / spread, spread, factors.shape), 1e-3)).astype(
            np.float32
        )
    return table[band, np.minimum(uniform * table.shape[1], table.shape[1] - 1).astype(np.int64)]


def _draw_exchanges(
    table: Array,
    band: Array,
    gain: Array,
    weight: Array,
    spread: float,
    binary: bool,
    random: np.random.Generator,
) -> tuple[Array, Array, Array, Array]:
    """Gains that might have been drawn in place of judged ones, band int and gain [n]: the
    completion, the pair, the other gain and its chance, all [f].

    Where gains are 0 and 1 there is one other gain, with the chance that `_draw_gains` gives it.
    Drawing a rare gain and weighting it would make most of the error. Graded gains are drawn.
    """
    unsure = np.flatnonzero(weight > 1)
    if binary:
        right = _chance_of_gain(table.mean(axis=1), spread)[band[unsure]]
        row, pair = np.repeat(np.arange(_COMPLETIONS), len(unsure)), np.tile(unsure, _COMPLETIONS)
        other, chance = 1 - gain[pair], np.tile(right, _COMPLETIONS)
        return row, pair, other, np.where(other == 1, chance, 1 - chance)
    # A factor of its own for each: with that of its completion it would count twice that
    # queries differ.
    drawn = _draw_gains(table, band, np.ones((_COMPLETIONS, len(band))), spread, random)
    row, pair = np.nonzero((drawn != gain) & (weight > 1))
    return row, pair, drawn[row, pair], np.ones(len(row))


def _chance_of_gain(probability: Array, spread: float) -> Array:
    """The chance of any gain when `_draw_gains` draws it: the mean of 1 - (1 - p)^f over f."""
    if spread == 0:
        return probability
    with np.errstate(divide="ignore"):
        return 1 - (1 - spread * np.log1p(-probability)) ** (-1 / spread)


# A metric's values of completed rankings [completions], and with each gain exchanged [f]; a partial
# function that keeps the metric's k, if it has one.
_Metric: TypeAlias = "partial[tuple[Array, Array]]"


def _score_against_best(of: _Completions, k: int, form: str) -> tuple[Array, Array]:
    """The gains of the first k over those of the best order: NCS, or discounted by place."""
    k = min(k, of.gains.shape[1])
    weights = np.ones(k) if form == "ncs" else 1 / np.log2(np.arange(k) + 2.0)
    first, old, new = of.gains[:, :k], of.gains[of.row, of.place], of.new
    best, exchanged = (gains[:, :k] for gains in of.best)
    if form == "ndcg_exp":
        first, old, new, best, exchanged = (
            2.0**gains - 1 for gains in (first, old, new, best, exchanged)
        )
    retrieved = first @ weights
    change = np.append(weights, 0)[np.minimum(of.place, k)] * (new - old)
    return share(retrieved, best @ weights), share(retrieved[of.row] + change, exchanged @ weights)


def _score_first(of: _Completions, k: int, form: str) -> tuple[Array, Array]:
    """Of gains 0 and 1: is any among the first k (recall), how many of these are (precision), how
    many of all (r)."""
    counts, others = _count_relevant(of, k)
    if form == "recall":
        return np.minimum(counts, 1), np.minimum(others, 1)
    if form == "precision":
        return counts / k, others / k
    every, every_other = _count_relevant(of, of.gains.shape[1])
    return share(counts, every), share(others, every_other)


def _count_relevant(of: _Completions, k: int) -> tuple[Array, Array]:
    """How many of the first k are relevant."""
    counts = of.gains[:, :k].sum(axis=1)
    change = of.new - of.gains[of.row, of.place]
    return counts, counts[of.row] + change * (of.place < k)


def _score_first_r(of: _Completions, form: str) -> tuple[Array, Array]:
    """Of gains 0 and 1, R of which are 1: the relevant among the first R, times the precision there
    or not, over R."""
    sizes, others = _count_relevant(of, of.gains.shape[1])
    depth = int(max(sizes.max(), others.max(initial=0), 1))
    first = of.gains[:, :depth]
    exchanged = first[of.row]
    inside = np.flatnonzero(of.place < depth)
    exchanged[inside, of.place[inside]] = of.new[inside]
    place = np.arange(depth)

    def values(hits: Array, relevant: Array) -> Array:
        terms = hits * (hits.cumsum(axis=1) / (place + 1)) if form == "map@r" else hits
        return share((terms * (place < relevant[:, None])).sum(axis=1), relevant)

    return values(first, sizes), values(exchanged, others)


_GRADED = ("ndcg", "ndcg_exp", "ncs")
_BINARY = ("recall", "r", "precision")
_TO_R = ("map@r", "r_precision")


def _parse_metric(name: str) -> tuple[bool, _Metric]:
    """Whether a metric of this name adds up gains, and its function."""
    match = re.fullmatch(r"([a-z_]+)@(\d+)", name)
    kind = check_choice(
        "metric of a judged sample", match[1] if match else name, (*_GRADED, *_BINARY, *_TO_R)
    )
    if (match is None) != (kind in _TO_R):
        raise InputError(
            f"metric {name!r}", remedy=f"write {kind if kind in _TO_R else f'{kind}@K'}"
        )
    if match is None:
        return False, partial(_score_first_r, form=kind)
    return kind in _GRADED, partial(
        _score_against_best if kind in _GRADED else _score_first,
        k=check_k(int(match[2])),
        form=kind,
    )
