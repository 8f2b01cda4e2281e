"""Captions with the same text have the same value, to the last bit, and a caption's likeness to itself is the whole."""

import numpy as np
import pytest

from capgrade.measures import MEASURES, base, choose, cider, mixture
from capgrade.measures.base import Measure
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


@pytest.mark.parametrize("chunk", [base.CHUNK, 32])
@pytest.mark.parametrize("name", NAMES)
def test_equal_captions_have_equal_columns(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a chunk and across chunks."""
    for module in (base, cider, mixture):
        monkeypatch.setattr(module, "CHUNK", chunk)
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
