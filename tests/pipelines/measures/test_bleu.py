"""BLEU against pycocoevalcap, and against a slow, obvious reference on odd captions."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu as ReferenceBleu

from capgrade.pipelines.measures import bleu as measure
from capgrade.pipelines.measures.bleu import Bleu
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import BleuParams
from tests.conftest import make_captions, random_sets


def slow_bleu(hypothesis: str, references: list[str], k: int) -> float:
    """The sentence score of `bleu_scorer.py`, word for word."""
    words, product = hypothesis.split(), 1.0
    for n in range(1, k + 1):
        grams = lambda w, n=n: Counter(tuple(w[at : at + n]) for at in range(len(w) - n + 1))  # noqa: E731
        correct = sum(min(c, max(grams(r.split())[g] for r in references)) for g, c in grams(words).items())
        product *= (correct + 1e-15) / (max(0, len(words) - n + 1) + 1e-9)
    closest = min((abs(len(r.split()) - len(words)), len(r.split())) for r in references)[1]
    ratio = (len(words) + 1e-15) / (closest + 1e-9)
    return product ** (1 / k) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1)


def slow_matrix(sets: list[list[str]], k: int, leave_out: bool = False) -> np.ndarray:
    captions = [(i, q, caption) for i, one in enumerate(sets) for q, caption in enumerate(one)]
    return np.array(
        [
            [
                slow_bleu(caption, [r for p, r in enumerate(refs) if not (leave_out and i == j and p == q)], k)
                for j, q, caption in captions
            ]
            for i, refs in enumerate(sets)
        ]
    )


odd = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9).map(" ".join)


@given(st.lists(st.lists(odd, min_size=1, max_size=5), min_size=1, max_size=5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_odd_captions(sets: list[list[str]], k: int) -> None:
    """Empty and one-word captions, repeated words, ties of lengths."""
    captions = make_captions(sets)
    fitted, images = Bleu(BleuParams(n=k)).fit(captions), np.arange(len(sets))
    expected = slow_matrix(sets, k)
    np.testing.assert_allclose(fitted.score(images), expected, atol=1e-6)
    np.testing.assert_allclose(fitted.score(images, np.arange(captions.n_captions)), expected, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_postings_dense_rows_and_chunks(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever share of n-grams is dense, and wherever chunks end."""
    monkeypatch.setattr(measure, "DENSE_SHARE", share)
    monkeypatch.setattr("capgrade.pipelines.measures.base.CHUNK", 7)
    sets = random_sets(12, seed=3)
    captions = make_captions(sets)
    fitted, expected = Bleu(BleuParams()).fit(captions), slow_matrix(sets, 4)
    np.testing.assert_allclose(fitted.score(np.arange(12)), expected, atol=1e-6)
    images, out = np.array([5, 2]), np.empty((2, 7), np.float32)
    stop = captions.n_captions
    for at, _ in zip(range(7, stop, 7), fitted.chunks(images, 7, stop, out), strict=True):
        size = min(7, stop - at)
        np.testing.assert_allclose(out[:, :size], expected[images, at : at + size], atol=1e-6)


def test_left_out_self() -> None:
    sets = random_sets(8, seed=2, least=2)
    fitted = Bleu(BleuParams(self_reference="left_out")).fit(make_captions(sets))
    expected = slow_matrix(sets, 4, leave_out=True)
    np.testing.assert_allclose(fitted.score(np.arange(8)), expected, atol=1e-6)
    some = np.array([3, 0, 7])
    np.testing.assert_allclose(fitted.score(some, some), expected[np.ix_(some, some)], atol=1e-6)
    with pytest.raises(InputError, match="no reference remains"):
        Bleu(BleuParams(self_reference="left_out")).fit(make_captions([["a"], ["b", "c"]]))


def test_saved_and_opened(tmp_path: Path) -> None:
    fitted = Bleu(BleuParams()).fit(make_captions(random_sets(9, seed=4)))
    fitted.save(tmp_path)
    assert np.array_equal(type(fitted).load(tmp_path).score(np.arange(9)), fitted.score(np.arange(9)))


def test_a_caption_too_long_to_count_is_refused() -> None:
    with pytest.raises(InputError, match="'i0#0' has 65536 tokens"):
        Bleu(BleuParams(n=1)).fit(make_captions([["a " * 65536]]))


def test_equals_pycocoevalcap_on_coco(coco: Captions) -> None:
    """10,000 own and random pairs, every order, within 1e-6."""
    sentences = [" ".join(words) for words in coco.table["tokens"].to_pylist()]
    random = np.random.default_rng(5)
    images = random.integers(400, size=10_000)
    captions = np.where(
        random.random(10_000) < 0.5, 5 * images + random.integers(5), random.integers(25_000, size=10_000)
    )
    references = {k: [sentences[5 * i + q] for q in range(5)] for k, i in enumerate(images)}
    hypotheses = {k: [sentences[c]] for k, c in enumerate(captions)}
    _, expected = ReferenceBleu(4).compute_score(references, hypotheses, verbose=0)
    for k in range(1, 5):
        found = Bleu(BleuParams(n=k)).fit(coco).score(np.arange(400))[images, captions]
        difference = np.abs(found - np.array(expected[k - 1])).max()
        assert difference < 1e-6, (k, difference)
