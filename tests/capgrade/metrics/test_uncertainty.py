"""Intervals and paired tests of metrics and of corpus scores: they cover, keep their level, see a
difference."""

from dataclasses import astuple

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from scipy.stats import bootstrap, permutation_test

from capgrade.comparison import Basis
from capgrade.evaluation import Evaluated
from capgrade.metrics.uncertainty import (
    PairedTest,
    correct,
    exchanged_means,
    exchanged_medians,
    format_p,
    interval,
    paired,
    paired_result,
    resampled_means,
    resampled_medians,
)
from capgrade.schemas.errors import InputError
from capgrade.scoring import score_corpus
from tests.capgrade.measures.test_corpus import corpus, dicts


def paired_test(a, b, *, groups=None, **how) -> PairedTest:
    """Two systems' values of one metric, query by query, compared as every evaluation is."""
    basis = Basis({"queries": np.arange(len(a))})
    first, second = (Evaluated([{"m": of}], groups=[groups], basis=basis) for of in (a, b))
    found = first.compare(second, **how)["m"]
    assert found is not None
    return found


@pytest.mark.parametrize("method", ["permutation", "bootstrap"])
def test_paired_test_sees_a_difference_and_keeps_its_level(method):
    random = np.random.default_rng(3)
    base = random.random(300)
    found = paired_test(
        base + 0.05 + 0.1 * random.standard_normal(300), base, method=method, samples=2000
    )
    assert found.p_value < 0.01 and found.low > 0 and found.queries == 300
    rejected = 0
    for seed in range(100):
        a, b = random.random((2, 80))
        rejected += paired_test(a, b, method=method, samples=400, seed=seed).p_value <= 0.1
    assert rejected <= 22
    same = paired_test(base, base, method=method, samples=200)
    assert same.p_value == 1.0 and same.difference == 0


def test_permutation_agrees_with_scipy():
    random = np.random.default_rng(4)
    a, b = random.random((2, 40))
    a = a + 0.1
    ours = paired_test(a, b, samples=20_000).p_value
    theirs = permutation_test(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        n_resamples=20_000,
    ).pvalue
    assert ours == pytest.approx(theirs, abs=0.015)


def floored(values, axis=-1):
    return np.floor(np.median(values, axis=axis))


def test_medians_agree_with_scipy():
    """medr is no mean: its difference, interval and p-value are those of floored medians."""
    random = np.random.default_rng(5)
    a, b = np.ceil(random.exponential(9, (2, 61))) + [[0], [3]]
    samples = 10_000
    drawn = resampled_medians(a, samples=samples) - resampled_medians(b, samples=samples)
    ours = paired_result(
        floored(a) - floored(b), drawn, exchanged_medians(a, b, samples=samples), len(a)
    )
    theirs = permutation_test(
        (a, b), lambda x, y, axis: floored(x, axis) - floored(y, axis), permutation_type="samples",
        n_resamples=samples, vectorized=True, rng=0,
    )  # fmt: skip
    assert ours.difference == theirs.statistic and ours.p_value == pytest.approx(
        theirs.pvalue, abs=0.02
    )
    between = bootstrap(
        (a, b),
        lambda x, y, axis=-1: floored(x, axis) - floored(y, axis),
        paired=True,
        method="percentile",
        n_resamples=samples,
        vectorized=True,
    ).confidence_interval
    assert (ours.low, ours.high) == (between.low, between.high)
    assert ours.difference != pytest.approx((a - b).mean(), abs=0.1), "else this would see nothing"


