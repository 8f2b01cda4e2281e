"""The commands around trained models, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import call

SETS = [
    "--set",
    "train.model.options={embed: 16, word: 8}",
    "--set",
    "train.batch_size=8",
    "--set",
    "train.device=cpu",
]


@pytest.fixture
def data(small) -> list[str]:
    return ["--captions", str(small.data.captions), "--regions", str(small.data.regions)]


def test_train_evaluate_and_search(
    small, data: list[str], tmp_path: Path, capsys, monkeypatch
) -> None:
    run = tmp_path / "runs" / "mine"
    trained = ("train", "--preset", "triplet", *data, "--epochs", "2", *SETS, "--out", str(run))
    assert call(*trained, "--json") == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 2
    assert call(*trained) == 0  # left as it is
    assert "2 epochs" in capsys.readouterr().out
    assert call("search", "--run", str(run), "--query", "a dog") == 2
    assert "run `capgrade embed` again with --out" in capsys.readouterr().err
    few = ("--split", "test", "--set", "evaluate.samples=0", "--metric", "recall@1", "--out")
    index = ("--split", "test", "--out", str(run / "index"))
    assert call("embed", "--run", str(run), *data, *index) == 0
    assert capsys.readouterr().out == f"8 images, 16 captions -> {run}/index\n"
    assert np.load(run / "index" / "similarity.npy").shape == (8, 16)
    assert (
        call("search", "--run", str(run), "--query", "a dog and a cat", "--top", "3", "--json") == 0
    )
    assert len(json.loads(capsys.readouterr().out)["hits"]) == 3
    assert call("search", "--run", str(run), "--image", "test-i3", "--top", "2") == 0
    assert "relevance" in capsys.readouterr().out
    given = (
        "--captions",
        str(small.data.captions),
        "--similarity",
        str(run / "index" / "similarity.npy"),
    )
    for name in ("one", "two"):
        assert call("evaluate", *given, *few, str(tmp_path / name)) == 0
    assert f"8 images, 16 captions -> {tmp_path}/two\n" in capsys.readouterr().out
    for name in ("metrics.json", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    capsys.readouterr()
    both = (str(tmp_path / "one"), f"b={tmp_path / 'two'}")
    assert call("compare", *both, "--json") == 0
    assert json.loads(capsys.readouterr().out)["i2t/recall@1"]["difference"] == 0
    monkeypatch.setenv("COLUMNS", "160")
    assert call("compare", *both, "--metric", "recall@1") == 0
    assert "one less b" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("search --run R", "give one of --query and --image"),
        (
            "compare a=A --json",
            "a paired test is of two evaluations or more, not 1 -> leave --json out",
        ),
        (
            "compare a=A a=B",
            "'a' is the label of two evaluations -> give LABEL=DIR",
        ),
        (
            "compare nowhere",
            "no evaluations here -> write them with capgrade evaluate --out",
        ),
        ("evaluate --similarity s.npy", "nothing to evaluate -> give --captions, or --lists"),
    ],
)
def test_what_an_evaluation_or_a_search_is_of(line: str, message: str, capsys) -> None:
    assert call(*line.split()) == 2
    said = capsys.readouterr().err
    assert message.partition(" -> ")[0] in said and message.rpartition(" -> ")[2] in said
