"""Intervals of corpus scores and paired tests of two systems, for scores that are means and for those that are not.

Both draw candidates and score the sums of their statistics: a corpus BLEU is not a mean over sentences (Koehn 2004).
Document frequencies stay those of the whole corpus.
"""

from __future__ import annotations

import numpy as np

from capgrade.metrics.uncertainty import Interval, PairedTest
from capgrade.pipelines.measures.scores.measures import Scored
from capgrade.schemas.errors import InputError

CHUNK = 4_000_000  # draws held at a time


def interval(scored: Scored, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> Interval:
    """Percentile bootstrap interval of a corpus score."""
    low, high = np.quantile(_resampled([scored], samples, seed)[0], _tails(level))
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
    low, high = np.quantile(a - b, _tails(level))
    gap = first.corpus - second.corpus
    exchanged = _exchanged(first, second, samples, seed)
    p_value = (1 + int((np.abs(exchanged) >= abs(gap) - 1e-12).sum())) / (1 + samples)
    return PairedTest(gap, float(low), float(high), float(p_value), len(first.sentences))


def _tails(level: float) -> list[float]:
    if not 0 < level < 1:
        raise InputError(f"level {level} is not between 0 and 1", remedy="use 0.95")
    return [(1 - level) / 2, (1 + level) / 2]


def _resampled(systems: list[Scored], samples: int, seed: int) -> list[np.ndarray]:
    """Corpus scores of bootstrap draws, float64 [samples] of each system; all see the same draws."""
    generator, n = np.random.default_rng(seed), len(systems[0].sentences)
    found: list[list[np.ndarray]] = [[] for _ in systems]
    step = max(1, CHUNK // n)
    for at in range(0, samples, step):
        rows = min(step, samples - at)
        drawn = generator.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        weights = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        for values, system in zip(found, systems, strict=True):
            values.append(system.of(weights @ system.statistics))
    return [np.concatenate(values) for values in found]


def _exchanged(first: Scored, second: Scored, samples: int, seed: int) -> np.ndarray:
    """Differences of corpus scores when each image's candidates change sides with probability 1/2, [samples]."""
    generator, n, out = np.random.default_rng(seed), len(first.sentences), []
    step = max(1, CHUNK // n)
    both = first.statistics.sum(axis=0) + second.statistics.sum(axis=0)
    for at in range(0, samples, step):
        kept = generator.integers(0, 2, (min(step, samples - at), n)).astype(np.float64)
        sums = kept @ first.statistics + (1 - kept) @ second.statistics
        out.append(first.of(sums) - second.of(both - sums))
    return np.concatenate(out)
