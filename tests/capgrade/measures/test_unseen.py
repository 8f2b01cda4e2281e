"""A typed caption is scored as a fitted one would be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import choose
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.unseen import scorer_of_unseen
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets

NAMES = ("cider", "cider_plain", "rouge_l", "sbert", "mixed")
MIXED = {"mixtures": {"mixed": {"cider": 0.1, "rouge_l": 0.5, "sbert_mean": 0.4}}}


def _params(**given: dict) -> MeasuresParams:
    return MeasuresParams.model_validate({**MIXED, **given})


def _both(name: str, captions: Captions, params: MeasuresParams):
    measure = choose([name], params)[name]
    fitted = measure.fit(captions)
    answer = scorer_of_unseen(measure, fitted, captions)
    assert answer is not None
    return fitted, answer


@pytest.mark.parametrize("references", ["max", "mean", "first"])
@pytest.mark.parametrize("name", NAMES)
def test_a_fitted_caption_typed_again_scores_the_same(name: str, references: str) -> None:
    captions = make_captions(random_sets(12, seed=3))
    given = {"sbert": {"references": references}}
    if references != "first":
        given["rouge_l"] = {"references": references}
    fitted, answer = _both(name, captions, _params(**given))
    whole = fitted.score(np.arange(captions.n_images))
    for row, text in enumerate(captions.texts):
        np.testing.assert_allclose(answer(text), whole[:, row], atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_new_caption_scores_as_if_it_were_fitted_too(name: str, tmp_path: Path) -> None:
    """With words, n-grams and a length that the captions do not have; document frequencies kept as they were."""
    sets = random_sets(12, seed=4)
    captions = make_captions(sets)
    Frequencies.of_captions(captions).write(tmp_path / "df.arrow")
    elsewhere = {"document_frequency": str(tmp_path / "df.arrow")}
    params = _params(cider=elsewhere, cider_plain=elsewhere)
    own = _both(name, captions, _params())[1]
    answer = _both(name, captions, params)[1]
    for text in ("a red dog", "zebra", "the zebra rides on the street " * 6, "dog dog dog runs runs", "."):
        fitted = choose([name], params)[name].fit(make_captions([*sets, [text]]))
        expected = fitted.score(np.arange(12), np.array([captions.n_captions]))[:, 0]
        np.testing.assert_allclose(own(text), expected, atol=2e-6)
        np.testing.assert_allclose(answer(text), expected, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", " \n"])
def test_no_words_are_refused(name: str, text: str) -> None:
    _, answer = _both(name, make_captions(random_sets(3)), _params())
    with pytest.raises(InputError, match="no word"):
        answer(text)


def test_left_out_references_do_not_concern_a_typed_caption() -> None:
    captions = make_captions(random_sets(6, seed=5, least=2))
    for name in ("cider", "cider_plain", "rouge_l", "sbert"):
        left_out = MeasuresParams.model_validate({name: {"self_reference": "left_out"}})
        text = captions.texts[0]
        np.testing.assert_allclose(
            _both(name, captions, left_out)[1](text), _both(name, captions, MeasuresParams())[1](text), atol=1e-6
        )


@pytest.mark.parametrize("name", ["bleu", "tfidf_cosine", "mixed"])
def test_others_answer_fitted_captions_only(name: str) -> None:
    captions = make_captions(random_sets(6))
    params = MeasuresParams.model_validate({"mixtures": {"mixed": {"cider": 0.5, "bleu": 0.5}}})
    measure = choose([name], params)[name]
    assert scorer_of_unseen(measure, measure.fit(captions), captions) is None
