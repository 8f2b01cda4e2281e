"""The benchmark of the detector: its multiply-adds beside a count by hand, and its steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.benchmarks.regions import STEPS, bench, gmacs
from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.schemas.params import RegionsParams
from tests import tiny_detector


def by_hand(blocks: tuple[int, ...], height: int, width: int) -> float:
    """conv1 to res4 of ResNet-101, billions of multiply-adds; the stride in the first 1x1 of res3 and res4."""
    up = lambda n: -(-n // 2)  # noqa: E731
    height, width = up(height), up(width)
    total = 49 * 3 * 64 * height * width
    height, width = up(height - 3) + 1, up(width - 3) + 1
    inputs = 64
    for stage, count in enumerate(blocks):
        middle, outputs = 64 << stage, 256 << stage
        if stage:
            height, width = up(height), up(width)
        for block in range(count):
            cells = height * width
            total += cells * (inputs * middle + 9 * middle * middle + middle * outputs)
            total += cells * inputs * outputs if block == 0 else 0
            inputs = outputs
    return total / 1e9


def test_multiply_adds_of_the_full_model() -> None:
    with torch.device("meta"):
        model = BottomUp()
    found = gmacs(model, 600, 900, 300)
    assert found["backbone"] == pytest.approx(by_hand((3, 4, 23), 600, 900), rel=1e-9)
    cells, rois = 38 * 57, 300
    assert found["rpn"] == pytest.approx(cells * 512 * (9 * 1024 + 24 + 48) / 1e9, rel=1e-9)
    res5 = 196 * (1024 * 512 + 1024 * 2048 + 2 * 2048 * 512 + 3 * (9 * 512 * 512 + 512 * 2048))
    linear = 2048 * (1601 + 6404) + 2304 * 512 + 512 * 401
    assert found["head"] == pytest.approx(rois * (res5 + linear) / 1e9, rel=1e-9)
    assert res5 * rois / 1e9 == pytest.approx(880, rel=0.01)


def test_steps_and_the_error_of_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_detector.register(monkeypatch.setattr)
    monkeypatch.setattr("capgrade.benchmarks.regions.MATRIX", 256)  # bf16 is slow where the processor lacks it
    for k in range(3):
        noise = np.random.default_rng(k).integers(0, 256, (90, 120, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{k}.png")
    result = bench(tmp_path, RegionsParams(boxes="5", precision="bf16"), limit=2)
    assert {"images_per_s", "steps"} <= result.keys() and result["images"] == 2
    assert tuple(result["steps"]) == STEPS
    seconds = sum(row["ms"] / 1000 for row in result["steps"].values())
    assert result["images_per_s"] == pytest.approx(1 / seconds)
    for name in ("backbone", "rpn", "head"):
        row = result["steps"][name]
        rate = row["gmac"] * row["images_per_s"]
        assert row["share_of_limit"] == pytest.approx(rate / result["limit_gmac_per_s"])
    assert 0 < result["bf16"]["relative_error"] < 0.05 and result["bf16"]["least_cosine"] > 0.99
