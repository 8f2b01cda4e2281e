"""`sbert_shared` against its definition: covariances by loops, the root by scipy's `sqrtm`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.measures.refit import measures_block
from capgrade.measures.sbert import shared as module
from capgrade.measures.sbert.shared import PRIOR, SharedMap
from capgrade.pipelines.publish.tables import meaning
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import recorded
from capgrade.schemas.say import CapgradeWarning
from tests.capgrade.measures.test_definitions import slow_matrix
from tests.conftest import make_captions, random_sets


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
    # Noise can make B's smallest negative: its root is imaginary and counts as 0. (No
    # eigendecomposition of this product: its axes have a condition of 1e13, and lose as many
    # digits.)
    root = sqrtm(b @ np.linalg.inv(b + w)).real
    mapped = (root @ (v - mean).T).T
    return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)


def learnt(vectors: np.ndarray, captions: Captions) -> SharedMap:
    return SharedMap.of(vectors[captions.refs], captions.ref_ptr)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), step=st.sampled_from([3, 65536]))
def test_is_the_definition(seed: int, n: int, step: int) -> None:
    captions = make_captions(random_sets(n, seed=seed, least=2))
    vectors = embedded(captions, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STEP", step)
        found = learnt(vectors, captions).apply(vectors)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(vectors, captions), atol=1e-6)


SETS = [
    ["A dog runs on the beach.", "A puppy is running over sand."],
    ["A bowl of soup.", "Hot soup.", "Hot soup."],
    ["Two men play chess.", "Men at a board game."],
]


@pytest.mark.parametrize(
    ("name", "fold"), [("sbert_shared", np.max), ("sbert_shared_mean", np.mean)]
)
@pytest.mark.parametrize("left_out", [False, True])
def test_the_measure_is_the_cosine_of_mapped_embeddings(name: str, fold, left_out: bool) -> None:
    from capgrade.measures.embeddings import embed
    from capgrade.pretrained import EMBEDDED

    captions = make_captions(SETS)
    params = MeasuresParams.model_validate(
        {"sbert": {"self_reference": "left_out" if left_out else "included"}}
    )
    fitted = choose([name], params)[name].fit(captions)
    vectors = by_definition(embed(captions.texts, EMBEDDED), captions)
    sets = np.split(vectors, captions.ref_ptr[1:-1])
    expected = slow_matrix(
        sets, lambda one, others: fold([other @ one for other in others]), left_out
    )
    # above 1 - 4e-6 it is 1 (sbert.ONE)
    np.testing.assert_allclose(fitted.score(np.arange(3)), expected, atol=5e-6)
    assert np.array_equal(fitted.embeddings[3], fitted.embeddings[4])  # of one text


def test_too_little_to_learn_from() -> None:
    rng = np.random.default_rng(0)
    for sets in ([["a dog", "a cat"]], [["a dog"], ["a cat"]]):
        with pytest.raises(InputError, match="needs two images, and an image of two captions"):
            learnt(rng.normal(size=(2, 4)).astype(np.float32), make_captions(sets))
    # images have one mean, captions are far apart
    apart = np.array([[1, 0], [-1, 0], [1, 0], [-1, 0]], np.float32)
    with pytest.raises(InputError, match="no more alike than those of different images"):
        learnt(apart, make_captions([["a", "b"], ["c", "d"]]))


def test_few_images_are_warned_of() -> None:
    captions = make_captions(random_sets(53, seed=1, least=2))
    with pytest.warns(
        CapgradeWarning, match="learns what captions share from 53 images, 300 or more are better"
    ):
        learnt(embedded(captions, 0), captions)


def test_names_parameters_and_words() -> None:
    params = MeasuresParams()
    used = params.used(["people_shared"])
    assert measures_block(used)["sbert"] == recorded(
        params.sbert
    ) and "sbert_shared" not in measures_block(used)
    assert "what captions of one image share in this split" in meaning(
        "sbert_shared", params.used(["sbert_shared"])
    )
    assert sum(params.all_mixtures["people_shared"].values()) == pytest.approx(1)
