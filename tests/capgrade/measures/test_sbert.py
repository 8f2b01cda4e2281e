"""Sentence-BERT cosines against the plain product, with embeddings of the test's own and of the
embedded model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.measures import embeddings, products
from capgrade.measures.sbert import Sbert, SbertParams
from capgrade.measures.sbert.fitted import FittedSbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from tests.capgrade.measures.test_definitions import slow_matrix
from tests.conftest import make_captions, random_sets


def vectors(captions: Captions) -> np.ndarray:
    random = np.random.default_rng(0).normal(size=(captions.n_captions, 24)).astype(np.float32)
    return random / np.linalg.norm(random, axis=1, keepdims=True)


@pytest.mark.parametrize("references", ["max", "mean", "first"])
@pytest.mark.parametrize("leave_out", [False, True])
def test_equals_the_plain_product(references: str, leave_out: bool) -> None:
    captions = make_captions(random_sets(20, least=2))
    v = vectors(captions)
    fitted = FittedSbert(
        captions.ref_ptr, captions.refs, leave_out, v, np.arange(len(v)), references
    )
    fold = {"max": max, "mean": np.mean, "first": lambda cosines: cosines[0]}[references]
    sets = np.split(v.astype(float), captions.ref_ptr[1:-1])
    expected = slow_matrix(
        sets, lambda one, others: fold([other @ one for other in others]), leave_out
    )
    images = np.array([19, 3, 4, 0])
    np.testing.assert_allclose(fitted.score(images), expected[images], atol=1e-6)
    some = np.array([5, 1, 30])
    np.testing.assert_allclose(
        fitted.score(images, some), expected[np.ix_(images, some)], atol=1e-6
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([1, 7, 8, 16, 24, 95, 384]), st.integers(1, 90))
def test_a_cosine_depends_on_its_two_vectors_alone(seed: int, d: int, n: int) -> None:
    """Summed from the first coordinate to the last, each step rounded once; wherever it stands
    among others."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)).astype(np.float32) / np.float32(4 * np.sqrt(d))
    start = np.concatenate([[0], np.cumsum(rng.choice([1, 2, 3, 5, 7, 16, 37], 9))])
    queries = rng.normal(size=(start[-1], d)).astype(np.float32) / np.float32(4 * np.sqrt(d))
    sums = np.zeros((len(queries), n), np.float32)
    for k in range(
        d
    ):  # a product of two float32 is whole in a float64, where the sum is rounded far below a float32
        sums = (sums + np.multiply.outer(queries[:, k].astype(float), rows[:, k])).astype(
            np.float32
        )
    expected = np.maximum(np.maximum.reduceat(sums, start[:-1], axis=0), -1)
    found = np.empty((9, n), np.float32)
    products.largest(0, n, products.padded(queries), start, rows, found)
    # where the float64 had to be rounded too
    np.testing.assert_allclose(found, expected, atol=1e-7)
    alone = np.empty((9, 1), np.float32)
    products.largest(0, 1, products.padded(queries), start, rows[n - 1 :], alone)
    np.testing.assert_array_equal(alone[:, 0], found[:, n - 1])


def test_the_embedded_model_knows_what_captions_mean() -> None:
    sets = [
        ["A dog runs on the beach.", "A puppy is running over sand."],
        ["A bowl of soup on a table.", "Hot soup."],
    ]
    scores = Sbert(SbertParams()).fit(make_captions(sets)).score(np.arange(2))
    assert scores.dtype == np.float32
    # itself among the references
    np.testing.assert_allclose(scores[[0, 0, 1, 1], [0, 1, 2, 3]], 1, atol=1e-5)
    assert (
        scores[0, 2:].max()
        < 0.3
        < Sbert(SbertParams(references="mean")).fit(make_captions(sets)).score(np.arange(1))[0, 1]
    )


def test_an_unknown_model_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot load model"):
        embeddings.embed(["a"], str(tmp_path / "nothing"), tmp_path)
