"""Calibration: a known curve is found, error is of held-out images, a file says what it was fitted
on and what it means for other people."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from capgrade.agreement.calibration import (
    SHIPPED,
    calibration_file,
    load_calibration,
    scale_of,
    some_references,
)
from capgrade.agreement.curve import Curve, Scale, fit, reliability, through
from capgrade.agreement.judgements import Judgements, Ratings
from capgrade.measures.bleu import BleuParams
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance
from tests.conftest import agreement, call, caption_table, random_sets, write_captions_folder

PLAIN = MeasuresParams()
SHARES = Scale(0.5, 0.0, 1.0)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROUGE-L judges some captions: what BLEU and CIDEr-D mean by it. Other captions with the same
    judge."""
    folder: Path = tmp_path_factory.mktemp("transfer")
    for name, seed in (("here", 4), ("there", 5)):
        captions = write_captions_folder(
            folder / name, [caption_table(random_sets(20, seed=seed, least=2))]
        )
        relevance(
            captions, folder / f"{name}-dense", RelevanceParams(measures=("rouge_l", "bleu")), PLAIN
        )
    judge = folder / "here-dense" / "rouge_l.arrow"
    out = folder / "agree"
    agreement(folder / "here", judge, ["bleu", "cider"], PLAIN, out=out, calibrate=True, accept=0.3)
    (out / "calibration.json").rename(folder / "here.json")
    return folder


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
    assert drawn.shape == (40, 9) and (drawn.std(axis=0) > 1e-3).all()


def test_scores_are_brought_to_0_to_5_whatever_their_scale() -> None:
    """The same people by yes and no, by two ratings of 1..4, and by 0..5: the lowest score is 0 of
    5, the highest 5."""
    value, people = judged(2000, 0)
    three = Ratings.of([[1 + 3 * yes, 1 + 3 * yes] for yes in people.score])
    experts = replace(people, score=three.means, ratings=three, scale=(1.0, 4.0))
    graded = replace(people, score=5 * people.score, scale=(0.0, 5.0))
    curves = [
        fit(value, given, others(people), scale_of(given)) for given in (people, experts, graded)
    ]
    assert min(curves[0].score) < 0.2
    assert all((one.score, one.accepted) == (curves[0].score, curves[0].accepted) for one in curves)


