"""Rectangles are within the error that a measure declares."""

import numpy as np
import pytest

from capgrade.measures import choose
from capgrade.measures.base import ArrayState, Error, Fill
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets

MIXTURES = {"one_sign": {"cider": 0.5, "rouge_l": 1.0}, "two_signs": {"sbert": 1.0, "cider": -0.1}}
LEFT_OUT = {"self_reference": "left_out"}
SETS = [*random_sets(40, seed=5, least=2), ["a dog " * 20, "cat"], ["red ball " * 40, "a dog"], ["", "a dog"]]


@pytest.mark.parametrize(
    ("name", "block"),
    [
        *((name, block) for name in ("cider", "rouge_l", "bleu", "scene_graph", "sbert") for block in ({}, LEFT_OUT)),
        *((name, {"references": "mean"}) for name in ("rouge_l", "sbert")),
        *((name, {}) for name in ("cider_plain", "meteor", "sbert_shared", "tfidf_cosine", *MIXTURES)),
    ],
    ids=str,
)
def test_rectangles_are_within_the_error(name: str, block: dict) -> None:
    captions = make_captions(SETS)
    params = MeasuresParams(mixtures=MIXTURES, **({name: block} if block else {}))
    fitted = choose([name], params)[name].fit(captions)
    values = fitted.score(np.arange(captions.n_images)).astype(float)
    true = fitted.pairs(*map(np.ravel, np.indices(values.shape))).reshape(values.shape)
    apart = np.abs(values - true) - fitted.error.absolute - fitted.error.relative * np.abs(values)
    assert (apart <= 0).all(), (apart.max(), fitted.error)


def test_thresholds_that_a_value_may_reach_and_surely_reaches() -> None:
    """Of every value and what its error allows: none is sure that need not reach it, none is left out that may."""
    random = np.random.default_rng(0)
    for error in (Error(), Error(0.01), Error(0, 0.01), Error(0.02, 0.05)):
        block = random.normal(0, 1, 100_000)
        size = error.absolute + error.relative * np.abs(block)
        for threshold in np.array([-0.5, -0.001, 0, 0.001, 0.7]):
            assert (block[block + size >= threshold] >= error.lowest(threshold) - 1e-12).all()
            assert (block[block - size < threshold] < error.sure(threshold) + 1e-12).all()
            assert (block[block + size < threshold] < error.lowest(threshold) + 1e-12).all()


def test_rectangles_without_an_error_are_refused() -> None:
    with pytest.raises(TypeError, match="Unsaid fills rectangles in a way of its own: it has to declare their `error`"):

        class Unsaid(ArrayState):
            def filler(self, images: np.ndarray, start: int) -> Fill:
                raise NotImplementedError
