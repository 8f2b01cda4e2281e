"""Intervals and paired tests: over queries, for a metric that gives one value per query, and of corpus scores.

A corpus score is not a mean over sentences (Koehn 2004): candidates are drawn and the sums of their statistics scored.
Document frequencies stay those of the whole corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capgrade.metrics.base import check_choice
from capgrade.metrics.ranking import Array
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.measures.scores.measures import Scored

METHODS = ("permutation", "bootstrap")
CELLS = 4_000_000  # draws held at a time


@dataclass(frozen=True)
class Interval:
    """A corpus score and a percentile interval of it."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class PairedTest:
    """Difference a - b, its interval, the two-sided p-value, and how many queries or candidates it is of."""

    difference: float
    low: float
    high: float
    p_value: float
    queries: int


def resampled_means(values: Array, *, samples: int = 1000, seed: int = 0, groups: Array | None = None) -> Array:
    """Means of `samples` bootstrap draws of the queries, (samples,) or (samples, m) for values (n,) or (n, m).

    All columns see the same draws. A NaN query is outside its metric, in the draws too. With `groups` int (n,), numbers
    from 0, groups are drawn with all their queries: captions of one image are not independent.
    """
    table = np.asarray(values, np.float64).reshape(len(values), -1)
    known = ~np.isnan(table)
    both = np.concatenate([np.where(known, table, 0.0), known], axis=1)
    if groups is not None:
        both, queries = np.zeros((int(groups.max()) + 1, both.shape[1])), both
        np.add.at(both, groups, queries)
    sums, counts = np.split(_sums(both, samples, seed), 2, axis=1)
    with np.errstate(invalid="ignore"):
        return (sums / counts).reshape((samples, *np.shape(values)[1:]))


def resampled_medians(ranks: Array, *, samples: int = 1000, seed: int = 0, groups: Array | None = None) -> Array:
    """The field's medr, floor of the median, of `samples` bootstrap draws of the queries; ranks (n,), groups as
    `resampled_means` has them."""
    ranks = np.asarray(ranks, np.float64)
    groups, ranks = (np.arange(len(ranks)) if groups is None else groups)[~np.isnan(ranks)], _known(ranks)
    drawn = (times for some in _draws(samples, int(groups.max()) + 1, seed) for times in some.astype(int))
    repeated = (np.repeat(ranks, times[groups]) for times in drawn)
    return np.array([np.floor(np.median(some)) if len(some) else np.nan for some in repeated])


def _draws(samples: int, n: int, seed: int) -> Iterator[Array]:
    """How often each of n is drawn, float64 (some samples, n) after others; rows sum to n."""
    generator = np.random.default_rng(seed)
    for rows in _steps(samples, n):
        drawn = generator.integers(0, n, size=(rows, n), dtype=np.int32)
        drawn += np.arange(rows, dtype=np.int32)[:, None] * np.int32(n)  # a range of counters a sample
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def _steps(samples: int, n: int) -> list[int]:
    """How many samples of n are drawn at a time."""
    step = max(1, CELLS // n)
    return [min(step, samples - start) for start in range(0, samples, step)]


def _sums(statistics: Array, samples: int, seed: int) -> Array:
    """The sums (samples, k) of statistics (n, k) over bootstrap draws of their rows."""
    return np.concatenate([weights @ statistics for weights in _draws(samples, len(statistics), seed)])


def interval(scored: Scored, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> Interval:
    """Percentile bootstrap interval of a corpus score."""
    low, high = np.quantile(scored.of(_sums(scored.statistics, samples, seed)), tails(level))
    return Interval(scored.corpus, float(low), float(high), level)


def paired(
    first: Scored, second: Scored, *, method: str = "permutation", level: float = 0.95, samples: int = 1000,
    seed: int = 0,
) -> PairedTest:  # fmt: skip
    """Difference of two systems' corpus scores on the same images, its paired bootstrap interval, and the p-value.

    `permutation` is approximate randomisation (Riezler and Maxwell 2005): it exchanges their candidates at random and
    counts differences at least as large. `bootstrap` counts draws on the other side of 0, doubled. The p-value never is
    0: (1 + count) / (1 + samples). InputError when they have different numbers of candidates.
    """
    check_choice("method", method, METHODS)
    if len(first.sentences) != len(second.sentences):
        problem = f"{len(first.sentences)} candidates against {len(second.sentences)}"
        raise InputError(problem, remedy="compare systems on the same images, one candidate each")
    both, gap = np.concatenate([first.statistics, second.statistics], axis=1), first.corpus - second.corpus
    ours, theirs = np.split(_sums(both, samples, seed), 2, axis=1)
    drawn = first.of(ours) - second.of(theirs)
    if method == "bootstrap":
        count = 2 * (1 + min((drawn <= 0).sum(), (drawn >= 0).sum())) - 1
    else:
        count = (np.abs(_exchanged(first, second, samples, seed)) >= abs(gap) - 1e-12).sum()
    low, high = np.quantile(drawn, tails(level))
    p_value = min(1.0, (1 + count) / (1 + samples))
    return PairedTest(gap, float(low), float(high), float(p_value), len(first.sentences))


def paired_test(
    a: Array, b: Array, *, method: str = "permutation", level: float = 0.95, samples: int = 10_000, seed: int = 0
) -> PairedTest:
    """Do two systems differ on the same queries? a, b (n,): one metric's values, query by query.

    As `paired`, of the mean of their differences against 0: an exchange flips a sign. Smucker et al. 2007 compare both
    methods.
    """
    from capgrade.measures.scores.measures import averaged

    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        raise InputError("the systems were not scored on the same queries", remedy="evaluate both on one split")
    gaps = _known(a - b)
    nothing = averaged(np.zeros(len(gaps)))
    return paired(averaged(gaps), nothing, method=method, level=level, samples=samples, seed=seed)


def _exchanged(first: Scored, second: Scored, samples: int, seed: int) -> Array:
    """Differences of corpus scores when each image's candidates change sides with probability 1/2, [samples]."""
    generator, out = np.random.default_rng(seed), []
    gaps, theirs = first.statistics - second.statistics, second.statistics.sum(axis=0)
    both = first.statistics.sum(axis=0) + theirs
    for rows in _steps(samples, len(gaps)):
        sums = theirs + generator.integers(0, 2, (rows, len(gaps)), np.int8) @ gaps
        out.append(first.of(sums) - second.of(both - sums))
    return np.concatenate(out)


def _known(values: Array) -> Array:
    known = values[~np.isnan(values)]
    if values.ndim != 1 or not len(known):
        raise InputError("no query has a value", remedy="give one value per query, not all NaN")
    return known


def tails(level: float) -> list[float]:
    """The quantiles that bound an interval. InputError for a level outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"level {level} is not between 0 and 1", remedy="use 0.95")
    return [(1 - level) / 2, (1 + level) / 2]
