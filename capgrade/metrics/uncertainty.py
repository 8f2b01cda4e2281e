"""Intervals and paired tests: over queries, for means and medians of metrics, and of corpus scores.

A corpus score is not a mean over sentences (Koehn 2004): candidates are drawn and the sums of their
statistics scored. Document frequencies stay those of the whole corpus.

Draws come from a seed and the number of units alone. So functions that are called with the same of
both see the same draws, and their results may be added up, sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, logit, stdtrit

from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError, check_choice

METHODS = ("permutation", "bootstrap")
_CELLS = 4_000_000  # draws held at a time
_EQUAL = 1e-12  # values that differ by less are equal but for rounding
_LEAST_FREEDOM = 10  # where one query alone differs, the logit is wide enough


class CorpusScore(Protocol):
    """A score of all candidates together that is made of sums of what each brings."""

    @property
    def statistics(self) -> Array:
        """float64 [candidates, k]."""

    @property
    def of(self) -> Callable[[Array], Array]:
        """Corpus scores [n] of sums of statistics [n, k]."""

    @property
    def corpus(self) -> float:
        """The score of all candidates."""


@dataclass(frozen=True)
class Interval:
    """A corpus score and a percentile interval of it."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class PairedTest:
    """Difference a - b, its interval, the two-sided p-value, how many queries or candidates it is
    of, the least p-value that so many draws can give, and the p-value corrected for the tests that
    were made with this one."""

    difference: float
    low: float
    high: float
    p_value: float
    queries: int
    floor: float
    corrected: float


def resampled_means(
    values: Array, *, samples: int = 1000, seed: int = 0, groups: Array | None = None
) -> Array:
    """Means of `samples` bootstrap draws of the queries, (samples,) or (samples, m) for values (n,)
    or (n, m).

    All columns see the same draws. A NaN query is outside its metric, in the draws too. With
    `groups` int (n,), numbers from 0, groups are drawn with all their queries: captions of one
    image are not independent.
    """
    table = np.asarray(values, np.float64).reshape(len(values), -1)
    known = ~np.isnan(table)
    both = np.concatenate([np.where(known, table, 0.0), known], axis=1)
    if groups is not None:
        both, queries = np.zeros((int(groups.max()) + 1, both.shape[1])), both
        np.add.at(both, groups, queries)
    sums, counts = np.split(_resample_sums(both, samples, seed), 2, axis=1)
    with np.errstate(invalid="ignore"):
        return (sums / counts).reshape((samples, *np.shape(values)[1:]))


def resampled_medians(
    ranks: Array, *, samples: int = 1000, seed: int = 0, groups: Array | None = None
) -> Array:
    """The field's medr, floor of the median, of `samples` bootstrap draws of the queries; ranks
    (n,), groups as `resampled_means` has them."""
    values, counts = _count_values([np.asarray(ranks, np.float64)], groups)
    return np.concatenate(
        [
            _medians(values, drawn @ counts[0])
            for drawn in _draw_counts(samples, counts[0].shape[0], seed)
        ]
    )


def _count_values(systems: Sequence[Array], groups: Array | None) -> tuple[Array, list[csr_array]]:
    """The distinct values of all systems' queries, rising, and for each system a sparse matrix
    [units, values] of how often a unit has each value. A NaN query has no value."""
    groups = np.arange(len(systems[0])) if groups is None else groups
    has_value = [~np.isnan(values) for values in systems]
    distinct = np.unique(
        np.concatenate([values[known] for values, known in zip(systems, has_value, strict=True)])
    )
    shape = int(groups.max()) + 1, len(distinct)
    return distinct, [
        csr_array(
            (np.ones(known.sum()), (groups[known], np.searchsorted(distinct, values[known]))), shape
        )
        for values, known in zip(systems, has_value, strict=True)
    ]


