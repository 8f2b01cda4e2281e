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
from capgrade.trainer.search.index import embed
from tests.trainer.fit.runs import run


@pytest.fixture(scope="module")
def trained(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("current") / "run"
    run(small.data, out, epochs=1)
    embed(out, small.data.captions, small.data.regions, "test", out / "index")
    return out


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_a_similarity_of_another_split_is_refused(small, copy):
    path = copy / "index/similarity.npy"
    assert read_similarity(path, read_captions(small.data.captions, "test")).shape == (8, 16)
    with pytest.raises(
        InputError, match=r"another split than 'val' \('test'\) -> run `capgrade evaluate --run` again, or eval"
    ):
        read_similarity(path, read_captions(small.data.captions, "val"))  # of as many images and captions


def test_a_similarity_of_an_earlier_model_is_refused(small, copy):
    run(small.data, copy, "train.lr=0.02", epochs=1, restart=True)
    with pytest.raises(
        InputError, match="made from another model than .*model.safetensors -> run `capgrade evaluate --run` ag"
    ):
        read_similarity(copy / "index/similarity.npy", read_captions(small.data.captions, "test"))


def test_a_similarity_of_a_stopped_embed_is_refused(small, copy):
    (copy / "index/manifest.json").unlink()
    with pytest.raises(InputError, match="of an unfinished run -> run `capgrade evaluate --run` again"):
        read_similarity(copy / "index/similarity.npy", read_captions(small.data.captions, "test"))


def test_a_similarity_of_somebody_else_is_read(small, copy, tmp_path):
    shutil.copy(copy / "index/similarity.npy", tmp_path / "mine.npy")
    assert read_similarity(tmp_path / "mine.npy", read_captions(small.data.captions, "val")).shape == (8, 16)


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
