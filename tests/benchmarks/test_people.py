"""The benchmark of `people_shared` on a few captions: its values, and a map learnt elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.benchmarks.people import NAMES, compare, some_images
from capgrade.pipelines.agreement.ratings import Judgements
from capgrade.pipelines.measures import choose
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions

SETS = [["A dog runs on the beach.", "A puppy is running over sand."], ["A bowl of soup.", "Hot soup in a bowl."],
        ["Two men play chess.", "Men at a board game."], ["A red bus stops.", "The bus waits at a stop."]]  # fmt: skip


def judged(captions: Captions) -> Judgements:
    image, caption = np.divmod(np.arange(captions.n_images * captions.n_captions), captions.n_captions)
    return Judgements(image, caption, np.random.default_rng(0).uniform(0, 5, len(image)))


def test_the_values_are_those_of_the_measures() -> None:
    captions = make_captions(SETS)
    people = judged(captions)
    found = compare(captions, people)
    for name in NAMES:
        values = choose([name], MeasuresParams())[name].fit(captions).score(np.arange(4)).ravel()
        assert found[name]["pearson"]["all"] == pytest.approx(np.corrcoef(values, people.score)[0, 1], abs=1e-5)
    assert all(low <= high for low, high in found["gain"].values())


def test_a_map_learnt_from_the_same_captions_is_the_same_and_from_some_is_not() -> None:
    captions = make_captions(SETS)
    people = judged(captions)
    own = compare(captions, people)
    assert compare(captions, people, captions)["people_shared"] == own["people_shared"]
    some = some_images(captions, 3)
    assert (some.n_images, some.n_captions) == (3, 6) and set(some.texts) < set(captions.texts)
    other = compare(captions, people, some)
    assert other["people"] == own["people"] and other["people_shared"] != own["people_shared"]
