"""Two processes over gloo: what one decides is decided for both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.fit import train as stage
from capgrade.trainer.fit.distributed import Process, device_of_process
from tests.conftest import ROOT
from tests.trainer.fit.runs import SMALL, column, keep_gradients, run

HEAD = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, load_params
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
dist.init_process_group("gloo")
folder, out = Path(sys.argv[1]), Path(sys.argv[2])
data = Data(folder / "captions", folder / "regions")
def go(name, *sets, **more):
    return train(data, out / name, load_params(None, [*sys.argv[3:], *sets]).train, MeasuresParams(), **more)
def say(found):
    (out / f"rank{os.environ['RANK']}.json").write_text(json.dumps(found))
"""
OPTIONS = ["train.preset=triplet", *SMALL]


def two(small, tmp_path: Path, script: str, *sets: str) -> Path:
    """Run a script on two processes; its folder."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    (tmp_path / "two.py").write_text(HEAD + script)
    arguments = [str(tmp_path / "two.py"), str(small.data.captions.parent), str(tmp_path), *OPTIONS, *sets]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *arguments], capture_output=True, env=environment, timeout=300, text=True)
    assert done.returncode == 0, done.stderr
    return tmp_path


REST = ("train.batch_size=20", "train.drop_last=false", "train.loss=[{name: triplet, negatives: sum}]")
LEARN = (
    f"REST = {REST}"
    + """
go("two", "train.epochs=2", "train.model.options={embed: 32, word: 16}", "train.loss=[{name: triplet, negatives: sum}]")
go("two rest", "train.epochs=1", "train.model.options={embed: 32, word: 16}", *REST)
go("unused", "train.epochs=1", "train.model={name: single_stream, options: {width: 8}}")
"""
)


def test_two_processes_learn_as_one(small, tmp_path):
    """The same losses, but for the order of sums; parameters that a loss does not use, here the classifier's, too."""
    two(small, tmp_path, LEARN)
    sets = ("train.model.options={embed: 32, word: 16}", "train.loss=[{name: triplet, negatives: sum}]")
    run(small.data, tmp_path / "one", *sets, epochs=2)
    run(small.data, tmp_path / "one rest", "train.model.options={embed: 32, word: 16}", *REST, epochs=1)
    run(small.data, tmp_path / "one_unused", "train.model={name: single_stream, options: {width: 8}}", epochs=1)
    for one, both in (("one", "two"), ("one rest", "two rest"), ("one_unused", "unused")):
        found = [[float(x) for x in column(tmp_path / name, "loss")] for name in (one, both)]
        assert "rest" not in one or len(found[0]) == 3, "48 pairs in 20, 20 and 8"
        assert found[1] == pytest.approx(found[0], rel=1e-4)


# Of every step its loss and the gradient that both processes agree on.
SHARDS = """
import capgrade.trainer.fit.train as stage
from tests.trainer.fit.runs import keep_gradients
data = Data(folder / "captions", folder / "regions", folder / "shards")
kept = keep_gradients(stage)
go("two", "train.epochs=2")
torch.save(kept, out / f"rank{os.environ['RANK']}.pt")
"""
LOOKED_UP = ("train.model.options={embed: 32, word: 16}", "train.relevance=shards", "train.relevance_of=image_set")
FROM_SHARDS = {
    "mask": ("train.unknown=mask", "train.loss=[{name: daa, temperature: 0.05}]"),
    "estimate, seeded": ("train.composition=seeded", "train.loss=[{name: daa, temperature: 0.05}, {name: sam}]"),
}


@pytest.mark.parametrize("case", FROM_SHARDS)
def test_two_processes_learn_from_shards_as_one_with_the_whole_batch(small, tmp_path, monkeypatch, case):
    sets = (*LOOKED_UP, *FROM_SHARDS[case])
    two(small, tmp_path, SHARDS, *sets)
    whole = keep_gradients(stage, monkeypatch)
    run(small.sampled, tmp_path / "one", *sets, epochs=2)
    found = [[float(x) for x in column(tmp_path / name, "loss")] for name in ("one", "two")]
    assert found[1] == pytest.approx(found[0], rel=1e-4) and len(found[0]) == 12
    for rank in range(2):
        gradients = torch.load(tmp_path / f"rank{rank}.pt")
        assert len(gradients) == len(whole) == 12 and all(step.any() for step in whole)
        for both, one in zip(gradients, whole, strict=True):
            assert (both - one).abs().max() < 1e-3 * one.abs().max()


# Each process wants to stop after another epoch: what the first one finds must hold for both.
DECIDE = """
import capgrade.trainer.fit.train as stage
real, calls = stage.validate, []
def validate(*args):
    calls.append(real(*args))
    return {**calls[-1], "rsum": (1, 0, 9, 9)[len(calls)] if dist.get_rank() == 0 else 10 * len(calls)}
stage.validate = validate
options = "train.model={name: saf, options: {embed: 16, word: 8, similarity: 8, region_norm: features}}"
summary = go("saf", options, "train.epochs=4", "train.patience=1")
kept = []
stage.validate = lambda model, *args: kept.append({k: v.tolist() for k, v in model.named_buffers()}) or {"rsum": 1}
go("norm", options, "train.epochs=1")
say({"epochs": summary["epochs"], "best": summary["best"], "calls": len(calls), "kept": kept})
"""


def test_the_first_process_decides_with_one_set_of_statistics(small, tmp_path):
    two(small, tmp_path, DECIDE)
    first, second = (json.loads((tmp_path / f"rank{k}.json").read_text()) for k in range(2))
    assert first["epochs"] == second["epochs"] == first["calls"] == second["calls"] == 3
    assert first["best"] == second["best"] and first["best"]["rsum"] == 9
    assert first["kept"] == second["kept"] and any("running_mean" in name for name in first["kept"][0])


# The gradient that autograd hands to `gather` is another's too; a refused run is refused on both.
GRADIENTS = """
from capgrade.pipelines.execution.processes import Process, together
from capgrade.losses import gather
with together(Process.current()):
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    (gather(x) + w).sum().backward()
    grads = {"x": x.grad.tolist(), "w": w.grad.tolist()}
go("run", "train.epochs=2")
try:
    go("run", "train.epochs=1")
except InputError as error:
    grads["refused"] = str(error)
say(grads)
"""


def test_gather_leaves_others_gradients_alone_and_errors_reach_both(small, tmp_path):
    two(small, tmp_path, GRADIENTS)
    for k in range(2):
        found = json.loads((tmp_path / f"rank{k}.json").read_text())
        assert torch.tensor(found["w"]).eq(1).all(), "its own gradient, not the sum of two processes"
        assert torch.tensor(found["x"]).eq(2).all()
        assert "has trained 2 epochs" in found["refused"]


def test_a_batch_that_processes_cannot_share_is_refused():
    with pytest.raises(InputError, match="a batch of 35 for 2 processes -> .* train.drop_last=true"):
        stage._part(35, Process(0, 2))
    assert stage._part(36, Process(1, 2)) == slice(18, 36)


def test_each_process_has_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of_process("auto", Process(1, 2, 1)) == torch.device("cuda:1")
    assert device_of_process("cuda:1", Process()) == torch.device("cuda:1")
    with pytest.raises(InputError, match="train.device is cuda:1 for 2 processes -> use cuda"):
        device_of_process("cuda:1", Process(1, 2, 1))
