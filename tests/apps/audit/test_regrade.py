"""What two models' numbers are worth, by a judge that knows the truth: drawn scenes, and an
endpoint that answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.apps.audit.regrade import _as_share, _cell, _percent
from capgrade.labels import Labels
from capgrade.metrics import ndcg
from capgrade.metrics.judged_sample import Estimate
from capgrade.schemas.captions import read_captions
from capgrade.schemas.pairs import Pairs
from tests.apps.judging.stand_in import Chat, served
from tests.conftest import call, caption_table, printed, refusal, write_captions_folder

N = 120  # images; the captions of an image, and of its twins, name its kind
KINDS = 12


def kind_of(text: str) -> str:
    return re.findall(r"kind\d+", text)[-1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions and the similarities of two models, of which the first is better."""
    folder = tmp_path_factory.mktemp("world")
    kinds = np.random.default_rng(0).integers(0, KINDS, N)
    sets = [
        [f"a thing of kind{kind} number {k} {part}" for part in ("here", "there")]
        for k, kind in enumerate(kinds)
    ]
    captions = read_captions(write_captions_folder(folder / "captions", [caption_table(sets)]))
    owner, random = captions.owner, np.random.default_rng(1)
    same = kinds[:, None] == kinds[owner][None]
    own = np.arange(N)[:, None] == owner[None]
    for name, noise in {"better": 0.4, "worse": 0.8}.items():
        np.save(
            folder / f"{name}.npy",
            (same + 0.3 * own + noise * random.normal(size=same.shape)).astype(np.float32),
        )
    return folder


def rating(body: dict[str, Any]) -> str:
    """5 where the caption is of the kind of the image's others, else 0."""
    text = next(said["content"] for said in body["messages"] if said["role"] == "user")
    kinds = re.findall(r"kind\d+", text)
    return "5" if len(set(kinds)) == 1 else "0"


