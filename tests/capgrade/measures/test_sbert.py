"""Sentence-BERT cosines against the plain product, with embeddings of the test's own and of the embedded model;
`sbert_shared` against its definition: covariances by loops, the root by scipy's `sqrtm`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from capgrade.labels.published import measures_block
from capgrade.measures import choose, embeddings, products
from capgrade.measures import sbert_shared as module
from capgrade.measures.sbert import FittedSbert, Sbert
from capgrade.measures.sbert_shared import PRIOR, shared, shared_map
from capgrade.pipelines.publish.columns import meaning
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, SbertParams
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
    fitted = FittedSbert(captions.ref_ptr, captions.refs, leave_out, v, np.arange(len(v)), references)
    fold = {"max": max, "mean": np.mean, "first": lambda cosines: cosines[0]}[references]
    sets = np.split(v.astype(float), captions.ref_ptr[1:-1])
    expected = slow_matrix(sets, lambda one, others: fold([other @ one for other in others]), leave_out)
    images = np.array([19, 3, 4, 0])
    np.testing.assert_allclose(fitted.score(images), expected[images], atol=1e-6)
    some = np.array([5, 1, 30])
    np.testing.assert_allclose(fitted.score(images, some), expected[np.ix_(images, some)], atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([1, 7, 8, 16, 24, 95, 384]), st.integers(1, 90))
def test_a_cosine_depends_on_its_two_vectors_alone(seed: int, d: int, n: int) -> None:
    """Summed from the first coordinate to the last, each step rounded once; wherever it stands among others."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)).astype(np.float32) / np.float32(4 * np.sqrt(d))
    start = np.concatenate([[0], np.cumsum(rng.choice([1, 2, 3, 5, 7, 16, 37], 9))])
    queries = rng.normal(size=(start[-1], d)).astype(np.float32) / np.float32(4 * np.sqrt(d))
    sums = np.zeros((len(queries), n), np.float32)
    for k in range(d):  # a product of two float32 is whole in a float64, where the sum is rounded far below a float32
        sums = (sums + np.multiply.outer(queries[:, k].astype(float), rows[:, k])).astype(np.float32)
    expected = np.maximum(np.maximum.reduceat(sums, start[:-1], axis=0), -1)
    found = np.empty((9, n), np.float32)
    products.largest(0, n, products.padded(queries), start, rows, found)
    np.testing.assert_allclose(found, expected, atol=1e-7)  # where the float64 had to be rounded too
    alone = np.empty((9, 1), np.float32)
    products.largest(0, 1, products.padded(queries), start, rows[n - 1 :], alone)
    np.testing.assert_array_equal(alone[:, 0], found[:, n - 1])


def test_the_embedded_model_knows_what_captions_mean() -> None:
    sets = [["A dog runs on the beach.", "A puppy is running over sand."], ["A bowl of soup on a table.", "Hot soup."]]
    scores = Sbert(SbertParams()).fit(make_captions(sets)).score(np.arange(2))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores[[0, 0, 1, 1], [0, 1, 2, 3]], 1, atol=1e-5)  # itself among the references
    assert (
        scores[0, 2:].max()
        < 0.3
        < Sbert(SbertParams(references="mean")).fit(make_captions(sets)).score(np.arange(1))[0, 1]
    )


def test_an_unknown_model_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot load model"):
        embeddings.embed(["a"], str(tmp_path / "nothing"), tmp_path)