def test_many_metrics_at_once_are_each_alone_and_agree_with_scipy():
    """Columns, groups and queries without a value: each column is what scipy says of the sums of
    its groups."""
    random = np.random.default_rng(6)
    a, b = random.random((2, 60, 3))
    a[:, 1] += 0.05
    a[7, 2] = b[7, 2] = np.nan
    groups = np.repeat(np.arange(20), 3)
    options = {"samples": 4000, "groups": groups}
    drawn, exchanged = resampled_means(a - b, **options), exchanged_means(a, b, **options)
    for k in range(3):
        alone = paired_test(a[:, k], b[:, k], **options)
        table = paired_result(
            np.nanmean(a[:, k] - b[:, k]), drawn[:, k], exchanged[:, k], 59 + (k < 2)
        )
        assert astuple(alone) == pytest.approx(astuple(table), abs=1e-12)
        gaps = np.nansum((a - b)[:, k].reshape(20, 3), axis=1)
        theirs = permutation_test(
            (gaps, np.zeros(20)),
            lambda x, y, axis: (x - y).sum(axis=axis),
            permutation_type="samples",
            n_resamples=4000,
            rng=k,
        )
        assert alone.p_value == pytest.approx(theirs.pvalue, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_p_values_are_corrected_as_holm_wrote_it(seed: int) -> None:
    """Step down: the least of m p-values is judged at level / m, the next at level / (m - 1), until
    one is not below. A corrected p is the lowest level at which its test is rejected."""
    random = np.random.default_rng(seed)
    p_values = dict(enumerate(random.random(7) ** 4))
    p_values[7] = p_values[3]  # a tie
    tests = {k: PairedTest(0.0, 0.0, 0.0, p, 9, 0.0, p) for k, p in p_values.items()}
    found = correct(tests)

    def rejected(level: float) -> set[int]:
        out: set[int] = set()
        for rank, k in enumerate(sorted(p_values, key=p_values.__getitem__)):
            if p_values[k] > level / (len(p_values) - rank):
                break
            out.add(k)
        return out

    for level in np.linspace(0.001, 0.999, 300):
        assert {k for k, test in found.items() if test.corrected <= level} == rejected(level)
    assert all(test.p_value == p_values[k] for k, test in found.items())


def test_a_p_value_at_the_floor_of_the_draws_is_written_so() -> None:
    """No draw of 200 is as large as a difference of all queries: p is below what these can tell."""
    random = np.random.default_rng(1)
    base = random.random(60)
    for method, floor in (("permutation", 1 / 201), ("bootstrap", 2 / 201)):
        clear = paired_test(base + 1, base, samples=200, method=method)
        assert clear.p_value == clear.floor == pytest.approx(floor)
        assert format_p(clear.p_value, clear) == f"<{floor:.4f}"
    unclear = paired_test(base, random.permutation(base), samples=200)
    assert format_p(unclear.p_value, unclear) == f"{unclear.p_value:.4f}"


def test_captions_of_one_image_are_drawn_together() -> None:
    """Five captions of an image that say the same are worth one: the interval is that of the
    images, whatever NaN."""
    random = np.random.default_rng(0)
    by_image = random.random((40, 2))
    by_image[3, 1] = np.nan
    groups = random.permutation(np.repeat(np.arange(40), 5))
    found = resampled_means(by_image[groups], samples=50, seed=2, groups=groups)
    np.testing.assert_allclose(found, resampled_means(by_image, samples=50, seed=2))
    ranks = random.integers(1, 99, 40).astype(float)
    medians = resampled_medians(ranks[groups], groups=groups, samples=50, seed=2)
    np.testing.assert_array_equal(
        medians, resampled_medians(ranks, groups=np.arange(40), samples=50, seed=2)
    )


def test_corpus_scores_are_resampled_as_corpus_scores() -> None:
    """BLEU of each draw is that of its summed counts: once more as a loop."""
    pairs = [
        (" ".join(["a dog runs in the park"[: 3 * k]]), ["a dog runs in a park", "the dog"])
        for k in range(1, 8)
    ]
    bleu = score_corpus(corpus(pairs), ["bleu_2"])["bleu_2"]
    found = interval(bleu, samples=200, seed=3)
    generator, draws = np.random.default_rng(3), []
    for drawn in generator.integers(0, 7, (200, 7)):
        gts, res = dicts([pairs[k] for k in drawn])
        draws.append(Bleu(4).compute_score(gts, res, verbose=0)[0][1])
    np.testing.assert_allclose(
        (found.low, found.high), np.quantile(draws, [0.025, 0.975]), atol=1e-9
    )
    assert found.value == bleu.corpus


def test_paired_comparison() -> None:
    pairs = [
        ("a dog runs", ["a dog runs fast", "the dog"]),
        ("a cat", ["the cat sat", "cat"]),
        ("two men", ["two men"]),
    ] * 5
    worse = [("the thing", r) for _, r in pairs]
    for name, one in score_corpus(corpus(pairs), ["bleu", "rouge_l"]).items():
        other = score_corpus(corpus(worse), [name])[name]
        same, test = paired(one, one), paired(one, other)
        assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
        assert test.difference == pytest.approx(one.corpus - other.corpus)
        assert test.low <= test.difference <= test.high and test.p_value < 0.01 < test.low
        assert paired(other, one).difference == -test.difference
    with pytest.raises(InputError, match="15 candidates against 3"):
        paired(one, score_corpus(corpus(pairs[:3]), [name])[name])