@pytest.fixture
def judge(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(world)
    with served(Chat(rating)) as chat:
        yield chat


def line(chat: Chat, out: Path, *more: object) -> list[object]:
    models = ["--similarity", "better.npy", "--similarity", "other=worse.npy"]
    at = ["--endpoint", chat.address, "--judge-model", "knows", "--set", "judge.parallel=8"]
    return ["regrade", "--captions", "captions", *models, *at, "--out", out, *more]


def truth(world: Path, name: str, direction: str) -> tuple[float, float]:
    """R@1 as benchmarks count, and with every pair of one kind right."""
    captions, S = read_captions(world / "captions"), np.load(world / f"{name}.npy")
    kinds = np.array([kind_of(text) for text in captions.texts])
    of_image = kinds[[captions.rows_of(i)[0] for i in range(N)]]
    if direction == "i2t":
        best = S.argmax(axis=1)
        return float((captions.owner[best] == np.arange(N)).mean()), float(
            (kinds[best] == of_image).mean()
        )
    best = S.argmax(axis=0)
    return float((best == captions.owner).mean()), float((of_image[best] == kinds).mean())


def dense_ndcg(world: Path, name: str, direction: str) -> float:
    """NDCG@10 by the judge's grades of every own pair and of what a model ranks among the first
    ten of a query: 1 of one kind, else 0."""
    captions = read_captions(world / "captions")
    models = {one: np.load(world / f"{one}.npy") for one in ("better", "worse")}
    kinds = np.array([kind_of(text) for text in captions.texts])
    gains = (kinds[captions.refs[captions.ref_ptr[:-1]]][:, None] == kinds[None]).astype(float)
    if direction == "t2i":
        models, gains = {one: S.T for one, S in models.items()}, gains.T
    own = np.arange(N)[:, None] == captions.owner
    listed = own if direction == "i2t" else own.T
    for S in models.values():
        listed = listed | (np.argsort(np.argsort(-S, axis=1), axis=1) < 10)
    return float(ndcg(models[name], gains * listed, 10).mean())


def test_the_truth_lies_in_the_interval(
    world: Path, judge: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a fortieth of the pairs; a run again asks nothing."""
    assert call(*line(judge, tmp_path / "out", "--budget", 700)) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "regraded.json").read_text())
    for direction in ("i2t", "t2i"):
        for model, name in (("better", "better"), ("other", "worse")):
            benchmark, right = truth(world, name, direction)
            one = found[direction]["models"][model]
            assert one["benchmark"] == pytest.approx(benchmark) and right > benchmark + 0.1
            assert one["low"] - 0.02 <= right <= one["high"] + 0.02, (direction, model)
            graded = one["ndcg@10"]
            true = dense_ndcg(world, name, direction)
            assert graded["value"] == pytest.approx(true, abs=0.1), (direction, model)
            if "note" not in graded:
                assert graded["low"] - 0.02 <= true <= graded["high"] + 0.02, (direction, model)
        assert found[direction]["same_first"] > 0.9
    assert (
        "better: image to text R@1 " in said
        and "better: NDCG@10 by the judge's grades image to text " in said
        and "the same model is first by both: image to text" in said
        and "not calibrated: the judge's score alone says what is right" in said
    )
    asked = len(judge.asked)
    assert 0 < asked <= 700
    printed(*line(judge, tmp_path / "again", "--budget", 700))
    assert len(judge.asked) == asked, "no question is asked twice"


def test_what_is_written(world: Path, judge: Chat, tmp_path: Path) -> None:
    printed(*line(judge, tmp_path / "out", "--budget", 300))
    captions = read_captions(world / "captions")
    rows = (tmp_path / "out" / "qrels-t2i.tsv").read_text().splitlines()
    assert rows[0] == "query-id\tcorpus-id\tscore" and len(rows) == 1 + captions.n_captions + 300
    likely = (tmp_path / "out" / "likely.csv").read_text().splitlines()[1:]
    graded = {tuple(row.split("\t")[:2]): int(row.split("\t")[2]) for row in rows[1:]}
    for row in likely:
        image, caption, score, *_ = row.split(",")
        assert graded[caption, image] == round(100 * float(score)) >= 50
    page = (tmp_path / "out" / "regraded.html").read_text()
    assert "Changed answers of better" in page and "with what is also right" in page
    assert call("verify", tmp_path / "out") == 0


def test_scores_that_differ_in_float64_alone_are_ranked(
    world: Path, judge: Chat, tmp_path: Path
) -> None:
    """The same orders a thousand-millionth apart give the same figures."""
    for name in ("better", "worse"):
        near = 0.5 + 1e-9 * np.load(world / f"{name}.npy").astype(np.float64)
        assert len(np.unique(near.astype(np.float32))) < 4
        np.save(tmp_path / f"{name}.npy", near)
    at = ["--endpoint", judge.address, "--judge-model", "knows", "--set", "judge.parallel=8"]
    found = []
    for folder in (world, tmp_path):
        models = [f"{name}={folder / name}.npy" for name in ("better", "worse")]
        given = [word for model in models for word in ("--similarity", model)]
        out = tmp_path / f"out-{folder.name}"
        printed("regrade", "--captions", "captions", *given, *at, "--budget", 300, "--out", out)
        found.append(json.loads((out / "regraded.json").read_text()))
    assert found[0] == found[1]


def people_of(world: Path, file: Path, pairs: int, sampling: str | None = None) -> dict[str, float]:
    """Judgements of random pairs: people accept seven of ten of one kind and one of ten others.
    A column says the `sampling`, if it is given. Returns the share that they accept, of each kind of
    pair: `same` and `other`."""
    captions, random = read_captions(world / "captions"), np.random.default_rng(5)
    kinds = np.array([kind_of(text) for text in captions.texts])
    rows, given = ["image_id,caption_id,score,scale"], {"same": [], "other": []}
    of_image = kinds[captions.refs[captions.ref_ptr[:-1]]]
    for kind, mask in (("same", of_image[:, None] == kinds), ("other", of_image[:, None] != kinds)):
        image, caption = np.nonzero(mask & (captions.owner != np.arange(N)[:, None]))
        for k in random.choice(len(image), pairs // 2, replace=False):
            yes = bool(random.random() < {"same": 0.7, "other": 0.1}[kind])
            given[kind].append(yes)
            ids = captions.image_ids[image[k]], captions.caption_ids[caption[k]]
            rows.append(f"{','.join(ids)},{int(yes)},0..1")
    if sampling is not None:
        rows = [
            f"{row},{what}"
            for row, what in zip(rows, ["sampling", *[sampling] * pairs], strict=True)
        ]
    file.write_text("\n".join(rows) + "\n")
    return {kind: float(np.mean(yes)) for kind, yes in given.items()}


def test_people_say_what_a_score_means(
    world: Path, judge: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge has two scores; what counts of each is the share that people accepted, by all of
    their 200 pairs. The truth is what a world has where every pair counts so much."""
    accepted = people_of(world, tmp_path / "people.csv", 200)
    people = ("--judgements", tmp_path / "people.csv", "--budget", 800)
    assert call(*line(judge, tmp_path / "out", *people)) == 0
    said = capsys.readouterr().out
    told = "right is the probability that people accept, by 200 pairs of people.csv"
    assert f"{told}; these were chosen, so read R@1 as an upper end" in said
    found = json.loads((tmp_path / "out" / "regraded.json").read_text())
    assert found["pairs"] == 600 and found["calibration"]["pairs"] == 200
    assert (found["calibration"]["accept"], found["calibration"]["sampling"]) == (0.5, "chosen")
    captions = read_captions(world / "captions")
    labels = Labels.load(tmp_path / "out" / "targets", captions=world / "captions")
    assert labels.measures == ["judge", "judge_accepted"]
    both = [Pairs.concatenate(labels.stored.pairs(name)) for name in labels.measures]
    other = captions.owner[both[0].caption] != both[0].image
    for score, kind in ((0, "other"), (1, "same")):
        right = both[1].value[other & (both[0].value == score)]
        assert right == pytest.approx(accepted[kind], abs=2e-5), kind
    for direction in ("i2t", "t2i"):
        for model, name in (("better", "better"), ("other", "worse")):
            benchmark, same = truth(world, name, direction)
            one = found[direction]["models"][model]
            true = benchmark + 0.7 * (same - benchmark) + 0.1 * (1 - same)
            assert one["low"] <= true <= one["high"], (direction, model, true, one)
            assert one["high"] - one["low"] > 0.04, "ten pairs more or less are accepted by chance"
    drawn = (*people, "--set", "agree.sampling=random")
    assert call(*line(judge, tmp_path / "random", *drawn)) == 0
    assert f"{told}\n" in capsys.readouterr().out
    people_of(world, tmp_path / "people.csv", 200, "random")
    assert call(*line(judge, tmp_path / "said", *people)) == 0
    assert f"{told}\n" in capsys.readouterr().out, "a column that says random in every row"
    page = (tmp_path / "out" / "regraded.html").read_text()
    assert "Calibrated: right is the probability that people accept" in page


def test_judgements_that_cannot_calibrate_are_refused_before_anything_is_asked(
    world: Path, judge: Chat, tmp_path: Path
) -> None:
    people_of(world, tmp_path / "few.csv", 60)
    said = refusal(*line(judge, tmp_path / "out", "--judgements", tmp_path / "few.csv"))
    assert "60 judged pairs of" in said and not judge.asked


def test_targets_hold_what_is_known_alone(world: Path, judge: Chat, tmp_path: Path) -> None:
    """Own pairs are 1, judged pairs have their score, and every other pair is unknown; weights are
    those of the pool."""
    printed(*line(judge, tmp_path / "out", "--budget", 300))
    captions = read_captions(world / "captions")
    labels = Labels.load(tmp_path / "out" / "targets", captions=world / "captions")
    block = labels.block(range(N), range(captions.n_captions))
    expected = np.full((N, captions.n_captions), np.nan)
    weight = np.zeros_like(expected)
    for text in (tmp_path / "out" / "judged.csv").read_text().splitlines()[1:]:
        image, caption, score, *_ = text.split(",")
        at = captions.image_numbers[image], captions.caption_numbers[caption]
        expected[at] = float(score) / 5
    for text in (tmp_path / "out" / "pairs.jsonl").read_text().splitlines():
        pair = json.loads(text)
        at = captions.image_numbers[pair["image_id"]], captions.caption_numbers[pair["caption_id"]]
        weight[at] = 1 / pair["probability"]
    own = captions.owner[None] == np.arange(N)[:, None]
    expected[own], weight[own] = 1, 1
    assert (block.known == ~np.isnan(expected)).all() and block.known.sum() == own.sum() + 300
    assert block.relevance[block.known] == pytest.approx(expected[block.known])
    assert block.weights == pytest.approx(weight, rel=1e-6)


def test_it_goes_on_where_it_was_stopped(world: Path, judge: Chat, tmp_path: Path) -> None:
    prices = ("--set", "judge.price_in=1000", "--set", "judge.price_out=0", "--max-cost", 5)
    said = refusal(*line(judge, tmp_path / "out", "--budget", 300, *prices))
    assert "pairs are not asked about yet" in said and "run the same command again" in said
    before = len(judge.asked)
    printed(*line(judge, tmp_path / "out", "--budget", 300))
    whole = [json.dumps(body, sort_keys=True) for body in judge.asked]
    assert 0 < before < len(whole) == len(set(whole)), "each question once"


def test_what_changes_answers_makes_another_run(
    world: Path, judge: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stopped run is gone on with if judge, prompt, split and budget are the same: not for another
    prompt, and whatever the endpoint's address and the pace are."""
    stopped = ("--set", "judge.price_in=1000", "--set", "judge.price_out=0", "--max-cost", 5)

    def begin(*more: object) -> str:
        capsys.readouterr()
        budget = () if "--budget" in more else ("--budget", 300)
        assert call(*line(judge, tmp_path / "out", *budget, *stopped, *more)) == 2
        return capsys.readouterr().err

    begin()
    judge.address = judge.address.replace("127.0.0.1", "localhost")
    assert "is not gone on with" not in begin("--set", "judge.per_minute=100000")
    for more, changed in (
        (("--set", "judge.prompt=captions_again"), "asked.prompts."),
        (("--budget", 299), "asked.budget 300 -> 299"),
    ):
        assert changed in begin(*more), more


def test_another_split_makes_another_run(
    judge: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one folder: its digest is the same."""
    sets = [[f"kind1 {k} {part}" for part in ("here", "there")] for k in range(20)]
    tables = [caption_table(sets, split, f"{split}-i") for split in ("val", "test")]
    write_captions_folder(tmp_path / "captions", tables)
    np.save(tmp_path / "s.npy", np.random.default_rng(0).random((20, 40)).astype(np.float32))
    at = ["--endpoint", judge.address, "--judge-model", "knows", "--out", tmp_path / "out"]
    given = ["--captions", tmp_path / "captions", "--similarity", tmp_path / "s.npy", *at]
    for split in ("val", "test"):
        found = printed("regrade", *given, "--budget", 100, "--split", split)
        assert found["answered"] == 100
    assert 'other parameters or inputs: split "val" -> "test"' in capsys.readouterr().err
    labels = Labels.load(tmp_path / "out" / "targets", captions=tmp_path / "captions")
    assert labels.image_ids[0] == "test-i0"


def test_two_models_of_one_name_are_refused(world: Path, judge: Chat, tmp_path: Path) -> None:
    said = refusal(*line(judge, tmp_path / "out", "--similarity", "other=better.npy"))
    assert "two models are called 'other' -> name one: --similarity NAME=FILE" in said


def test_a_stratum_without_any_answer_has_no_interval(
    world: Path, judge: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge answers what no model ranks first, and nothing else: what is ranked first is taken
    to be like it, and the output says so instead of an interval."""
    captions = read_captions(world / "captions")
    first = set()
    for name in ("better", "worse"):
        S = np.load(world / f"{name}.npy")
        first |= set(zip(range(N), S.argmax(axis=1).tolist(), strict=True))
        first |= set(zip(S.argmax(axis=0).tolist(), range(S.shape[1]), strict=True))
    texts = {
        (frozenset(captions.texts[row] for row in captions.rows_of(image)), captions.texts[caption])
        for image, caption in first
    }

    def silent(body: dict[str, Any]) -> str:
        text = next(said["content"] for said in body["messages"] if said["role"] == "user")
        shown, caption = text.split("How well")
        image = frozenset(line[2:] for line in shown.splitlines() if line.startswith("- "))
        return "no idea" if (image, caption.splitlines()[1]) in texts else rating(body)

    judge.score = silent
    # Nine of each stratum: after twenty without an answer in a row the judge is given up.
    assert call(*line(judge, tmp_path / "out", "--budget", 36)) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "regraded.json").read_text())
    assert found["silent"] == found["unanswered"] == 18
    assert f"no interval: none of {found['silent']:,} pairs that were drawn alike" in said
    for direction in ("i2t", "t2i"):
        for one in found[direction]["models"].values():
            assert one["low"] is None and one["ndcg@10"]["high"] is None and 0 <= one["value"] <= 1
    assert "no interval" in (tmp_path / "out/regraded.html").read_text()


def test_what_is_no_share_is_a_dash() -> None:
    nan = float("nan")
    value = _as_share(Estimate(nan, nan, nan, 0.1, "no value: few pairs"))
    assert value["value"] is None and value["low"] is None
    assert _percent(value) == "–"
    cell = _cell(value)
    assert (cell.text, cell.note) == ("–", "no value")
