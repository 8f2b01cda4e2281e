"""An evaluation by shards: what it gives, what it leaves out, and what it says of both."""

import json
import shlex
from contextlib import contextmanager

import numpy as np
import pytest

from capgrade.metrics import base
from capgrade.schemas.captions import read_captions
from capgrade.trainer.evaluation import evaluate as stage
from capgrade.trainer.evaluation import similarity as similarity_module
from capgrade.trainer.evaluation.evaluate import evaluate
from capgrade.trainer.evaluation.task import load_task
from capgrade.trainer.stages.evaluate import EvaluateParams
from tests.conftest import call

LINES = """
capgrade captions --set captions.scenes.train=0 --set captions.scenes.val=0 --set captions.scenes.test=30 --set captions.scenes.size=64 --out {0}/captions
capgrade shards --captions {0}/captions --split test --measures rouge_l --set shards.top=10 --set shards.uniform=20 --out {0}/shards
capgrade relevance --captions {0}/captions --split test --measures rouge_l --out {0}/relevance
"""  # noqa: E501


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sampled")
    for line in LINES.strip().splitlines():
        assert call(*shlex.split(line.format(folder))[1:]) == 0, line
    captions = read_captions(folder / "captions", "test")
    own = captions.owner == np.arange(30)[:, None]
    np.save(folder / "sims.npy", own + np.random.default_rng(0).random(own.shape))
    return folder


def test_metrics_of_shards_are_near_the_dense_ones(world, tmp_path):
    params = EvaluateParams(k=(1, 5), samples=100, above={"rouge_l": 0.5}, fold=(15,))
    sampled, dense = (
        load_task(world / "captions", similarity=world / "sims.npy", relevance=world / kind)
        for kind in ("shards", "relevance")
    )
    found, right = (
        evaluate(task, params, notes=notes, out=tmp_path / str(k))
        for k, (task, notes) in enumerate((sampled, dense))
    )
    assert "sr, asp, tau, cs and other forms of ncs need" in " ".join(found[0].notes)
    plain = {"recall@1", "r@5", "medr", "lambda@1"} & set(right[0].i2t.mean)
    graded = {"ncs@1", "ncs@5", "ndcg@25", "ndcg_exp@25", "relevant_recall@5", "relevant_map@r"}
    for direction in ("i2t", "t2i"):
        one, other = found[0].scored[direction], right[0].scored[direction]
        assert graded <= set(one.mean) < set(other.mean) and "asp" not in one.mean
        assert all(one.mean[name] == other.mean[name] for name in plain)
        for name in graded:
            low, high = one.intervals[name]
            assert abs(one.mean[name] - other.mean[name]) < max(high - low, 0.02), name
        assert "ncs@1" not in found[1].scored[direction].mean, "folds have parts of the gallery"
    stored = json.loads((tmp_path / "0" / "metrics.json").read_text())
    assert 0.1 < stored["counts"]["known"]["rouge_l"] < 0.7


def test_images_that_are_left_out_take_their_pairs_with_them(world):
    arguments = f"--split test --relevance {world}/shards --stand-in 0 --metric ncs@1"
    task = load_task(world / "captions", stand_in=0, relevance=world / "shards")[0]
    sample = task.samples["rouge_l"]
    assert task.similarity.shape == (30, 120) and sample.caption.max() < 120
    assert call("evaluate", "--captions", world / "captions", *arguments.split()) == 0


def test_a_large_matrix_is_read_in_parts(world, tmp_path, monkeypatch):
    """Embeddings whose cosines lie in a file give what those in memory do, and steps are counted
    to the last."""
    random, tables = np.random.default_rng(1), (tmp_path / "images.npy", tmp_path / "captions.npy")
    for path, rows in zip(tables, (30, 150), strict=True):
        np.save(path, random.standard_normal((rows, 8)))
    steps = []

    @contextmanager
    def count(what, total, unit):
        steps.append((total, taken := []))
        yield taken.append

    monkeypatch.setattr(stage, "progress", count)
    found = []
    for number, small in enumerate((False, True)):
        if small:
            monkeypatch.setattr(similarity_module, "_IN_MEMORY", 0)
            monkeypatch.setattr(similarity_module, "_PRODUCT", 1000)
            monkeypatch.setattr(base, "_READ", 400)
        task, notes = load_task(
            world / "captions", embeddings=tables, relevance=world / "shards", split="test"
        )
        assert isinstance(task.similarity, np.memmap) == small
        params = EvaluateParams(k=(1, 5), samples=50, fold=(15,))
        evaluate(task, params, notes=notes, out=tmp_path / str(number))
        found.append((tmp_path / str(number) / "metrics.json").read_text())
    whole, parts = map(json.loads, found)
    for direction in ("i2t", "t2i"):  # products of fewer rows are rounded otherwise
        assert parts[direction] == pytest.approx(whole[direction], rel=1e-6), direction
    for total, taken in steps:
        assert total == 3 * 180 and sum(taken) == pytest.approx(total)
    assert len(steps[1][1]) > 20
    assert max(steps[1][1]) < 540 / 6, "estimates are steps, too"


def test_measures_of_the_same_pairs_have_them_in_memory_once(world, tmp_path):
    out = tmp_path / "shards"
    made = "--split test --measures cider,rouge_l --set shards.top=10 --set shards.uniform=20"
    assert call("shards", "--captions", world / "captions", *made.split(), "--out", out) == 0
    task = load_task(world / "captions", similarity=world / "sims.npy", relevance=out)[0]
    cider, rouge_l = task.samples.values()
    for column in ("image", "caption", "weight"):
        assert getattr(cider, column) is getattr(rouge_l, column), column
    assert cider.value is not rouge_l.value
