"""What research/studies/seen.py mixes: no pair's share is chosen by what people say of its image."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from capgrade.agreement.judgements import Judgements
from capgrade.schemas.errors import InputError
from research.studies import seen


@pytest.fixture
def judged() -> tuple[np.ndarray, np.ndarray, Judgements, np.ndarray]:
    """Values of a label and of a model, which both know a part of what people say."""
    rng = np.random.default_rng(0)
    image, owner = rng.integers(0, 60, (2, 3000))
    truth = rng.normal(size=3000)
    label, model = truth + rng.normal(size=(2, 3000))
    return label, model, Judgements(image, owner, np.round(truth * 2) / 2), owner


def test_a_mixture_of_two_that_know_apart_gains(judged: tuple) -> None:
    label, model, people, owner = judged
    head, _, row = seen.rows(label, {"model": model}, people, owner)
    assert head.count("|") == row.count("|")
    gain = seen.tau(label + model, people) - seen.tau(label, people)
    assert gain > 0.05
    told = float(row.split("|")[4].split()[0])
    assert 100 * gain - 1 < told <= 100 * gain + 0.3


def test_what_chooses_a_share_has_no_image_and_no_caption_of_what_it_is_told_of(
    judged: tuple,
) -> None:
    _, _, people, owner = judged
    told_of = np.zeros(len(owner), int)
    for told, others in seen.cells(people, owner):
        assert others.sum() > 100
        images = {*people.image[told], *owner[told]}
        assert not images & {*people.image[others], *owner[others]}
        told_of += told
    assert (told_of == 1).all()


def test_what_people_say_of_an_image_does_not_choose_its_share(
    judged: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cell of pairs of which people say the contrary the model has the same share."""
    label, model, people, owner = judged
    monkeypatch.setattr(seen, "SHARES", np.arange(0, 1, 0.001))
    told, others = list(seen.cells(people, owner))[7]
    monkeypatch.setattr(seen, "cells", lambda *_: iter([(told, others)]))
    _, shares = seen.mixed(label, model, people, owner)
    for turned, same in ((~others, True), (others, False)):
        score = np.where(turned, -people.score, people.score)
        judgements = Judgements(people.image, people.caption, score)
        assert (seen.mixed(label, model, judgements, owner)[1] == shares) is same


def test_the_label_has_one_scale_whatever_the_shares(
    judged: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that says nothing of all pairs but one leaves them in the label's order."""
    label, _, people, owner = judged
    silent = np.zeros(len(label))
    silent[0] = 1
    random = np.random.default_rng(1)
    monkeypatch.setattr(seen, "tau", lambda *_: random.random())
    values, shares = seen.mixed(label, silent, people, owner)
    assert len({*shares}) > 5
    assert kendalltau(values[1:], label[1:]).statistic > 0.98


def test_a_run_without_scores_is_one_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a-0.npy", np.array([1.0, -1.0]))
    np.save(tmp_path / "a-1.npy", np.array([3.0, -3.0]))
    assert seen.scores_of_seeds(tmp_path, "a").tolist() == [1.0, -1.0]
    with pytest.raises(InputError, match="no scores of 'b'.*flickr8k --only b"):
        seen.scores_of_seeds(tmp_path, "b")
