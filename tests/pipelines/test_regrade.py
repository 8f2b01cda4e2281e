"""What two models' numbers are worth, by a judge that knows the truth: drawn scenes, and an
endpoint that answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.schemas.captions import read_captions
from tests.conftest import call, caption_table, printed, refusal, write_captions_folder
from tests.pipelines.judging.stand_in import Chat, served

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
    at = ["--endpoint", chat.address, "--judge", "knows", "--set", "judge.parallel=8"]
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
        assert found[direction]["same_first"] > 0.9
    assert (
        "better: image to text R@1 " in said
        and "the same model is first by both: image to text" in said
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


def test_it_goes_on_where_it_was_stopped(world: Path, judge: Chat, tmp_path: Path) -> None:
    prices = ("--set", "judge.price_in=1000", "--set", "judge.price_out=0", "--max-cost", 5)
    said = refusal(*line(judge, tmp_path / "out", "--budget", 300, *prices))
    assert "pairs are not asked about yet" in said and "run the same command again" in said
    before = len(judge.asked)
    printed(*line(judge, tmp_path / "out", "--budget", 300))
    whole = [json.dumps(body, sort_keys=True) for body in judge.asked]
    assert 0 < before < len(whole) == len(set(whole)), "each question once"


def test_two_models_of_one_name_are_refused(world: Path, judge: Chat, tmp_path: Path) -> None:
    said = refusal(*line(judge, tmp_path / "out", "--similarity", "other=better.npy"))
    assert "two models are called 'other' -> name one: --similarity NAME=FILE" in said
