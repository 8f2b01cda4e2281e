"""A typed caption that is like nothing of the corpus is answered with a note, whatever the language of the nonsense."""

from __future__ import annotations

import numpy as np

from capgrade.explorer.page import answers, text_title
from capgrade.explorer.voices import NOTHING, measure_voices, usual
from capgrade.schemas.params import MeasuresParams
from tests.explorer.test_answers import CAPTIONS, NAMES, explorer  # noqa: F401


def test_nonsense_is_noted_and_captions_of_the_corpus_are_not(explorer) -> None:  # noqa: F811
    for nonsense in ("xyzzy qwop plugh", "ein Hund spielt im Garten", "今日は"):
        for found in explorer.of_text(nonsense)[:2]:
            assert found.note == NOTHING and found.hits, "what is nearest is still shown"
    shown = str(answers(explorer, text_title("xyzzy"), explorer.of_text("xyzzy qwop plugh"), True))
    assert shown.count(NOTHING) >= 2 and shown.count("<li") >= 16
    for caption in (0, 5, 9):
        assert all(found.note == "" for found in explorer.of_text(CAPTIONS.texts[caption])[:2])
        assert all(found.note == "" for found in explorer.of_caption(caption)[:2])


def test_usual_is_the_lowest_best_score_with_other_images() -> None:
    for voice in measure_voices(CAPTIONS, NAMES, MeasuresParams()):
        scores = voice.fitted.score(np.arange(CAPTIONS.n_images)).astype(float)
        scores[CAPTIONS.owner, np.arange(CAPTIONS.n_captions)] = -np.inf
        some = np.unique(np.linspace(0, CAPTIONS.n_captions - 1, min(50, CAPTIONS.n_captions)).astype(int))
        assert np.isclose(usual(voice, CAPTIONS), 0.8 * scores.max(axis=0)[some].min(), atol=1e-6)
