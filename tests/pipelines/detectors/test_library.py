"""torchvision's operators in place of ours: used where they may be, and with the same results."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors import ops, pooling

SIZE, SCALE = 7, 1 / 16


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    ops.torchvision_ops.cache_clear()
    yield
    ops.torchvision_ops.cache_clear()


def boxes_of(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Integer boxes of few sides, and scores that differ: torchvision's order of equal scores is its own affair."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 12, (n, 2), generator=g)
    boxes = torch.cat([corner, corner + torch.randint(0, 8, (n, 2), generator=g)], dim=1).float()
    return boxes, torch.randperm(n, generator=g).float()


def rois_of(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Corners on halves of cells, beyond the map, turned round; two images."""
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(2, 5, 12, 17, generator=g)
    boxes = torch.randint(-6, 40, (n, 4), generator=g) * 8 + 0.3 * torch.randint(0, 2, (n, 4), generator=g)
    return features, torch.cat([torch.randint(0, 2, (n, 1), generator=g), boxes], dim=1).float()


def stand_in(calls: list[str]) -> Any:
    """A torchvision.ops whose operators are ours, without torchvision's own rules."""

    def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
        calls.append("nms")
        return ops.nms(boxes, scores, threshold, groups=torch.zeros(len(boxes)), one_pixel=False, at_threshold=False)

    def pool(name: str) -> Any:
        return lambda features, rois, size, *_: calls.append(name) or torch.full((len(rois), 1, size, size), 3.0)

    return SimpleNamespace(nms=nms, roi_pool=pool("roi_pool"), roi_align=pool("roi_align"))


def test_used_where_rules_and_types_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    module = stand_in(calls)
    monkeypatch.setattr(ops, "torchvision_ops", lambda device="cpu": module)
    boxes, scores = boxes_of(30)
    plain: dict[str, Any] = {"one_pixel": False, "at_threshold": False}
    found = ops.nms(boxes, scores, 0.5, **plain)
    assert calls == ["nms"]
    for other in ({}, {"limit": 3, **plain}, {"groups": scores, **plain}, {"one_pixel": False}):
        ops.nms(boxes, scores, 0.5, **other)
    ops.nms(boxes.double(), scores, 0.5, **plain)
    assert calls == ["nms"]
    assert ops.nms(boxes, scores, 0.5, **plain, limit=4).tolist() == found[:4].tolist()
    features, rois = rois_of(6)
    pooling.roi_pool(features, rois, SIZE, SCALE)
    assert calls == ["nms"]  # ours on a CPU
    monkeypatch.setattr(ops, "OURS_ON_CPU", set())
    for op in (pooling.roi_pool, pooling.roi_align):
        assert (op(features, rois, SIZE, SCALE) == 3).all()
        assert (op(features.bfloat16(), rois, SIZE, SCALE) != 3).any()
    assert calls == ["nms", "roi_pool", "roi_align"]


@pytest.mark.parametrize("error", [ImportError, RuntimeError, OSError])
def test_what_does_not_import_is_absent(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """A torchvision for another torch raises RuntimeError, one without its libraries OSError."""

    def fails(name: str) -> None:
        raise error(name)

    monkeypatch.setattr(importlib, "import_module", fails)
    assert ops.torchvision_ops() is None


def test_kernels_that_do_not_run_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace())
    assert ops.torchvision_ops() is None


def test_who_computes_what(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(nms=lambda *_: None, roi_pool=max, roi_align=sum)
    monkeypatch.setattr(importlib, "import_module", lambda name: module)
    x = torch.zeros(1)
    assert [ops.theirs(name, x) for name in ("nms", "roi_pool", "roi_align")] == [module.nms, None, sum]
    assert ops.theirs("nms", x.double()) is None and ops.theirs("nms", x.to("meta")) is None


def test_kernels_are_tried_on_the_device_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchvision for processors beside a torch for CUDA has no CUDA kernel; `meta` stands for the GPU."""
    real = torch.zeros
    there = {"cuda": "meta"}
    monkeypatch.setattr(torch, "zeros", lambda *n, device="cpu": real(*n, device=there.get(device, device)))

    def nms(boxes: torch.Tensor, *_: object) -> None:
        if boxes.device.type != "cpu":
            raise NotImplementedError("Could not run 'torchvision::nms' with arguments from the 'CUDA' backend")

    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(nms=nms))
    assert ops.torchvision_ops("cpu") is not None and ops.torchvision_ops("cuda") is None


def both(monkeypatch: pytest.MonkeyPatch, op: Any, *arguments: Any, **named: Any) -> list[torch.Tensor]:
    """An operator's result with the installed torchvision, and without."""
    module = ops.torchvision_ops()
    if module is None:
        pytest.skip("torchvision does not import here")
    monkeypatch.setattr(ops, "OURS_ON_CPU", set())
    results = []
    for there in (module, None):
        monkeypatch.setattr(ops, "torchvision_ops", lambda device="cpu", there=there: there)
        results.append(op(*arguments, **named))
    return results


@pytest.mark.parametrize("threshold", [0.2, 0.3, 0.5, 0.7, 0.75])
def test_nms_of_torchvision_is_ours(monkeypatch: pytest.MonkeyPatch, threshold: float) -> None:
    boxes, scores = boxes_of(300)
    theirs, ours = both(monkeypatch, ops.nms, boxes, scores, threshold, one_pixel=False, at_threshold=False)
    assert theirs.tolist() == ours.tolist()


def test_roi_pool_of_torchvision_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = both(monkeypatch, pooling.roi_pool, *rois_of(400), SIZE, SCALE)
    np.testing.assert_array_equal(theirs.numpy(), ours.numpy())


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [0, 1, 2])
def test_roi_align_of_torchvision_is_ours(monkeypatch: pytest.MonkeyPatch, ratio: int, aligned: bool) -> None:
    features, rois = rois_of(400)
    rois = rois[(rois[:, 3:] >= rois[:, 1:3]).all(dim=1)]  # torchvision's kernel fails on boxes turned round
    theirs, ours = both(
        monkeypatch, pooling.roi_align, features, rois, SIZE, SCALE, sampling_ratio=ratio, aligned=aligned
    )
    np.testing.assert_allclose(theirs.numpy(), ours.numpy(), atol=2e-5)
