"""`python -m capgrade.benchmarks.gpu` at tiny sizes on the device."""

from __future__ import annotations

import pytest
import torch

from capgrade.benchmarks import gpu, train
from tests.conftest import make_captions, random_sets
from tests.fake_gpu.device import DEVICE, FakeGpu
from tests.tiny_detector import TINY


def test_everything_runs_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "FEATURES", 16)
    monkeypatch.setattr(gpu, "SIDES", (48, 64))
    small = {"embed": 16, "similarity": 8, "dropout": 0.0}
    monkeypatch.setattr(train, "MODELS", {"vse": {"embed": 16}, "saf": small, "sgr": small})
    sizes = gpu.Sizes(2, 2, TINY, batch=4, models=("vse", "saf", "sgr"), rounds=1)
    with FakeGpu():
        found = gpu.bench(torch.device(DEVICE), make_captions(random_sets(6)), sizes)
    assert found["device"] == DEVICE and found["bottom_up"]["bf16"]["images_per_s"] > 0
    assert {"float32", "bf16", "caption_loop"} <= found["train"]["sgr"].keys()
    assert all(one["pairs_per_s"] > 0 and one["largest_difference"] < 1e-5 for one in found["measures"].values())
