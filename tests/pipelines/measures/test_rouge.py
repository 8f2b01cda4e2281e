"""ROUGE-L against pycocoevalcap, and its mean form against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.rouge.rouge import Rouge

from capgrade.pipelines.measures.rouge import RougeL
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import RougeParams
from tests.conftest import make_captions, random_sets


def slow_lcs(a: list[str], b: list[str]) -> int:
    if not a or not b:
        return 0
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def slow_rouge(hypothesis: str, references: list[str], mean: bool, beta: float) -> float:
    """From the definition; split(" ") gives an empty caption one empty word, as the reference code."""
    h, values = hypothesis.split(" "), []
    for reference in references:
        r = reference.split(" ")
        lcs = slow_lcs(h, r)
        values.append((lcs / len(h), lcs / len(r)))
    if mean:
        return float(np.mean([f_score(p, r, beta) for p, r in values]))
    return f_score(max(p for p, _ in values), max(r for _, r in values), beta)


def f_score(p: float, r: float, beta: float) -> float:
    return (1 + beta**2) * p * r / (r + beta**2 * p) if p and r else 0.0


def slow_matrix(sets: list[list[str]], mean: bool = False, leave_out: bool = False, beta: float = 1.2) -> np.ndarray:
    def rest(i: int, j: int, k: int) -> list[str]:
        return [r for q, r in enumerate(sets[i]) if not (leave_out and i == j and q == k)]

    return np.array(
        [
            [
                slow_rouge(c, rest(i, j, k), mean, beta)
                for j, captions in enumerate(sets)
                for k, c in enumerate(captions)
            ]
            for i in range(len(sets))
        ]
    )


words = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), max_size=20).map(" ".join)
some_sets = st.lists(st.lists(words, min_size=2, max_size=5), min_size=1, max_size=5)


@given(some_sets, st.sampled_from(["max", "mean"]), st.sampled_from(["included", "left_out"]))
@settings(max_examples=80, deadline=None)
def test_agrees_with_the_definition(sets: list[list[str]], references: str, self_reference: str) -> None:
    params = RougeParams(references=references, self_reference=self_reference)
    captions = make_captions(sets)
    fitted = RougeL(params).fit(captions)
    expected = slow_matrix(sets, references == "mean", self_reference == "left_out")
    images = np.arange(len(sets))
    np.testing.assert_allclose(fitted.score(images), expected, atol=1e-6)
    some = np.arange(captions.n_captions)[::2]
    np.testing.assert_allclose(fitted.score(images, some), expected[:, some], atol=1e-6)


@pytest.mark.parametrize("references", ["max", "mean"])
@pytest.mark.parametrize("length", [15, 16, 17, 63, 64, 65, 128, 129, 500])
def test_lengths_around_the_width_of_a_word(length: int, references: str) -> None:
    random = np.random.default_rng(length)
    long = [" ".join(random.choice(list("abcdefgh"), length)) for _ in range(3)]
    sets = [[long[0], "a b c"], [long[1], long[2], "h"], ["d e f"] * 40]
    fitted = RougeL(RougeParams(references=references, beta=0.8)).fit(make_captions(sets))
    np.testing.assert_allclose(fitted.score(np.arange(3)), slow_matrix(sets, references == "mean", beta=0.8), atol=1e-6)


def test_equals_pycocoevalcap_on_coco(coco: Captions) -> None:
    """All 25,000 own pairs and 20,000 random ones, within 1e-5."""
    sentences = [" ".join(words) for words in coco.table["tokens"].to_pylist()]
    random = np.random.default_rng(7)
    pairs = np.concatenate(
        [
            np.stack([coco.owner, np.arange(25_000)], axis=1),
            np.stack([random.integers(5000, size=20_000), random.integers(25_000, size=20_000)], axis=1),
        ]
    )
    matrix = RougeL(RougeParams()).fit(coco).score(np.arange(5000))
    rouge = Rouge()
    expected = [rouge.calc_score([sentences[c]], [sentences[5 * i + k] for k in range(5)]) for i, c in pairs]
    assert matrix.max() == 1
    difference = np.abs(matrix[pairs[:, 0], pairs[:, 1]] - expected).max()
    assert difference < 1e-5, difference


def test_blocks_do_not_change_a_row() -> None:
    fitted = RougeL(RougeParams()).fit(make_captions(random_sets(70, seed=3)))
    whole = fitted.score(np.arange(70))
    for rows in (np.arange(5), np.array([69, 2, 33])):
        assert np.array_equal(fitted.score(rows), whole[rows])


def test_own_pairs_of_any_length_are_exactly_one() -> None:
    """Of every length, whatever rounding does: they tie, as they do in the reference library."""
    sets = [[" ".join(f"w{k}" for k in range(n)), "other words"] for n in range(1, 90)]
    captions = make_captions(sets)
    values = RougeL(RougeParams()).fit(captions).score(np.arange(len(sets)))
    assert (values[captions.owner, np.arange(captions.n_captions)] == 1).all()
