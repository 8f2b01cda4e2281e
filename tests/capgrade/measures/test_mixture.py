"""Mixtures: weighted sums of measures, by name and by parameter."""

import numpy as np
import pytest

from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.params import load_params
from capgrade.schemas.errors import InputError
from tests.conftest import make_captions, random_sets

HALVES = {"mine": {"rouge_l": 2.0, "cider": -0.5, "bleu": 1.0}}
CAPTIONS = make_captions(random_sets(9, seed=8))


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("mine", HALVES["mine"]),
        ("daa_average", dict.fromkeys(("tfidf_cosine", "bleu", "rouge_l"), 1 / 3)),
    ],
)
def test_a_mixture_is_the_weighted_sum(name: str, weights: dict[str, float]) -> None:
    mixture = choose([name], MeasuresParams(mixtures=HALVES))[name]
    parts = choose([*weights], MeasuresParams())
    fitted, every, some = mixture.fit(CAPTIONS), np.arange(9), np.array([3, 1])
    expected = sum(
        weights[part] * measure.fit(CAPTIONS).score(every) for part, measure in parts.items()
    )
    np.testing.assert_allclose(fitted.score(every), expected, atol=1e-6)
    np.testing.assert_allclose(fitted.score(every, some), expected[:, some], atol=1e-6)  # type: ignore[index]
    assert (mixture.low, mixture.high) == pytest.approx((-5, 3) if name == "mine" else (0, 1))
    left_out = sum(
        weights[part] * measure.fit(CAPTIONS).own_left_out(every) for part, measure in parts.items()
    )
    np.testing.assert_allclose(fitted.own_left_out(every), left_out, atol=1e-6)  # type: ignore[arg-type]


def test_metadata_name_weights_and_parts() -> None:
    used = MeasuresParams(mixtures=HALVES).used(["mine", "cider"])
    assert used["mine"]["weights"] == HALVES["mine"]
    assert used["mine"]["measures"]["cider"]["sigma"] == 6.0 == used["cider"]["sigma"]


def test_of_unknown_parts_a_taken_name_or_weights_without_a_range() -> None:
    with pytest.raises(InputError, match="'m' is of an unknown measure 'dog' -> choose from: bleu"):
        choose(["m"], MeasuresParams(mixtures={"m": {"dog": 1.0}}))
    with pytest.raises(InputError, match="'cider' has the name of a measure"):
        choose(["cider"], MeasuresParams(mixtures={"cider": {"bleu": 1.0}}))
    for weight, said in ((0.0, "0 to 0"), (1e39, r"0 to 1e\+39"), (1e-39, "0 to 1e-39")):
        with pytest.raises(InputError, match=f"values would be from {said} -> give weights"):
            choose(["m"], MeasuresParams(mixtures={"m": {"bleu": weight}}))["m"].fit(CAPTIONS)
    with pytest.raises(InputError, match="mixtures.m"):
        load_params(None, ["measures.mixtures={m: {bleu: .nan}}"])
    with pytest.raises(InputError, match="mixtures.m"):
        load_params(None, ["measures.mixtures={m: {}}"])
