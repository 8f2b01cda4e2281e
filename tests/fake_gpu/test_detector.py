"""The detector on a device: the processor's regions, few waits whatever the batch, and a training
step."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpDetector
from capgrade.pipelines.detectors.faster_rcnn import Conventions
from capgrade.pipelines.detectors.selection import AirsplayRule, RegionRule, SelectionRule
from capgrade.pipelines.regions import regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.regions import Regions, RegionStore
from tests import tiny_detector
from tests.fake_gpu.device import DEVICE, FakeGpu, counted
from tests.tiny_detector import TINY, tiny_model

RULES = {"adaptive": SelectionRule(3, 20, confidence=0.1), "airsplay": AirsplayRule(6)}


def pictures(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [
        np.kron(random.integers(0, 256, (12, 16, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
        for _ in range(count)
    ]


def run(detector: BottomUpDetector, images: list[np.ndarray]) -> list[Regions]:
    prepared, scales = zip(*map(detector.prepare, images), strict=True)
    sizes = [(image.shape[1], image.shape[0]) for image in images]
    return detector.detect(torch.stack(prepared), scales, sizes, ["x"] * len(images))


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("conventions", ["caffe", "airsplay"])
@pytest.mark.parametrize("rule", RULES)
def test_regions_are_the_processors(rule: str, conventions: Conventions, precision: str) -> None:
    torch.manual_seed(3)
    state = tiny_model().state_dict()

    def made(device: str, precision: str) -> BottomUpDetector:
        model = BottomUp(dataclasses.replace(TINY, conventions=conventions)).eval()
        model.load_state_dict(state)
        return BottomUpDetector(model, RULES[rule], device=device, precision=precision)  # type: ignore[arg-type]

    with FakeGpu():
        found = run(made(DEVICE, precision), pictures(3))
    if precision == "bf16":  # the devices round differently
        assert all(len(one) and one.features.dtype == np.float32 for one in found)
        return
    for ours, expected in zip(found, run(made("cpu", "float32"), pictures(3)), strict=True):
        np.testing.assert_array_equal(ours.classes, expected.classes)
        np.testing.assert_allclose(ours.boxes, expected.boxes, atol=1e-3)
        np.testing.assert_allclose(ours.features, expected.features, rtol=1e-4, atol=1e-5)


def waits(rule: RegionRule, batch: int) -> tuple[int, int]:
    """How often the processor waits for the device in a batch, and how many kernels it starts."""
    model = tiny_model()
    with FakeGpu():
        detector = BottomUpDetector(model, rule, device=DEVICE)
        images = pictures(batch)
        counted.clear()
        run(detector, images)
        return counted["waits"] + counted["copies back"], counted["kernels"]


@pytest.mark.parametrize("rule", RULES)
def test_waits_and_kernels_do_not_grow_with_the_batch(rule: str) -> None:
    """It was 27 waits and 260 kernels a picture. A few more steps until every picture of a batch is
    settled."""
    (one, few), (eight, many) = waits(RULES[rule], 1), waits(RULES[rule], 8)
    assert eight <= one + 6 and eight <= 30, (one, eight)
    assert many <= 1.6 * few, (few, many)


def test_the_stage_writes_what_the_processor_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thread that writes, and memory that would be pinned."""
    tiny_detector.register(monkeypatch.setattr)
    for k, picture in enumerate(pictures(11)):
        Image.fromarray(picture[: 96 - 8 * (k % 2)]).save(tmp_path / f"p{k:02d}.png")
    pinned: list[torch.Size] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x, *_: pinned.append(x.shape) or x)
    block = {
        "detector": "scenes",
        "boxes": "5-8",
        "batch": 4,
        "workers": 0,
        "target_mb": 1,
        "precision": "float32",
    }
    regions(tmp_path, tmp_path / "cpu", RegionsParams(device="cpu", **block))
    with FakeGpu():
        done = regions(tmp_path, tmp_path / "cuda", RegionsParams(device="cuda", **block))
    assert done and done["params"]["device"] == "cuda"
    ours, expected = RegionStore(tmp_path / "cuda"), RegionStore(tmp_path / "cpu")
    assert ours.ids == expected.ids and len(ours) == 11
    for k in range(11):
        np.testing.assert_allclose(ours[k].features, expected[k].features, rtol=1e-2, atol=1e-3)
