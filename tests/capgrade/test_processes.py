"""Several processes: which one this is, its device and its part of a batch, and torchrun's
restarts."""

import pytest
import torch

from capgrade.processes import Process
from capgrade.schemas.errors import InputError
from tests.conftest import on_processes

RESTARTED = """
import json, os, signal, sys
from pathlib import Path
from torch.distributed.distributed_c10d import _get_default_store
from capgrade.processes import Process, join_processes
process = Process.current()
with join_processes(process) as wait:
    found = {"attempt": os.environ["TORCHELASTIC_RESTART_COUNT"], "met": _get_default_store().add("met", 1)}
    wait()
    if found["attempt"] == "0" and process.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    wait()
(Path(sys.argv[1]) / f"2-{process.rank}.json").write_text(json.dumps(found))
"""


def test_processes_that_torchrun_restarts_do_not_see_what_the_first_ones_wrote(tmp_path):
    """Among it addresses, which nobody answers at."""
    found = on_processes(2, RESTARTED, tmp_path, restarts=1)
    assert [one["attempt"] for one in found] == ["1", "1"] and {one["met"] for one in found} == {
        1,
        2,
    }


def test_a_batch_that_processes_cannot_share_is_refused():
    with pytest.raises(
        InputError, match="a batch of 35 for 2 processes -> .* train.drop_last=true"
    ):
        Process(0, 2).part(35)
    assert Process(1, 2).part(36) == slice(18, 36)


def test_each_process_has_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Process(1, 2, 1).device("auto") == torch.device("cuda:1")
    assert Process().device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match="train.device is cuda:1 for 2 processes -> use cuda"):
        Process(1, 2, 1).device("cuda:1")
