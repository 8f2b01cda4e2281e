"""Intervals and paired tests of corpus scores, beside loops."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu

from capgrade.metrics.uncertainty import interval, paired
from capgrade.pipelines.measures.scores.measures import scored
from capgrade.schemas.errors import InputError
from tests.pipelines.measures.scores.test_scores import corpus, dicts


def test_corpus_scores_are_resampled_as_corpus_scores() -> None:
    """BLEU of each draw is that of its summed counts: once more as a loop."""
    pairs = [(" ".join(["a dog runs in the park"[: 3 * k]]), ["a dog runs in a park", "the dog"]) for k in range(1, 8)]
    bleu = scored(corpus(pairs), ["bleu_2"])["bleu_2"]
    found = interval(bleu, samples=200, seed=3)
    generator, draws = np.random.default_rng(3), []
    for drawn in generator.integers(0, 7, (200, 7)):
        gts, res = dicts([pairs[k] for k in drawn])
        draws.append(Bleu(4).compute_score(gts, res, verbose=0)[0][1])
    np.testing.assert_allclose((found.low, found.high), np.quantile(draws, [0.025, 0.975]), atol=1e-9)
    assert found.value == bleu.corpus


def test_paired_comparison() -> None:
    pairs = [
        ("a dog runs", ["a dog runs fast", "the dog"]),
        ("a cat", ["the cat sat", "cat"]),
        ("two men", ["two men"]),
    ] * 5
    worse = [("the thing", r) for _, r in pairs]
    for name, one in scored(corpus(pairs), ["bleu", "rouge_l"]).items():
        other = scored(corpus(worse), [name])[name]
        same, test = paired(one, one), paired(one, other)
        assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
        assert test.difference == pytest.approx(one.corpus - other.corpus)
        assert test.low <= test.difference <= test.high and test.p_value < 0.01 < test.low
        assert paired(other, one).difference == -test.difference
    with pytest.raises(InputError, match="15 candidates against 3"):
        paired(one, scored(corpus(pairs[:3]), [name])[name])
