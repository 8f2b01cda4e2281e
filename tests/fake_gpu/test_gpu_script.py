"""The script of `make gpu`, small, on the stand-in: every path runs and agrees, and a wrong kernel
is told."""

from collections.abc import Iterator
from importlib import import_module

import pytest
import torch

from capgrade.measures import MEASURES, choose
from capgrade.measures.base import Fitted, State
from capgrade.measures.cider import device as cider
from capgrade.measures.params import MeasuresParams
from capgrade.measures.rouge.device import RougeOnDevice
from capgrade.schemas.errors import InputError
from capgrade.trainer.models import MODELS
from research.benchmarks import gpu
from tests.conftest import ROOT
from tests.fake_gpu.device import FakeGpu


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads that wait for each other over tiny tensors are slow on a busy machine."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x, *_: x)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rows(said: str) -> list[list[str]]:
    """Cells of the table: path, difference, bound, rate, unit."""
    lines = [line for line in said.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_path_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeGpu():  # however busy the machine is
        assert gpu.run("cuda", seconds=float("inf"), small=True)
    said = capsys.readouterr().out
    found = rows(said)
    assert said.startswith("fake GPU, torch ")
    assert all(float(row[1]) <= float(row[2]) for row in found)
    names = [row[0] for row in found]
    assert {f"two steps of {name}, bf16" for name in MODELS} <= {*names}
    for path in ("detector", "patches"):
        assert [f"{path}, {kind}" for kind in ("float32", "tf32", "bf16")] == [
            name for name in names if name.startswith(path)
        ]
    # Something is computed: devices that round alike would say nothing of bfloat16.
    assert all(float(row[1]) > 0 for row in found if row[0].endswith("bf16"))
    assert all(float(row[3].replace(",", "")) > 0 for row in found if row[4])


def test_every_form_for_a_device_is_looked_at() -> None:
    """Mixtures and shortlists hold any state, and move their parts."""
    for file in (ROOT / "capgrade" / "measures").rglob("fitted.py"):
        import_module(f"capgrade.measures.{file.parent.name}.fitted")
    forms = {kind for kind in State.kinds.values() if kind.on_device is not Fitted.on_device}
    names = {name for name, _ in gpu.BLOCK_FORMS}
    assert {kind.__name__ for kind in forms} == {
        "FittedCider", "FittedImageText", "FittedMixture", "FittedRougeL", "FittedSbert",
        "FittedShortlist",
    }  # fmt: skip
    assert {"cider", "image_text", "rouge_l", "sbert"} <= names <= MEASURES.keys()
    assert choose([gpu.MIXED], MeasuresParams(mixtures={gpu.MIXED: gpu.MIXTURE}))
    assert gpu.HOSTS.keys() == MODELS.keys()


def test_a_wrong_kernel_and_a_path_that_fails_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = cider.to_steps
    monkeypatch.setattr(cider, "to_steps", lambda values: right(values * 1.0001))

    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory\nmore lines")

    monkeypatch.setattr(RougeOnDevice, "_common", refuse)
    with FakeGpu():
        assert not gpu.run("cuda", small=True, only="block of")
    found = {row[0]: row[1] for row in rows(capsys.readouterr().out)}
    assert found["block of cider"].endswith(" DIFFERS")
    assert found["block of rouge_l"] == "failed: OutOfMemoryError: CUDA out of memory"
    assert float(found["block of sbert"]) < 1e-5


def test_nan_differs() -> None:
    assert not gpu.Found(gpu.difference([1.0, float("nan")], [1.0, 2.0]), 1e-3).agrees
    with pytest.raises(ValueError, match=r"\(2,\) on the device, \(1,\) on the processor"):
        gpu.difference([1.0, 2.0], [1.0])


def test_what_is_left_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeGpu():
        assert not gpu.run("cuda", seconds=0, small=True, only="loss daa")
        with pytest.raises(
            InputError, match="no path is called 'none such' -> choose from: block of cid"
        ):
            gpu.run("cuda", small=True, only="none such")
    assert "Left out after 0 seconds: loss daa.\n" in capsys.readouterr().out