def embedded(captions: Captions, seed: int, size: int = 6) -> np.ndarray:
    """Unit vectors: an image's own, and a writer's beside it."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(captions.n_images, size))[captions.owner] + 0.5 * rng.normal(
        size=(captions.n_captions, size)
    )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def by_definition(vectors: np.ndarray, captions: Captions) -> np.ndarray:
    """B (B + W)^-1 to the power 1/2 of each embedding less the mean, unit length."""
    v, size = vectors.astype(np.float64), vectors.shape[1]
    sets = [v[captions.owner == i] for i in range(captions.n_images)]
    mean = np.mean([s.mean(axis=0) for s in sets], axis=0)
    w, total = np.zeros((size, size)), np.zeros((size, size))
    for s in sets:
        total += np.outer(s.mean(axis=0) - mean, s.mean(axis=0) - mean)
        for one in s:
            w += np.outer(one - s.mean(axis=0), one - s.mean(axis=0))
    w /= sum(len(s) - 1 for s in sets)
    b = total / (len(sets) - 1) - w * np.mean([1 / len(s) for s in sets])
    share = PRIOR / (len(sets) + PRIOR)
    b, w = ((1 - share) * c + share * np.trace(c) / size * np.eye(size) for c in (b, w))
    # Noise can make B's smallest negative: its root is imaginary and counts as 0. (No eigendecomposition of this
    # product: its axes have a condition of 1e13, and lose as many digits.)
    root = sqrtm(b @ np.linalg.inv(b + w)).real
    mapped = (root @ (v - mean).T).T
    return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), step=st.sampled_from([3, 65536]))
def test_is_the_definition(seed: int, n: int, step: int) -> None:
    captions = make_captions(random_sets(n, seed=seed, least=2))
    vectors = embedded(captions, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STEP", step)
        found = shared(vectors, *shared_map(vectors, captions))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(vectors, captions), atol=1e-6)


SETS = [["A dog runs on the beach.", "A puppy is running over sand."], ["A bowl of soup.", "Hot soup.", "Hot soup."],
        ["Two men play chess.", "Men at a board game."]]  # fmt: skip


@pytest.mark.parametrize(("name", "fold"), [("sbert_shared", np.max), ("sbert_shared_mean", np.mean)])
@pytest.mark.parametrize("left_out", [False, True])
def test_the_measure_is_the_cosine_of_mapped_embeddings(name: str, fold, left_out: bool) -> None:
    from capgrade.measures.embeddings import embed
    from capgrade.pretrained import EMBEDDED

    captions = make_captions(SETS)
    params = MeasuresParams.model_validate({"sbert": {"self_reference": "left_out" if left_out else "included"}})
    fitted = choose([name], params)[name].fit(captions)
    vectors = by_definition(embed(captions.texts, EMBEDDED), captions)
    sets = np.split(vectors, captions.ref_ptr[1:-1])
    expected = slow_matrix(sets, lambda one, others: fold([other @ one for other in others]), left_out)
    np.testing.assert_allclose(fitted.score(np.arange(3)), expected, atol=5e-6)  # above 1 - 4e-6 it is 1 (sbert.ONE)
    assert np.array_equal(fitted.embeddings[3], fitted.embeddings[4])  # of one text


def test_too_little_to_learn_from() -> None:
    rng = np.random.default_rng(0)
    for sets in ([["a dog", "a cat"]], [["a dog"], ["a cat"]]):
        with pytest.raises(InputError, match="needs two images, and an image of two captions"):
            shared_map(rng.normal(size=(2, 4)).astype(np.float32), make_captions(sets))
    apart = np.array([[1, 0], [-1, 0], [1, 0], [-1, 0]], np.float32)  # images have one mean, captions are far apart
    with pytest.raises(InputError, match="no more alike than those of different images"):
        shared_map(apart, make_captions([["a", "b"], ["c", "d"]]))


def test_few_images_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    captions = make_captions(random_sets(53, seed=1, least=2))  # a number that no other test has: it is said once
    shared_map(embedded(captions, 0), captions)
    assert "learns what captions share from 53 images, 300 or more are better -> use sbert" in capsys.readouterr().err


def test_names_parameters_and_words() -> None:
    params = MeasuresParams()
    used = params.used(["people_shared"])
    assert measures_block(used)["sbert"] == params.sbert.model_dump() and "sbert_shared" not in measures_block(used)
    assert "what captions of one image share in this split" in meaning("sbert_shared", params.used(["sbert_shared"]))
    assert sum(params.all_mixtures["people_shared"].values()) == pytest.approx(1)
