"""The commands around trained models, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import call

SETS = ["--set", "train.model.options={embed: 16, word: 8}", "--set", "train.batch_size=8", "--device", "cpu"]


@pytest.fixture
def data(small) -> list[str]:
    return ["--captions", str(small.data.captions), "--regions", str(small.data.regions)]


def test_train_embed_search_and_evaluate(small, data: list[str], tmp_path: Path, capsys) -> None:
    run = tmp_path / "runs" / "mine"
    trained = ("train", "--preset", "triplet", *data, "--epochs", "2", *SETS, "--out", str(run))
    assert call(*trained, "--json") == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 2
    assert call(*trained) == 0  # left as it is
    assert "2 epochs" in capsys.readouterr().out
    assert call("search", "--run", str(run), "--query", "a dog") == 2
    assert "run `capgrade embed` again with --out" in capsys.readouterr().err
    assert call("embed", "--run", str(run), *data, "--split", "test") == 0
    assert "8 images, 16 captions" in capsys.readouterr().out
    assert np.load(run / "index" / "similarity.npy").shape == (8, 16)
    assert call("search", "--run", str(run), "--query", "a dog and a cat", "--top", "3", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["hits"]) == 3
    assert call("search", "--run", str(run), "--image", "test-i3", "--top", "2") == 0
    assert "relevance" in capsys.readouterr().out
    scored = ("--captions", str(small.data.captions), "--split", "test", "--samples", "0")
    similarity = str(run / "index" / "similarity.npy")
    assert call("evaluate", *scored, "--similarity", similarity, "--metric", "recall@1", "--json") == 0
    assert 0 <= json.loads(capsys.readouterr().out)["i2t"]["recall@1"] <= 1


# What is wrong -> the arguments after the data, and part of the one line.
BAD = {
    "an unknown preset": (["--preset", "samm"], "samm"),
    "no shards for a look-up": (["--preset", "sam", "--set", "train.relevance=shards"], "give --shards"),
    "a batch larger than the split": (["--preset", "triplet", "--set", "train.batch_size=500"], "500"),
    "an unknown measure": (["--preset", "sam", "--set", "train.measure=cidr"], "unknown measure 'cidr'"),
    "a model that is not there": (["--set", "train.model.name=clap"], "unknown model 'clap'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(data: list[str], tmp_path: Path, capsys, case: str) -> None:
    arguments, message = BAD[case]
    capsys.readouterr()
    assert call("train", *data, *arguments, "--out", str(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and len(said.splitlines()) == 1


def test_a_search_needs_one_question(tmp_path: Path, capsys) -> None:
    assert call("search", "--run", str(tmp_path)) == 2
    assert "give one of --query and --image" in capsys.readouterr().err
