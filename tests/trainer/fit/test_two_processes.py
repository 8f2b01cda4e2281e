"""Two processes over gloo: what one decides is decided for both."""

from pathlib import Path
from typing import Any

import pytest
import torch

from capgrade.trainer.fit import train as stage
from tests.conftest import on_processes
from tests.trainer.fit.runs import column, keep_gradients, run

SUM = ("train.model.options={embed: 32, word: 16}", "train.loss=[{name: triplet, negatives: sum}]")
LOOKED_UP = (
    "train.model.options={embed: 32, word: 16}",
    "train.relevance=shards",
    "train.relevance_of=image_set",
)
# Runs that give what one process gives: their settings and epochs. The classifier of the single
# stream is not used.
ALIKE = {
    "sum": (SUM, 2),
    "rest": ((*SUM, "train.batch_size=20", "train.drop_last=false"), 1),
    "unused": (("train.model={name: single_stream, options: {width: 8}}",), 1),
    "mask": ((*LOOKED_UP, "train.unknown=mask", "train.loss=[{name: daa, temperature: 0.05}]"), 2),
    "seeded": (
        (*LOOKED_UP, "train.composition=seeded", "train.seed=1",
         "train.loss=[{name: daa, temperature: 0.05}, {name: sam}]"), 2,
    ),
}  # fmt: skip
SCRIPT = """
import json, sys
from pathlib import Path
import torch
import torch.distributed as dist
import capgrade.trainer.fit.train as stage
from capgrade.losses import gather
from capgrade.schemas.errors import InputError
from capgrade.trainer.fit.setup import Data
from tests.trainer.fit.runs import keep_gradients, run
dist.init_process_group("gloo")
out = Path(sys.argv[1])
plain, sampled = (Data(FOLDER / "captions", FOLDER / "regions", shards) for shards in (None, FOLDER / "shards"))
agree, found = stage.average_gradients, {}
for name, (sets, epochs) in ALIKE.items():
    stage.average_gradients = agree
    kept = keep_gradients(stage)  # of every step the gradient that both processes agree on
    run(sampled if "train.relevance=shards" in sets else plain, out / name, *sets, epochs=epochs)
    torch.save(kept, out / f"{name}{dist.get_rank()}.pt")
stage.average_gradients = agree

# The gradient that autograd hands to `gather` is another's too; a refused run is refused on both.
x, w = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
(gather(x) + w).sum().backward()
found |= {"x": x.grad.tolist(), "w": w.grad.tolist()}
try:
    run(plain, out / "sum", *ALIKE["sum"][0], epochs=1)
except InputError as error:
    found["refused"] = str(error)

# Each process wants to stop after another epoch: what the first one finds must hold for both.
real, calls = stage.validate, []
def validate(*args):
    calls.append(real(*args))
    return {**calls[-1], "rsum": (1, 0, 9, 9)[len(calls)] if dist.get_rank() == 0 else 10 * len(calls)}
stage.validate = validate
options = "train.model={name: saf, options: {embed: 16, word: 8, similarity: 8, region_norm: features}}"
found["summary"] = run(plain, out / "saf", options, "train.patience=1", epochs=4)
found["calls"], kept = len(calls), []
stage.validate = lambda model, *args: kept.append({k: v.tolist() for k, v in model.named_buffers()}) or {"rsum": 1}
run(plain, out / "norm", options, epochs=1)
rank, found["kept"], found["own"], scored = dist.get_rank(), kept, [], stage.scored_batch
own = lambda batch: found["own"].append(batch.own_losses["captioning"].item()) or batch
stage.scored_batch = lambda *args: own(scored(*args))
small = "train.model={name: vsrn, options: {embed: 8, word: 8, caption_hidden: 8, caption_word: 8}}"
run(plain, out / "own", small, "train.loss=[{name: captioning}]", epochs=1)
stage.scored_batch = scored
try:  # the second process stops, and the first does not wait for it
    rank or run(plain, out / "alone", *SUM, epochs=1)
except InputError as error:
    found["alone"] = str(error)
(out / f"2-{rank}.json").write_text(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two(small, tmp_path_factory) -> tuple[Path, list[dict[str, Any]]]:
    """What the script leaves on two processes, and what each of them says."""
    folder = tmp_path_factory.mktemp("two")
    given = (
        f"from pathlib import PosixPath\nALIKE, SUM, FOLDER = {ALIKE}, {SUM},"
        f" {small.data.captions.parent!r}\n"
    )
    return folder, on_processes(2, given + SCRIPT, folder)


@pytest.mark.parametrize("name", ALIKE)
def test_two_processes_learn_as_one(small, two, tmp_path, monkeypatch, name):
    """The same losses and gradients, but for the order of sums."""
    sets, epochs = ALIKE[name]
    whole = keep_gradients(stage, monkeypatch)
    run(
        small.sampled if "train.relevance=shards" in sets else small.data,
        tmp_path,
        *sets,
        epochs=epochs,
    )
    found = [[float(x) for x in column(folder, "loss")] for folder in (tmp_path, two[0] / name)]
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert len(found[0]) == (3 if name == "rest" else 6 * epochs), (
        "48 pairs in batches of 8; or in 20, 20 and 8"
    )
    for rank in range(
        2 if name != "unused" else 0
    ):  # a deep network: rounding grows there from step to step
        gradients = torch.load(two[0] / f"{name}{rank}.pt")
        assert len(gradients) == len(whole) and all(step.any() for step in whole)
        for both, one in zip(gradients, whole, strict=True):
            assert (both - one).abs().max() < 1e-3 * one.abs().max()


def test_the_first_process_decides_and_errors_reach_both(two):
    first, second = two[1]
    assert first["summary"] == second["summary"] and first["summary"]["best"]["rsum"] == 9
    assert first["summary"]["epochs"] == first["calls"] == second["calls"] == 3
    assert "the other processes of this run cannot be reached" in first["alone"]
    assert len(first["own"]) == 6 and first["own"] == second["own"], "of both parts of a batch"
    assert first["kept"] == second["kept"] and any(
        "running_mean" in name for name in first["kept"][0]
    )
    for found in two[1]:
        assert torch.tensor(found["w"]).eq(1).all(), (
            "its own gradient, not the sum of two processes"
        )
        assert torch.tensor(found["x"]).eq(2).all()
        assert "has trained 2 epochs" in found["refused"]
