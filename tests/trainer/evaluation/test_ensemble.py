"""Several models' similarities averaged: the numbers, what the manifest names, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade.schemas.files import digest, read_manifest
from capgrade.schemas.params import EvaluateParams
from capgrade.trainer.evaluation.evaluate import compare, evaluate
from capgrade.trainer.evaluation.tables import side_by_side
from capgrade.trainer.evaluation.task import Task
from tests.conftest import call
from tests.trainer.evaluation.test_evaluate import IMAGES, OWNER, captions_folder

RANDOM = np.random.default_rng(5)
FIRST, SECOND = RANDOM.uniform(-1, 1, (2, IMAGES, len(OWNER))).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    captions_folder(tmp_path / "captions")
    np.save(tmp_path / "A.npy", FIRST)
    np.save(tmp_path / "B.npy", SECOND)
    return tmp_path


def run(folder: Path, *more: str, out: str | None = None) -> int:
    line = ["evaluate", "--captions", str(folder / "captions"), "--set", "evaluate.samples=20", "--json"]
    return call(*line, *more, *(["--out", str(folder / out)] if out else []))


def test_an_ensemble_is_the_mean_of_the_matrices(folder: Path, capsys) -> None:
    both = "--similarity", str(folder / "A.npy"), "--similarity", str(folder / "B.npy")
    assert run(folder, *both, out="both") == 0
    found = json.loads(capsys.readouterr().out)
    want = evaluate(Task((FIRST + SECOND) / 2, OWNER), EvaluateParams(samples=0))[0].json()
    assert all(found[way] == pytest.approx(want[way], abs=1e-6) for way in ("i2t", "t2i"))
    assert "similarity is the mean of 2 matrices" in found["notes"]
    inputs = read_manifest(folder / "both", "evaluation")["inputs"]
    for name, file in (("similarity 1", "A.npy"), ("similarity 2", "B.npy")):
        assert inputs[name] == digest(folder / file)
    assert run(folder, "--similarity", str(folder / "A.npy"), out="one") == 0
    text = side_by_side({"saf": folder / "one", "sgraf": folder / "both"}, ["rsum"])
    assert "| sgraf (mean of 2) |" in text and "| saf |" in text
    assert "i2t/recall@1" in compare(folder / "one", folder / "both", samples=10)


BAD = {
    "another shape": (SECOND[:-1], "score the same captions table"),
    "the same matrix": (FIRST, "give each model's similarity once"),
    "an infinite score": (np.where(np.arange(len(OWNER)) == 3, -np.inf, SECOND), "image 'i0', and a mean"),
}


@pytest.mark.parametrize("case", BAD)
def test_matrices_that_have_no_mean(folder: Path, capsys, case: str) -> None:
    matrix, message = BAD[case]
    np.save(folder / "bad.npy", matrix)
    assert run(folder, "--similarity", str(folder / "A.npy"), "--similarity", str(folder / "bad.npy")) == 2
    said = capsys.readouterr().err
    assert "bad.npy" in said and message in said and len(said.splitlines()) == 1
