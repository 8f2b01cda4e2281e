"""Captions with the same text have the same value, to the last bit, and a caption's likeness to itself is the whole."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.measures import MEASURES, choose
from capgrade.measures.base import CHUNK, Measure
from capgrade.measures.sbert import FittedSbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import FORMS_OF_SBERT, MeasuresParams
from tests.conftest import make_captions, random_sets

FORMS = {
    "rouge_mean": ("rouge_l", {"references": "mean"}),
    "sbert_first": ("sbert", {"references": "first"}),
    "bleu_1": ("bleu", {"n": 1}),
    "bleu_3": ("bleu", {"n": 3}),
}
NAMES = [name for name in (*MEASURES, "people", "people_shared", "daa_average") if name != "spice"]
PLAIN = ["a red dog runs on the beach", "the woman rides a bike", "two cats sit under a big table near the street"]


def unit(n: int, d: int = 384, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return random / np.linalg.norm(random, axis=1, keepdims=True)


def made(name: str, **more: str) -> Measure:
    """A measure, or one of `FORMS`, with these parameters besides."""
    name, options = FORMS.get(name, (name, {}))
    block = "sbert" if name in FORMS_OF_SBERT else name
    plain = block in MEASURES
    params = MeasuresParams.model_validate({block: {**options, **more}} if plain else {})
    return choose([name], params)[name]


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", [*NAMES, *FORMS])
def test_references_equal_to_the_caption_give_the_most(name: str, left_out: bool) -> None:
    """Exactly `high`, so that rank correlations see ties where there are some."""
    measure = made(name, **({"self_reference": "left_out"} if left_out else {}))
    scores = measure.fit(make_captions([[text] * 4 for text in PLAIN])).score(np.arange(len(PLAIN)))
    own = np.repeat(np.eye(len(PLAIN), dtype=bool), 4, axis=1)
    assert set(scores[own].tolist()) == {np.float32(measure.high)}


@pytest.mark.parametrize("name", NAMES)
def test_equal_captions_have_equal_columns(name: str) -> None:
    sets = random_sets(30, seed=5)
    sets[7], sets[29] = [*sets[7], sets[0][0], sets[3][0]], [sets[0][0], sets[12][-1], sets[29][0]]
    captions = make_captions(sets)
    texts, first = np.array(captions.texts), {}
    where = np.array([first.setdefault(text, k) for k, text in enumerate(texts)])
    fitted = choose([name], MeasuresParams())[name].fit(captions)
    whole = fitted.score(np.arange(30))
    np.testing.assert_array_equal(whole, whole[:, where])
    some = np.flatnonzero(where != np.arange(len(where)))
    part = fitted.score(np.arange(30), np.concatenate([some, where[some]]))
    np.testing.assert_array_equal(*np.split(part, 2, axis=1))


def repeating(n: int) -> tuple[Captions, FittedSbert]:
    """Captions of five an image, the last tenth of them again the first, with embeddings of the test's own."""
    again = n // 10
    texts = [f"caption {k}" for k in [*range(n - again), *range(again)]]
    captions = make_captions([texts[k : k + 5] for k in range(0, n, 5)])
    same = np.array([*range(n - again), *range(again)])
    return captions, FittedSbert(captions.ref_ptr, captions.refs, unit(n - again)[same], same, "max", False)


@pytest.mark.parametrize("n", [505, CHUNK + 2050])
def test_sbert_repeats_in_one_chunk_and_across_chunks(n: int) -> None:
    captions, fitted = repeating(n)
    images = np.arange(0, captions.n_images, max(1, captions.n_images // 13))
    out = np.empty((len(images), CHUNK), np.float32)
    sizes = range(0, n, CHUNK)
    walked = np.hstack([out[:, : min(CHUNK, n - at)].copy() for at, _ in zip(sizes, fitted.chunks(images, 0, n, out))])  # noqa: B905
    for matrix in (walked, fitted.score(images)):
        np.testing.assert_array_equal(matrix[:, -(n // 10) :], matrix[:, : n // 10])
        own = captions.owner == images[:, None]
        assert set(matrix[own].tolist()) == {1.0}
    np.testing.assert_allclose(walked, fitted.score(images), atol=1e-6)
