"""`losses.gather` over gloo: the loss and the gradients of the whole batch on one process and on
three."""

import json
import sys

import numpy as np
import pytest
import torch

from capgrade import losses
from tests.conftest import on_processes

# A model with weights, vectors of its processes' rows, and the mean of gradients as
# DistributedDataParallel takes it.
SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from capgrade import losses
from capgrade.schemas.errors import InputError
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
generator = torch.Generator().manual_seed(0)
pictures, words = torch.randn(2, 6, 4, generator=generator)
owner, values = torch.tensor([3, 1, 3, 0, 2, 5]), torch.rand(6, 6, generator=generator)
torch.manual_seed(1)
model = torch.nn.Linear(4, 3)
if world > 1:
    model = DistributedDataParallel(model)
mine = slice(rank * (6 // world), (rank + 1) * (6 // world))
images, captions = model(torch.stack([pictures[mine], words[mine]]))
def refused(work):
    try:
        work()
    except InputError as error:
        return str(error)
def loss_of(scores, relevance, own):
    return losses.sam(scores, relevance, own, tau=1.0) + losses.soft_info_nce(scores, relevance, own)
own = owner[:, None] == owner[None, :]
local = own[mine] & (torch.arange(6) // (6 // world) == rank) if world > 1 else own
every = losses.gather(captions)
say = {
    "captions": refused(lambda: loss_of(images @ every.T, values[mine], local)),
    "images": refused(lambda: loss_of(every @ images.T, values[:, mine], local.T)),
    "rows": refused(lambda: losses.gather(torch.zeros(2 + rank, 3))),
}
number = losses.gather(owner[mine])
loss = loss_of(losses.gather(images) @ every.T, values, number[:, None] == number[None, :])
loss.backward()
say |= {"loss": loss.item(), "gradients": [p.grad.tolist() for p in model.parameters()]}
say |= {"mask": losses.gather(owner[mine] > 1).tolist()}
say |= {"negatives": refused(lambda: losses.triplet(torch.rand(2, 6), torch.eye(2, 6) > 0))}
open(sys.argv[1] + f"/{world}-{rank}.json", "w").write(json.dumps(say))
if world > 1:
    dist.destroy_process_group()  # or gloo's threads may outlive what they use, and abort
"""


def test_several_processes_have_the_loss_and_the_gradients_of_one(tmp_path, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["script.py", str(tmp_path)])
    exec(SCRIPT, {})
    one, world = json.loads((tmp_path / "1-0.json").read_text()), 3
    assert np.abs(one["gradients"][0]).max() > 0.1
    for rank, found in enumerate(on_processes(world, SCRIPT, tmp_path)):
        assert found["loss"] == pytest.approx(one["loss"], rel=1e-6)
        for ours, theirs in zip(found["gradients"], one["gradients"], strict=True):
            assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert found["mask"] == one["mask"] == [True, False, True, False, True, True]
        for what in ("captions", "images"):  # local rows of a larger world
            wanted = (
                f"6 {what}, and only those of process {rank} of {world} belong to something -> give"
                " both sides"
            )
            assert (found[what] or "").startswith(wanted) == (rank > 0), (
                "the first has pairs, and negatives behind"
            )
        assert found["negatives"] is None, (
            "pairs with further negatives behind them, on every process"
        )
        remedy = "give each as many: drop the last batch of an epoch"
        assert found["rows"] == f"processes have 2 to {1 + world} rows to gather -> {remedy}"


def test_one_process_keeps_its_tensor():
    x = torch.rand(3, 2, requires_grad=True)
    assert losses.gather(x) is x
