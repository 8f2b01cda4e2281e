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
_CHUNK = 20_000_000  # cells of resampling weights held at a time
_OF_SCORES = 4_000_000  # draws held at a time, of corpus scores


@dataclass(frozen=True)
class Interval:
    """A mean over queries and a percentile interval of it."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class PairedTest:
    """Mean difference a - b over queries, its interval, and the two-sided p-value."""

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
    known = (~np.isnan(table)).astype(np.float64)
    filled = np.where(known > 0, table, 0.0)
    if groups is not None:
        filled, known = (_summed(part, groups) for part in (filled, known))
    with np.errstate(invalid="ignore"):
        means = [(weights @ filled) / (weights @ known) for weights in _draws(samples, len(filled), seed, _CHUNK)]
    return np.concatenate(means).reshape((samples, *np.shape(values)[1:]))


def _summed(table: Array, groups: Array) -> Array:
    out = np.zeros((int(groups.max()) + 1, table.shape[1]))
    np.add.at(out, groups, table)
    return out


def resampled_medians(ranks: Array, *, samples: int = 1000, seed: int = 0, groups: Array | None = None) -> Array:
    """The field's medr, floor of the median, of `samples` bootstrap draws of the queries; ranks (n,), groups as
    `resampled_means` has them."""
    ranks = np.asarray(ranks, np.float64)
    groups, ranks = (np.arange(len(ranks)) if groups is None else groups)[~np.isnan(ranks)], _known(ranks)
    drawn = (times for some in _draws(samples, int(groups.max()) + 1, seed, _OF_SCORES) for times in some.astype(int))
    repeated = (np.repeat(ranks, times[groups]) for times in drawn)
    return np.array([np.floor(np.median(some)) if len(some) else np.nan for some in repeated])


def _draws(samples: int, n: int, seed: int, cells: int) -> Iterator[Array]:
    """How often each of n is drawn, float64 (some samples, n) after others of about so many cells; rows sum to n."""
    generator, step = np.random.default_rng(seed), max(1, cells // n)
    for start in range(0, samples, step):
        rows = min(step, samples - start)
        drawn = generator.integers(0, n, size=(rows, n), dtype=np.int32)
        drawn += np.arange(rows, dtype=np.int32)[:, None] * np.int32(n)  # a range of counters a sample
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def paired_test(
    a: Array, b: Array, *, method: str = "permutation", level: float = 0.95, samples: int = 10_000, seed: int = 0
) -> PairedTest:
    """Do two systems differ on the same queries? a, b (n,): one metric's values, query by query.

    `permutation` flips the sign of each query's difference at random and counts means at least as far from 0;
    `bootstrap` resamples the differences and counts means on the other side of 0, doubled. The p-value never is 0:
    (1 + count) / (1 + samples). The interval is the bootstrap's. Smucker et al. 2007 compare both.
    """
    check_choice("method", method, METHODS)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        raise InputError("the systems were not scored on the same queries", remedy="evaluate both on one split")
    gaps = _known(a - b)
    means = resampled_means(gaps, samples=samples, seed=seed)
    if method == "bootstrap":
        count = 2 * (1 + min((means <= 0).sum(), (means >= 0).sum())) - 1
    else:
        count = _as_far(_flipped_means(gaps, samples, seed), gaps.mean())
    return _tested(float(gaps.mean()), means, count, level, len(gaps))


def _as_far(values: Array, gap: float) -> int:
    return int((np.abs(values) >= abs(gap) - 1e-12).sum())


def _tested(gap: float, drawn: Array, count: int, level: float, queries: int) -> PairedTest:
    low, high = np.quantile(drawn, tails(level))
    return PairedTest(gap, float(low), float(high), float(min(1.0, (1 + count) / (1 + len(drawn)))), queries)


def _flipped_means(gaps: Array, samples: int, seed: int) -> Array:
    generator, out = np.random.default_rng(seed), []
    step = max(1, _CHUNK // len(gaps))
    for start in range(0, samples, step):
        signs = generator.integers(0, 2, size=(min(step, samples - start), len(gaps)), dtype=np.int8)
        out.append((2.0 * (signs @ gaps) - gaps.sum()) / len(gaps))
    return np.concatenate(out)


def _known(values: Array) -> Array:
    known = values[~np.isnan(values)]
    if values.ndim != 1 or not len(known):
        raise InputError("no query has a value", remedy="give one value per query, not all NaN")
    return known


def interval(scored: Scored, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> Interval:
    """Percentile bootstrap interval of a corpus score."""
    low, high = np.quantile(_resampled([scored], samples, seed)[0], tails(level))
    return Interval(scored.corpus, float(low), float(high), level)


def paired(first: Scored, second: Scored, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> PairedTest:
    """Difference of two systems' corpus scores on the same images, its paired bootstrap interval, and the p-value of
    approximate randomisation: how often a difference at least as large comes from exchanging their candidates at
    random (Riezler and Maxwell 2005), (1 + count) / (1 + samples).

    InputError when they have different numbers of candidates.
    """
    if len(first.sentences) != len(second.sentences):
        problem = f"{len(first.sentences)} candidates against {len(second.sentences)}"
        raise InputError(problem, remedy="compare systems on the same images, one candidate each")
    a, b = _resampled([first, second], samples, seed)
    gap = first.corpus - second.corpus
    return _tested(gap, a - b, _as_far(_exchanged(first, second, samples, seed), gap), level, len(first.sentences))


def tails(level: float) -> list[float]:
    """The quantiles that bound an interval. InputError for a level outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"level {level} is not between 0 and 1", remedy="use 0.95")
    return [(1 - level) / 2, (1 + level) / 2]


def _resampled(systems: list[Scored], samples: int, seed: int) -> list[Array]:
    """Corpus scores of bootstrap draws, float64 [samples] of each system; all see the same draws."""
    draws = _draws(samples, len(systems[0].sentences), seed, _OF_SCORES)
    values = [[system.of(weights @ system.statistics) for system in systems] for weights in draws]
    return [np.concatenate(parts) for parts in zip(*values, strict=True)]


def _exchanged(first: Scored, second: Scored, samples: int, seed: int) -> Array:
    """Differences of corpus scores when each image's candidates change sides with probability 1/2, [samples]."""
    generator, n, out = np.random.default_rng(seed), len(first.sentences), []
    step = max(1, _OF_SCORES // n)
    both = first.statistics.sum(axis=0) + second.statistics.sum(axis=0)
    for at in range(0, samples, step):
        kept = generator.integers(0, 2, (min(step, samples - at), n)).astype(np.float64)
        sums = kept @ first.statistics + (1 - kept) @ second.statistics
        out.append(first.of(sums) - second.of(both - sums))
    return np.concatenate(out)
