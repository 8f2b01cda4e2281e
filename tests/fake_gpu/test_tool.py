"""The tool itself: what a GPU would refuse is refused, also after a `.to` or `device=` is taken out of our code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from tests.conftest import make_captions, random_sets
from tests.fake_gpu.device import DEVICE, FakeGpu, counted

REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "two devices": lambda x: x + torch.ones(3),
    "an index of one and a table of the other": lambda x: torch.ones(3)[x.long()],
    "numpy of a device tensor": lambda x: x.numpy(),
    "lengths on the device": lambda x: pack_padded_sequence(x[:, None, None], x[:1].long()),
    "two types under autocast": lambda x: torch.addmm(x[:1, None], x[None].bfloat16(), x[:, None]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_gpu_refuses_is_refused(kind: str) -> None:
    with FakeGpu():
        x = torch.ones(3).to(DEVICE)
        with pytest.raises((RuntimeError, TypeError)):
            REFUSED[kind](x)


def test_what_a_gpu_computes_is_computed() -> None:
    with FakeGpu():
        x = torch.arange(4.0, device=DEVICE)
        assert x.device.type == "cuda" and (x * 2 + 1).cpu().tolist() == [1, 3, 5, 7]
        x[1] = 9
        assert x.sum().item() == 14 and torch.full((2,), 3, device=DEVICE).device.type == "cuda"


def test_waits_are_counted() -> None:
    with FakeGpu():
        x = torch.arange(4.0).to(DEVICE)
        counted.clear()
        y = x * 2
        assert counted == {"kernels": 1, "waits": 0, "copies back": 0}
        y.sum().item(), y.nonzero(), y[y > 2], torch.equal(x, y), y.tolist(), y.cpu()
        assert (counted["waits"], counted["copies back"]) == (5, 1)


def mutated(name: str, text: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module with one piece of its source replaced, in place of the real one until the test ends."""
    real = importlib.import_module(name)
    assert real.__file__ is not None
    source = Path(real.__file__).read_text(encoding="utf-8")
    assert source.count(text) >= 1, f"{text} is no longer in {name}"
    module = ModuleType(name)
    module.__file__ = real.__file__
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source.replace(text, instead), real.__file__, "exec"), module.__dict__)
    return module


def rouge(module: ModuleType) -> object:
    from capgrade.pipelines.measures import choose
    from capgrade.schemas.params import MeasuresParams

    fitted = choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(make_captions(random_sets(5)))
    return module.RougeOnDevice(fitted, torch.device(DEVICE)).score(np.arange(5))


def losses(module: ModuleType) -> object:
    scores = torch.rand(4, 4).to(DEVICE).requires_grad_()
    batch = module.ScoredBatch(scores, torch.eye(4, dtype=torch.bool).to(DEVICE))
    return scores.gather(1, batch.at[1][:, None])


def anchors(module: ModuleType) -> object:
    return module.place_anchors(torch.rand(3, 4).to(DEVICE), 4, 5, 16)


MUTATIONS = [
    ("capgrade.pipelines.measures.on_device", ".cpu().numpy()", ".numpy()", rouge),
    (
        "capgrade.pipelines.measures.on_device",
        "lengths.astype(np.float32), device=device)",
        "lengths.astype(np.float32))",
        rouge,
    ),
    ("capgrade.losses.base", ", device=self.scores.device)", ")", losses),
    ("capgrade.pipelines.detectors.rpn", "torch.arange(n, device=anchors.device, ", "torch.arange(n, ", anchors),
]


@pytest.mark.parametrize(
    ("name", "text", "instead", "work"), MUTATIONS, ids=[f"{m[0]} {k}" for k, m in enumerate(MUTATIONS)]
)
def test_a_device_taken_out_of_our_code_is_caught(
    name: str, text: str, instead: str, work: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeGpu():
        work(mutated(name, text, text, monkeypatch))  # as it is
        with pytest.raises((RuntimeError, TypeError)):
            work(mutated(name, text, instead, monkeypatch))
