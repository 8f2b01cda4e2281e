"""Calibration: a known curve is found, error is of held-out images, and a file says what it was fitted on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.agreement.calibration import Calibration, load, save, scale_of
from capgrade.agreement.curve import Scale, fit, reliability
from capgrade.agreement.judgements import Judgements, Ratings
from capgrade.pipelines.agree import agree
from capgrade.pipelines.relevance import relevance
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, RelevanceParams
from tests.conftest import call, caption_table, random_sets, write_captions_folder

SHARES = Scale(0.5, 0.0, 1.0)


def judged(n: int, seed: int) -> tuple[np.ndarray, Judgements]:
    """People who accept a pair of value v with probability v squared."""
    random = np.random.default_rng(seed)
    value = random.random(n)
    yes = (random.random(n) < value**2).astype(float)
    return value, Judgements(random.integers(n // 20, size=n), np.arange(n), yes, scale=(0.0, 1.0))


def others(people: Judgements) -> np.ndarray:
    """Captions of images that are not judged, four of each."""
    return 100_000 + people.caption // 4


def test_a_known_curve_is_found_and_holds_for_people_it_never_saw() -> None:
    value, people = judged(8000, 0)
    curve = fit(value, people, others(people), SHARES)
    at = np.linspace(0.1, 0.9, 9)
    assert curve.probability(at) == pytest.approx(at**2, abs=0.06)
    assert curve.expected(at) == pytest.approx(5 * at**2, abs=0.3)
    assert curve.ece < 0.03
    other, unseen = judged(8000, 1)
    predicted = curve.probability(other)
    assert reliability(predicted, unseen.score)[0] < 0.03
    drawn = np.array([np.interp(at, curve.value, draw) for draw in curve.draws])
    assert drawn.shape == (40, 9) and (drawn.std(axis=0) > 0).all()


def test_scores_are_brought_to_0_to_5_whatever_their_scale() -> None:
    """The same people by yes and no, by two ratings of 1..4, and by 0..5: the lowest score is 0 of 5, the highest 5."""
    value, people = judged(2000, 0)
    three = Ratings.of([[1 + 3 * yes, 1 + 3 * yes] for yes in people.score])
    curves = []
    for given in (
        people,
        replace(people, score=three.means, ratings=three, scale=(1.0, 4.0)),
        replace(people, score=5 * people.score, scale=(0.0, 5.0)),
    ):
        scale = scale_of(given)
        curve = fit(value, given, others(people), scale)
        curves.append((curve.score, curve.accepted))
        assert min(curve.score) < 0.2 and scale.low < scale.accept < scale.high
    assert curves[0] == curves[1] == curves[2]


@pytest.mark.parametrize(
    ("scores", "accept", "message"),
    [
        ((0, 100), None, "nobody says from which score people accept, scores are 0 to 100 -> set agree.accept"),
        (None, 3, "does not say between which scores people chose -> give --set agree.scale=LOW..HIGH"),
        ((0, 5), 6, "accepted from 6 on, scores are 0 to 5"),
        ((0, 1), 0, "accepted from 0 on"),
    ],
)
def test_a_scale_that_does_not_fit_is_refused(
    scores: tuple[float, float] | None, accept: float | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        scale_of(replace(judged(400, 2)[1], scale=scores), accept)


@pytest.mark.parametrize("levels", [2, 7, 10**6])
def test_the_error_does_not_hang_on_the_order_of_rows(levels: int) -> None:
    """Values of few levels, most of them the lowest: pairs of one probability are in one bin."""
    random = np.random.default_rng(levels)
    value = np.floor(random.random(3000) ** 4 * levels) / levels
    people = Judgements(random.integers(150, size=3000), np.arange(3000), (random.random(3000) < value).astype(float))
    rows = np.lexsort((people.score, value))
    curves = []
    for order in (np.arange(3000), rows, rows[::-1], random.permutation(3000)):
        given = replace(people, image=people.image[order], caption=people.caption[order], score=people.score[order])
        curves.append(fit(value[order], given, others(given), SHARES))
    for one in curves[1:]:
        assert one.ece == pytest.approx(curves[0].ece, abs=1e-12)
        table = [list(row.values()) for row in one.reliability]
        np.testing.assert_allclose(table, [list(row.values()) for row in curves[0].reliability])
    assert sum(row["pairs"] for row in curves[0].reliability) == 3000


def test_own_pairs_are_left_out_and_few_pairs_refused() -> None:
    value, people = judged(400, 2)
    owner = np.where(np.arange(400) < 350, people.image, others(people))
    with pytest.raises(InputError, match="50 judged pairs of .* calibrate on at least 100 pairs of 10 images"):
        fit(value, people, owner, SHARES)
    owner = people.image.max() + 1 + np.arange(400) % 9
    with pytest.raises(InputError, match="400 judged pairs of .* images with captions of 9, own pairs left out"):
        fit(value, people, owner, SHARES)


def test_a_draw_takes_images_with_their_captions() -> None:
    """Captions of half of the images fit whatever the value: the more pairs of each caption, the wider the curves."""
    random = np.random.default_rng(0)
    spread = {}
    for captions in (3000, 60):
        owner, image = 1000 + random.integers(captions, size=6000), random.integers(300, size=6000)
        people = Judgements(image, np.arange(6000), (owner % 2).astype(float))
        spread[captions] = np.std(fit(random.random(6000), people, owner, SHARES).draws, axis=0).mean()
    assert spread[60] > 1.5 * spread[3000]


@pytest.mark.parametrize(("images", "captions"), [(0.0, 0.25), (0.25, 0.0), (0.25, 0.16)])
def test_spreads_are_those_that_people_were_drawn_with(images: float, captions: float) -> None:
    """Each image is judged with all five captions of three others, so many pairs share both effects."""
    random = np.random.default_rng(0)
    image = np.repeat(np.arange(3000), 15)
    owner = 3000 + np.repeat(random.integers(3000, size=9000), 5)
    of_image, of_caption = (random.choice([-1, 1], 3000) * np.sqrt(spread) for spread in (images, captions))
    value = random.random(len(image)) / 2
    yes = random.random(len(image)) < value * (1 + of_image[image] + of_caption[owner - 3000])
    curve = fit(value, Judgements(image, np.arange(len(image)), yes.astype(float)), owner, SHARES)
    assert (curve.image_spread, curve.caption_spread) == pytest.approx((images, captions), abs=0.03)


def test_agree_writes_what_it_was_fitted_on(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "c", [caption_table(random_sets(20, seed=4, least=2))])
    relevance(folder, tmp_path / "dense", RelevanceParams(measures=("rouge_l",)), MeasuresParams())
    file, out = tmp_path / "dense" / "rouge_l.arrow", tmp_path / "calibration.json"
    found = agree(folder, file, ["rouge_l", "bleu"], MeasuresParams(), calibrate=out)
    assert found["rouge_l"]["calibration"]["ece"] < found["bleu"]["calibration"]["ece"] + 0.05
    read = load(out)
    assert set(read.curves) == {"rouge_l", "bleu"} and read.facts["judgements"]["file"] == "rouge_l.arrow"
    assert read.params["rouge_l"] == MeasuresParams().rouge_l.model_dump()
    save(out, read)  # its own file may be written again
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="is no calibration"):
        agree(folder, file, ["rouge_l"], MeasuresParams(), calibrate=tmp_path / "other.json")
    with pytest.raises(InputError, match="pairs and calibration have one path"):
        agree(folder, file, ["rouge_l"], MeasuresParams(), calibrate=tmp_path / "new", pairs=tmp_path / "new")
    with pytest.raises(InputError, match="is no calibration"):
        save(tmp_path / "other.json", read)


def test_a_table_without_a_scale_calibrates_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores of 0 and 1 of 5 alone: nobody accepts; without the scale that is not known, and is asked for."""
    sets = random_sets(30, seed=4, least=2)
    folder = write_captions_folder(tmp_path / "c", [caption_table(sets)])
    rows = [f"i{i},i{(i + k) % 30}#0,{k % 2}" for i in range(30) for k in range(1, 6)]
    (tmp_path / "j.csv").write_text("\n".join(["image_id,caption_id,score", *rows, ""]))
    line = ["agree", "--captions", str(folder), "--judgements", str(tmp_path / "j.csv"), "--measures", "rouge_l"]
    line += ["--calibrate", str(tmp_path / "c.json")]
    assert call(*line) == 2
    assert "j.csv: does not say between which scores people chose -> give --set agree.scale" in capsys.readouterr().err
    assert call(*line, "--set", "agree.sampling=some") == 2 and "'random' or 'chosen'" in capsys.readouterr().err
    for given, random in (((), False), (("--set", "agree.sampling=random"), True)):
        assert call(*line, "--set", "agree.scale=0..5", *given) == 0
        found = load(tmp_path / "c.json")
        assert set(found.curves["rouge_l"].accepted) == {0.0} and found.random is random


def test_a_file_that_is_no_calibration(tmp_path: Path) -> None:
    value, people = judged(400, 3)
    curve = fit(value, people, others(people), SHARES)
    facts = {"judgements": {"sampling": "random"}, **asdict(SHARES)}
    save(tmp_path / "good.json", Calibration({"m": curve}, {}, facts))
    found = json.loads((tmp_path / "good.json").read_text())
    assert load(tmp_path / "good.json").random
    changes: list[dict[str, Any]] = [
        {"kind": "x"},
        {"format": 9},
        {"measures": {"m": {}}},
        {"accept": None, "params": 3},
    ]
    for change in (*changes, {"judgements": {"sampling": "any"}}, {"judgements": {}}):
        (tmp_path / "bad.json").write_text(json.dumps({**found, **change}))
        with pytest.raises(InputError, match="not a calibration"):
            load(tmp_path / "bad.json")
