"""Mixtures: weighted sums of measures, by name and by parameter."""

import numpy as np
import pytest

from capgrade.measures import choose
from capgrade.measures.own_pairs import own_left_out
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, load_params
from tests.conftest import make_captions, random_sets

HALVES = {"mine": {"rouge_l": 2.0, "cider": -0.5, "bleu": 1.0}}
CAPTIONS = make_captions(random_sets(9, seed=8))


def parts() -> dict[str, np.ndarray]:
    chosen = choose(["rouge_l", "cider", "bleu", "tfidf_cosine"], MeasuresParams())
    return {name: measure.fit(CAPTIONS).score(np.arange(9)) for name, measure in chosen.items()}


def test_a_mixture_is_the_weighted_sum() -> None:
    mixture = choose(["mine"], MeasuresParams(mixtures=HALVES))["mine"]
    values = parts()
    expected = 2 * values["rouge_l"] - 0.5 * values["cider"] + values["bleu"]
    fitted = mixture.fit(CAPTIONS)
    np.testing.assert_allclose(fitted.score(np.arange(9)), expected, atol=1e-6)
    np.testing.assert_allclose(fitted.score(np.arange(9), np.array([3, 1])), expected[:, [3, 1]], atol=1e-6)
    assert (mixture.low, mixture.high) == (-5.0, 3.0)
    chosen = choose(["rouge_l", "cider", "bleu"], MeasuresParams())
    rouge, cider, bleu = (own_left_out(one, CAPTIONS) for one in chosen.values())
    np.testing.assert_allclose(own_left_out(mixture, CAPTIONS), 2 * rouge - 0.5 * cider + bleu, atol=1e-6)  # type: ignore[operator]


def test_daa_average_is_the_mean_of_its_three() -> None:
    values = parts()
    found = choose(["daa_average"], MeasuresParams())["daa_average"].fit(CAPTIONS).score(np.arange(9))
    np.testing.assert_allclose(found, np.mean([values[n] for n in ("tfidf_cosine", "bleu", "rouge_l")], 0), atol=1e-6)


def test_metadata_name_weights_and_parts() -> None:
    used = MeasuresParams(mixtures=HALVES).used(["mine", "cider"])
    assert used["mine"]["weights"] == HALVES["mine"]
    assert used["mine"]["measures"]["cider"]["sigma"] == 6.0 == used["cider"]["sigma"]


def test_of_unknown_parts_or_a_taken_name() -> None:
    with pytest.raises(InputError, match="'m' is of an unknown measure 'dog' -> choose from: bleu"):
        choose(["m"], MeasuresParams(mixtures={"m": {"dog": 1.0}}))
    with pytest.raises(InputError, match="'cider' has the name of a measure"):
        choose(["cider"], MeasuresParams(mixtures={"cider": {"bleu": 1.0}}))
    with pytest.raises(InputError, match="mixtures.m"):
        load_params(None, ["measures.mixtures={m: {bleu: .nan}}"])
    with pytest.raises(InputError, match="mixtures.m"):
        load_params(None, ["measures.mixtures={m: {}}"])
