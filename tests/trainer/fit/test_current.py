"""What is evaluated, compared and searched is what it says: finished, and of these captions and this model."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import EvaluateParams
from capgrade.trainer.evaluation.evaluate import compare, evaluate
from capgrade.trainer.evaluation.tables import side_by_side
from capgrade.trainer.evaluation.task import Task, read_similarity
from tests.trainer.fit.runs import run


def test_a_similarity_is_of_its_split_and_of_a_finished_model(small, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    path, again = copy / "index/similarity.npy", "-> run `capgrade evaluate --run` again"
    test, val = (read_captions(small.data.captions, split) for split in ("test", "val"))  # as many rows
    assert read_similarity(path, test).shape == (8, 16)
    with pytest.raises(InputError, match=rf"another split than 'val' \('test'\) {again}, or eval"):
        read_similarity(path, val)
    shutil.copy(path, tmp_path / "mine.npy")
    assert read_similarity(tmp_path / "mine.npy", val).shape == (8, 16), "of somebody else"
    run(small.data, copy, "train.lr=0.02", epochs=1, restart=True)
    with pytest.raises(InputError, match=f"made from another model than .*model.safetensors {again}"):
        read_similarity(path, test)
    (copy / "index/manifest.json").unlink()
    with pytest.raises(InputError, match=f"of an unfinished run {again}"):
        read_similarity(path, test)


def scored(folder, ties="expected"):
    owner = np.repeat(np.arange(12), 2)
    task = Task(np.random.default_rng(0).normal(size=(12, 24)).astype(np.float32), owner)
    evaluate(task, EvaluateParams(samples=0, k=(1, 5, 10), ties=ties), out=folder)
    return folder


def test_evaluations_of_other_rules_are_not_compared(tmp_path):
    a, b = scored(tmp_path / "a"), scored(tmp_path / "b", "reference")
    assert compare(a, a, samples=10)
    with pytest.raises(InputError, match="b: evaluated with other ties than the first -> evaluate both alike"):
        compare(a, b)


def test_an_unfinished_evaluation_is_in_no_table(tmp_path):
    folder = scored(tmp_path / "a")
    assert "rsum" in side_by_side({"a": folder}, ["rsum"])
    assert 0 < json.loads((folder / "metrics.json").read_text())["rsum"] <= 600
    (folder / "manifest.json").unlink()
    for use in (lambda: side_by_side({"a": folder}, ["rsum"]), lambda: compare(folder, folder)):
        with pytest.raises(InputError, match="no manifest.json: not a finished evaluation folder"):
            use()