def _medians(values: Array, counts: Array) -> Array:
    """Floored medians of samples that have each of the rising `values` so often: counts (samples,
    values)."""
    below = counts.cumsum(axis=1)
    if not below.shape[1]:
        return np.full(len(counts), np.nan)
    total = below[:, -1:]
    middle = [
        values[np.argmax(below > np.maximum(place, 0), axis=1)]
        for place in ((total - 1) // 2, total // 2)
    ]
    return np.where(total[:, 0] > 0, np.floor((middle[0] + middle[1]) / 2), np.nan)


def _draw_counts(samples: int, n: int, seed: int) -> Iterator[Array]:
    """How often each of n is drawn, float64 (some samples, n) after others; rows sum to n."""
    generator = np.random.default_rng(seed)
    for rows in _steps(samples, n):
        drawn = generator.integers(0, n, size=(rows, n), dtype=np.int32)
        # Each sample counts in a range of its own.
        drawn += np.arange(rows, dtype=np.int32)[:, None] * np.int32(n)
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def _steps(samples: int, n: int) -> list[int]:
    """How many samples of n are drawn at a time."""
    step = max(1, _CELLS // n)
    return [min(step, samples - start) for start in range(0, samples, step)]


def _resample_sums(statistics: Array, samples: int, seed: int) -> Array:
    """The sums (samples, k) of statistics (n, k) over bootstrap draws of their rows."""
    return np.concatenate(
        [weights @ statistics for weights in _draw_counts(samples, len(statistics), seed)]
    )


def interval(
    scored: CorpusScore, *, level: float = 0.95, samples: int = 1000, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of a corpus score."""
    low, high = np.quantile(
        scored.of(_resample_sums(scored.statistics, samples, seed)), tails(level)
    )
    return Interval(scored.corpus, float(low), float(high), level)


def paired(
    first: CorpusScore,
    second: CorpusScore,
    *,
    method: str = "permutation",
    level: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
) -> PairedTest:
    """Difference of two systems' corpus scores on the same images, its paired bootstrap interval,
    and the p-value.

    `permutation` is approximate randomisation (Riezler and Maxwell 2005): it exchanges their
    candidates at random and counts differences at least as large. `bootstrap` counts draws on the
    other side of 0, doubled. The p-value never is 0: (1 + count) / (1 + samples). InputError when
    they have different numbers of candidates.
    """
    check_choice("method", method, METHODS)
    if len(first.statistics) != len(second.statistics):
        problem = f"{len(first.statistics)} candidates against {len(second.statistics)}"
        raise InputError(problem, remedy="compare systems on the same images, one candidate each")
    both = np.concatenate([first.statistics, second.statistics], axis=1)
    gap = first.corpus - second.corpus
    ours, theirs = np.split(_resample_sums(both, samples, seed), 2, axis=1)
    drawn = first.of(ours) - second.of(theirs)
    exchanged = None if method == "bootstrap" else _exchange_scores(first, second, samples, seed)
    return paired_result(gap, drawn, exchanged, len(first.statistics), level)


def paired_result(
    gap: float, drawn: Array, exchanged: Array | None, queries: int, level: float = 0.95
) -> PairedTest:
    """A difference `gap` with the percentile interval of its bootstrap draws, and the p-value by
    those of exchanges; of the bootstrap's where these are None. Draws (samples,)."""
    least = 1
    if exchanged is None:
        least = 2  # of two sides
        count = 2 * (1 + min((drawn <= 0).sum(), (drawn >= 0).sum())) - 1
    else:
        rounding = 1e-12 * max(1.0, float(np.abs(exchanged).max()))
        count = (np.abs(exchanged) >= abs(gap) - rounding).sum()
    low, high = map(float, np.quantile(drawn, tails(level)))
    p_value = float(min(1.0, (1 + count) / (1 + len(drawn))))
    return PairedTest(
        float(gap), low, high, p_value, queries, min(1.0, least / (1 + len(drawn))), p_value
    )


Key = TypeVar("Key", bound=Hashable)


def correct(tests: Mapping[Key, PairedTest]) -> dict[Key, PairedTest]:
    """The same tests with p-values corrected for their number by Holm's method: the chance that any
    true null hypothesis among them has one of at most p is at most p (Holm 1979)."""
    rising = sorted(tests, key=lambda key: tests[key].p_value)
    corrected = dict(tests)
    least = 0.0
    for rank, key in enumerate(rising):
        least = max(least, min(1.0, (len(tests) - rank) * tests[key].p_value))
        corrected[key] = replace(tests[key], corrected=least)
    return corrected


def format_p(p_value: float, test: PairedTest) -> str:
    """A p-value, or the corrected one, of a test; "<0.0001" where no draw was as large as the
    difference, so that more draws might give less."""
    return f"{'<' if test.p_value <= test.floor < 1 else ''}{p_value:.4f}"


def require_same_queries(a: Array, b: Array, name: str = "") -> None:
    """InputError where two systems do not have values for the same queries."""
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        problem = f"the systems were not scored on the same queries{f' in {name}' if name else ''}"
        raise InputError(problem, remedy="evaluate both on one split")


def exchanged_means(
    a: Array, b: Array, *, samples: int = 10_000, seed: int = 0, groups: Array | None = None
) -> Array:
    """Differences of means when each query changes sides with probability 1/2, (samples,) or
    (samples, m) for values (n,) or (n, m); groups and NaN as `resampled_means` has them."""
    gaps = np.asarray(a - b, np.float64).reshape(len(a), -1)
    known = (~np.isnan(gaps)).sum(axis=0)
    gaps = np.where(np.isnan(gaps), 0.0, gaps)
    if groups is not None:
        gaps, queries = np.zeros((int(groups.max()) + 1, gaps.shape[1])), gaps
        np.add.at(gaps, groups, queries)
    stay = np.concatenate([sides @ gaps for sides in _draw_sides(samples, len(gaps), seed)])
    with np.errstate(invalid="ignore"):
        return ((2 * stay - gaps.sum(axis=0)) / known).reshape((samples, *np.shape(a)[1:]))


def exchanged_medians(
    a: Array, b: Array, *, samples: int = 10_000, seed: int = 0, groups: Array | None = None
) -> Array:
    """The same of floored medians, float64 (samples,) for ranks (n,)."""
    values, (first, second) = _count_values([a, b], groups)
    gaps, ours, theirs = first - second, first.sum(axis=0), second.sum(axis=0)
    moved = (sides @ gaps for sides in _draw_sides(samples, first.shape[0], seed))
    return np.concatenate(
        [_medians(values, theirs + m) - _medians(values, ours - m) for m in moved]
    )


def _draw_sides(samples: int, n: int, seed: int) -> Iterator[Array]:
    """Who stays on its side, 0 or 1, float64 (some samples, n): products of integers would not go
    to BLAS."""
    generator = np.random.default_rng(seed)
    for rows in _steps(samples, n):
        yield generator.integers(0, 2, (rows, n), np.int8).astype(np.float64)


def _exchange_scores(first: CorpusScore, second: CorpusScore, samples: int, seed: int) -> Array:
    """Differences of corpus scores when each image's candidates change sides with probability 1/2,
    [samples]."""
    gaps, theirs = first.statistics - second.statistics, second.statistics.sum(axis=0)
    both = first.statistics.sum(axis=0) + theirs
    moved = (theirs + sides @ gaps for sides in _draw_sides(samples, len(gaps), seed))
    return np.concatenate([first.of(sums) - second.of(both - sums) for sums in moved])


def share_interval(
    values: Array, level: float = 0.95, groups: Array | None = None
) -> tuple[float, float]:
    """An interval of the mean of estimates (n,) whose true mean is a share: Student's in its logit,
    as such means are skewed. Weighted estimates may leave 0..1, and then it is Student's in the
    logarithm; symmetric where the mean is not above 0.

    A few large values tell little of the spread: degrees of freedom are 2 n / (kurtosis - 1), those
    of a variance with this standard error (Satterthwaite 1946), and at least 10. Where all values
    are equal they tell nothing of it: up to a share 1 - ((1 - level) / 2)^(1 / n) of all queries
    may have any other value from 0 to 1 (Clopper and Pearson 1934). `groups` as `resampled_means`
    has them.
    """
    mean = float(np.mean(values))
    gaps: Array = values - mean
    if groups is not None:
        gaps = np.bincount(groups, gaps)
    n, squares = len(gaps), gaps**2
    if n < 2 or not (np.ptp(values) > _EQUAL):
        others = 1 - tails(level)[0] ** (1 / n)
        ends = (1 - others) * mean, (1 - others) * mean + others
        return min(mean, ends[0]), max(mean, ends[1])
    error = np.sqrt(n / (n - 1) * squares.sum()) / len(values)
    kurtosis = float(np.mean(squares**2) / np.mean(squares) ** 2)
    freedom = max(_LEAST_FREEDOM, 2 * n / max(kurtosis - 1, 1e-6))
    bounds = error * stdtrit(freedom, tails(level))
    if mean <= 0:
        low, high = mean + bounds
    elif mean < 1 and values.min() >= 0 and values.max() <= 1:
        low, high = expit(logit(mean) + bounds / (mean * (1 - mean)))
    else:
        low, high = mean * np.exp(bounds / mean)
    return float(low), float(high)


def tails(level: float) -> list[float]:
    """The quantiles that bound an interval. InputError for a level outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"level {level} is not between 0 and 1", remedy="use 0.95")
    return [(1 - level) / 2, (1 + level) / 2]


def pair_draws(
    image: np.ndarray, owner: np.ndarray, samples: int, seed: int
) -> Iterator[np.ndarray]:
    """How often each pair counts in each draw of images, float64 [n]: the number of draws of its
    image times that of its caption's image (`owner` int64 [n]); an own pair counts once per draw.

    This is the pigeonhole bootstrap (Owen 2007) with one draw for both sides, as both are images
    (Davezies et al. 2021, "Empirical process results for exchangeable arrays"). Draws of pairs, or
    of one side, make intervals too narrow, because some captions fit many images whatever a
    measure says. Where this is not so, these intervals are too wide, at most 1.7 times."""
    images, rows = np.unique(np.concatenate([image, owner]), return_inverse=True)
    draws = np.random.default_rng(seed).multinomial(
        len(images), np.full(len(images), 1 / len(images)), size=samples
    )
    of_image, of_owner = rows[: len(image)], rows[len(image) :]
    for draw in draws.astype(np.float64):
        yield draw[of_image] * np.where(of_image == of_owner, 1.0, draw[of_owner])
