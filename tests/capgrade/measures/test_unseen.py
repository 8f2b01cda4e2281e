"""A typed caption is scored as a fitted one would be."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import choose
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from tests.conftest import make_captions, random_sets

NAMES = ("cider", "cider_plain", "rouge_l", "sbert", "mixed")
MIXED = {"mixtures": {"mixed": {"cider": 0.1, "rouge_l": 0.5, "sbert_mean": 0.4}}}


def _params(**given: dict) -> MeasuresParams:
    return MeasuresParams.model_validate({**MIXED, **given})


def _both(name: str, captions: Captions, params: MeasuresParams):
    measure = choose([name], params)[name]
    fitted = measure.fit(captions)
    answer = measure.unseen(fitted, captions)
    assert answer is not None
    return fitted, answer


# Those that a measure has; CIDEr takes the mean, and a mixture's parts take their own.
@pytest.mark.parametrize(("name", "references"), [
    *(("sbert", references) for references in ("max", "mean", "first")),
    ("rouge_l", "max"), ("rouge_l", "mean"), ("cider", "mean"), ("cider_plain", "mean"),
    ("mixed", "mean"),
])  # fmt: skip
def test_a_typed_caption_scores_as_if_it_were_fitted_too(
    name: str, references: str, tmp_path: Path
) -> None:
    """One of the captions again, and others of words, n-grams and a length that the captions do not
    have; document frequencies kept as they were. What is left out of references does not concern
    it."""
    sets = random_sets(12, seed=4, least=2)
    captions = make_captions(sets)
    Frequencies.of_captions(captions).write(tmp_path / "df.arrow")
    elsewhere = {"document_frequency": str(tmp_path / "df.arrow")}
    given = {
        "sbert": {"references": references},
        "rouge_l": {"references": "max" if references == "first" else references},
    }
    params = _params(**given, cider=elsewhere, cider_plain=elsewhere)
    left_out = {
        block: {**given.get(block, {}), "self_reference": "left_out"} for block in NAMES[:4]
    }
    answers = [
        _both(name, captions, some)[1] for some in (_params(**given), params, _params(**left_out))
    ]
    others = (
        "a red dog",
        "zebra",
        "the zebra rides on the street " * 6,
        "dog dog dog runs runs",
        ".",
    )
    for text in (*captions.texts[::24], *others):
        fitted = choose([name], params)[name].fit(make_captions([*sets, [text]]))
        expected = fitted.score(np.arange(12), np.array([captions.n_captions]))[:, 0]
        for answer in answers:
            np.testing.assert_allclose(answer(text), expected, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_no_words_are_refused(name: str) -> None:
    _, answer = _both(name, make_captions(random_sets(3)), _params())
    for text in ("", " \n"):
        with pytest.raises(InputError, match="no word"):
            answer(text)


@pytest.mark.parametrize("name", ["bleu", "tfidf_cosine", "mixed"])
def test_others_answer_fitted_captions_only(name: str) -> None:
    captions = make_captions(random_sets(6))
    params = MeasuresParams.model_validate({"mixtures": {"mixed": {"cider": 0.5, "bleu": 0.5}}})
    measure = choose([name], params)[name]
    assert measure.unseen(measure.fit(captions), captions) is None