@pytest.mark.parametrize(
    ("scores", "accept", "message"),
    [
        (
            (0, 100),
            None,
            "nobody says from which score people accept, scores are 0 to 100 -> set agree.accept",
        ),
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
    people = Judgements(
        random.integers(150, size=3000),
        np.arange(3000),
        (random.random(3000) < value).astype(float),
    )
    rows = np.lexsort((people.score, value))
    curves = []
    for order in (np.arange(3000), rows, rows[::-1], random.permutation(3000)):
        given = replace(
            people,
            image=people.image[order],
            caption=people.caption[order],
            score=people.score[order],
        )
        curves.append(fit(value[order], given, others(given), SHARES))
    first, *rest = (
        [[curve.ece] * 3, *(list(row.values()) for row in curve.reliability)] for curve in curves
    )
    assert (
        all(np.allclose(one, first, atol=1e-12) for one in rest)
        and sum(row[2] for row in first[1:]) == 3000
    )


def test_own_pairs_are_left_out_and_few_pairs_refused() -> None:
    (value, people), row = judged(400, 2), np.arange(400)
    for owner, said in (
        (
            np.where(row < 350, people.image, others(people)),
            "50 judged pairs of .* at least 100 pairs of 10 images",
        ),
        (
            people.image.max() + 1 + row % 9,
            "400 judged pairs of .* images with captions of 9, own pairs left out",
        ),
    ):
        with pytest.raises(InputError, match=said):
            fit(value, people, owner, SHARES)


def test_a_draw_takes_images_with_their_captions() -> None:
    """Captions of half of the images fit whatever the value: the more pairs of each caption, the
    wider the curves."""
    random = np.random.default_rng(0)
    spread = {}
    for captions in (3000, 60):
        owner, image = 1000 + random.integers(captions, size=6000), random.integers(300, size=6000)
        people = Judgements(image, np.arange(6000), (owner % 2).astype(float))
        spread[captions] = np.std(
            fit(random.random(6000), people, owner, SHARES).draws, axis=0
        ).mean()
    assert spread[60] > 1.5 * spread[3000]


@pytest.mark.parametrize(("images", "captions"), [(0.0, 0.25), (0.25, 0.0), (0.25, 0.16)])
def test_spreads_are_those_that_people_were_drawn_with(images: float, captions: float) -> None:
    """Each image is judged with all five captions of three others, so many pairs share both
    effects."""
    random = np.random.default_rng(0)
    image = np.repeat(np.arange(3000), 15)
    owner = 3000 + np.repeat(random.integers(3000, size=9000), 5)
    of_image, of_caption = (
        random.choice([-1, 1], 3000) * np.sqrt(spread) for spread in (images, captions)
    )
    value = random.random(len(image)) / 2
    yes = random.random(len(image)) < value * (1 + of_image[image] + of_caption[owner - 3000])
    curve = fit(value, Judgements(image, np.arange(len(image)), yes.astype(float)), owner, SHARES)
    assert (curve.image_spread, curve.caption_spread) == pytest.approx((images, captions), abs=0.03)


def test_agree_writes_what_it_was_fitted_on(world: Path, tmp_path: Path) -> None:
    folder = world / "here"
    file = world / "here-dense" / "rouge_l.arrow"
    out = tmp_path / "agree"
    found = agreement(folder, file, ["rouge_l", "bleu"], PLAIN, out=out, calibrate=True)
    assert found["rouge_l"]["calibration"]["ece"] < found["bleu"]["calibration"]["ece"] + 0.05
    read = load_calibration(out / "calibration.json")
    assert (
        set(read.curves) == {"rouge_l", "bleu"}
        and read.facts["judgements"]["file"] == "rouge_l.arrow"
    )
    assert read.params["rouge_l"] == PLAIN.rouge_l.model_dump() and read.random
    with pytest.raises(InputError, match="--calibrate writes a file -> give --out"):
        agreement(folder, file, ["rouge_l"], PLAIN, calibrate=True)


def test_a_table_without_a_scale_calibrates_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores of 0 and 1 of 5 alone: nobody accepts; without the scale that is not known, and is
    asked for."""
    sets = random_sets(30, seed=4, least=2)
    folder = write_captions_folder(tmp_path / "c", [caption_table(sets)])
    rows = [f"i{i},i{(i + k) % 30}#0,{k % 2}" for i in range(30) for k in range(1, 6)]
    (tmp_path / "j.csv").write_text("\n".join(["image_id,caption_id,score", *rows, ""]))
    line = [
        "agree",
        "--captions",
        str(folder),
        "--judgements",
        str(tmp_path / "j.csv"),
        "--measures",
        "rouge_l",
    ]
    line += ["--calibrate", "--out", str(tmp_path / "agree")]
    assert call(*line) == 2
    assert (
        "j.csv: does not say between which scores people chose -> give --set agree.scale"
        in capsys.readouterr().err
    )
    assert (
        call(*line, "--set", "agree.sampling=some") == 2
        and "choose from: random, chosen" in capsys.readouterr().err
    )
    for given, random in (((), False), (("--set", "agree.sampling=random"), True)):
        assert call(*line, "--set", "agree.scale=0..5", *given) == 0
        found = load_calibration(tmp_path / "agree" / "calibration.json")
        assert set(found.curves["rouge_l"].accepted) == {0.0} and found.random is random


def test_a_file_that_is_no_calibration(world: Path, tmp_path: Path) -> None:
    found = json.loads((world / "here.json").read_text())
    for change in (
        {"kind": "x"}, {"format": 9}, {"measures": {"m": {}}}, {"accept": None, "params": 3},
        {"judgements": {"sampling": "any"}}, {"judgements": {}},
    ):  # fmt: skip
        (tmp_path / "bad.json").write_text(json.dumps({**found, **change}))
        with pytest.raises(InputError, match="not a calibration"):
            load_calibration(tmp_path / "bad.json")


def test_what_values_mean_elsewhere_is_judged(world: Path) -> None:
    """Against scipy's coefficients of the values that numpy reads off the written curve."""
    judge, known = world / "there-dense" / "rouge_l.arrow", world / "here.json"
    found = agreement(
        world / "there", judge, ["rouge_l", "bleu"], PLAIN, calibration=str(known), accept=0.4
    )
    assert set(found) == {"rouge_l", "bleu", "bleu_score", "bleu_accepted", "bleu_grade", "binary"}
    owner = read_captions(world / "there", None).owner
    other = (owner[None, :] != np.arange(owner.max() + 1)[:, None]).ravel()
    dense = (
        read_relevance(world / "there-dense" / f"{name}.arrow") for name in ("rouge_l", "bleu")
    )
    (judged_as, bleu), curve = (
        (one.matrix().ravel()[other] for one in dense),
        load_calibration(known).curves["bleu"],
    )
    score, accepted = (np.interp(bleu, curve.value, line) for line in (curve.score, curve.accepted))
    grade = np.array([round(value + 1e-9) for value in score])
    for end, of in (("score", score), ("accepted", accepted), ("grade", grade)):
        wanted = stats.kendalltau(of, judged_as).statistic
        assert found[f"bleu_{end}"]["kendall"]["non_original"] == pytest.approx(wanted), end
    error = found["bleu_accepted"]["calibration"]
    assert (error["ece"], error["reliability"]) == reliability(accepted, judged_as >= 0.4), (
        "by who accepts here"
    )
    assert "calibration" not in found["bleu"] and "calibration" not in found["bleu_score"]


def test_what_does_not_fit_is_refused(world: Path, tmp_path: Path) -> None:
    judge, known = world / "there-dense" / "rouge_l.arrow", world / "here.json"

    def refused(
        message: str, names: list[str], measures: MeasuresParams = PLAIN, given: Path = known
    ) -> None:
        with pytest.raises(InputError, match=message):
            agreement(world / "there", judge, names, measures, calibration=str(given))

    refused("calibrates bleu, cider, none of rouge_l", ["rouge_l"])
    refused(
        "bleu has other parameters than in here.json",
        ["bleu"],
        MeasuresParams(bleu=BleuParams(n=2)),
    )
    refused("no such file|cannot be read", ["bleu"], given=tmp_path / "none.json")


def test_the_calibration_that_comes_with_capgrade_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(load_calibration(calibration_file(Path("crisscrossed"))).curves) == [
        "people",
        "people_shared",
        "sbert",
        "scene_graph",
    ]
    monkeypatch.chdir(tmp_path)
    Path("crisscrossed").write_text("mine")
    assert calibration_file(Path("crisscrossed")) == Path("crisscrossed")


def test_a_curve_of_as_many_references_as_the_corpus_has(world: Path, tmp_path: Path) -> None:
    """One value over fewer references means more: the same P at a lower value."""
    captions = write_captions_folder(
        tmp_path / "five", [caption_table(random_sets(25, seed=6, least=5, most=5))]
    )
    relevance(captions, tmp_path / "dense", RelevanceParams(measures=("rouge_l",)), PLAIN)
    judge, out = tmp_path / "dense" / "rouge_l.arrow", tmp_path / "agree"
    agreement(captions, judge, ["bleu"], PLAIN, out=out, calibrate=True, accept=0.5)
    known = load_calibration(out / "calibration.json")
    assert (
        known.references == 5
        and set(known.fewer) == {1, 2, 3}
        and all(set(one) == {"bleu"} for one in known.fewer.values())
    )
    used = {n: known.fitting(np.repeat(np.arange(9), n)) for n in range(1, 8)}
    assert [one.references for one in used.values()] == [1, 2, 3, 3, 5, 5, 5]
    assert used[7] == known and used[1].curves == known.fewer[1]
    table = read_captions(captions)
    ptr, refs = some_references(table, 2)
    assert (np.diff(ptr) == 2).all() and (table.owner[refs] == np.repeat(np.arange(25), 2)).all()
    assert len(set(refs.tolist())) == 50


def test_the_shipped_curves_of_fewer_references() -> None:
    """The largest of five values says less than one value: P .25 is at a lower value with fewer."""
    known = load_calibration(SHIPPED)
    assert known.references == 5 and set(known.fewer) == {1, 2, 3}
    for name, curve in known.curves.items():
        at = [known.fewer[n][name].value_at(0.25) for n in (1, 2, 3)] + [curve.value_at(0.25)]
        assert at == sorted(at) and curve.probability(np.array(at[3])) == pytest.approx(
            0.25, abs=1e-4
        )


def test_the_value_at_a_probability() -> None:
    curve = Curve([0.0, 0.2, 0.4, 1.0], [0.0] * 4, [0.0, 0.5, 0.5, 0.9], [], 0.0, [], 1, 0.0, 0.0)
    assert [curve.value_at(p) for p in (0.25, 0.5, 0.7, 0.9)] == pytest.approx([0.1, 0.2, 0.7, 1.0])
    for p in (0.0, 0.91):
        with pytest.raises(InputError, match="no value has P .* give a P above 0, at most 0.9"):
            curve.value_at(p)


def test_what_fewer_references_say_adds_up_to_the_same() -> None:
    """Judged pairs are the most alike by the best of five values; of one value P is what five say
    of it on average, not what the chosen pairs that have it say."""
    random, n = np.random.default_rng(0), 40_000
    five = random.beta(1, 6, (n, 5))
    best, one = five.max(axis=1), five[:, 0]
    yes = (random.random(n) < best**3).astype(float)
    chosen = np.argsort(-best - random.gumbel(size=n) * 0.1)[:8000]
    people = Judgements(
        random.integers(400, size=8000), np.arange(8000), yes[chosen], scale=(0.0, 1.0)
    )
    whole = fit(best[chosen], people, others(people), SHARES)
    less, by_chosen = through(whole, best, one), fit(one[chosen], people, others(people), SHARES)
    sums = [
        curve.probability(of).sum() for curve, of in ((whole, best), (less, one), (by_chosen, one))
    ]
    assert sums[1] == pytest.approx(sums[0], rel=0.05) and sums[0] == pytest.approx(
        yes.sum(), rel=0.15
    )
    assert sums[2] > 1.5 * yes.sum()
    near = (one > 0.45) & (one < 0.55)
    assert less.probability(np.array(0.5)) == pytest.approx(yes[near].mean(), abs=0.06)
    assert len(less.draws) == 40 and less.pairs == 8000
