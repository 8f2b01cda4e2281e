"""Tops found by bounds are those of all pairs: the same captions, the same bits, ties included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.base import Fitted
from capgrade.pipelines.measures.tops.every import Tops, every_pair
from capgrade.pipelines.measures.tops.find import finder
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets


def fit(name: str, captions: Captions, left_out: bool = False) -> Fitted:
    reference = {"self_reference": "left_out" if left_out else "included"}
    return choose([name], MeasuresParams.model_validate({name: reference}))[name].fit(captions)


def best(fitted: Fitted, images: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """By sorting whole rows of all values."""
    values = fitted.score(images)
    rows = np.stack([np.lexsort((np.arange(values.shape[1]), -row))[:k] for row in values])
    return rows, np.take_along_axis(values, rows, 1)


def assert_same(found: Tops, rows: np.ndarray, values: np.ndarray) -> None:
    np.testing.assert_array_equal(found.rows, rows)
    assert found.values.tobytes() == values.tobytes()


def sets_with_ties(images: int, seed: int) -> list[list[str]]:
    """Captions of which many are equal, or have the same words in another order."""
    rng = np.random.default_rng(seed)
    found = random_sets(images, seed=seed, least=2)
    for k in range(0, images, 3):
        found[k] = [" ".join(rng.permutation(text.split())) if j % 2 else text for j, text in enumerate(found[k - 1])]
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.integers(20, 120), st.integers(0, 10_000), st.integers(1, 12), st.booleans(),
    st.sampled_from(["cider", "cider_plain", "tfidf_cosine"]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(images: int, seed: int, k: int, left_out: bool, name: str) -> None:
    fitted = fit(name, make_captions(sets_with_ties(images, seed)), left_out)
    some = np.arange(0, images, 2)
    assert_same(finder(fitted, images).tops(some, k), *best(fitted, some, k))


@pytest.mark.parametrize("name", ["cider", "rouge_l"])
def test_all_pairs_are_sorted_by_value_and_row(name: str) -> None:
    captions = make_captions(sets_with_ties(50, seed=1))
    fitted = fit(name, captions)
    for k in (1, 7, captions.n_captions + 5):
        assert_same(every_pair(fitted, np.arange(50), captions.n_captions, k), *best(fitted, np.arange(50), k))
