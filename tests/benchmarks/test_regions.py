"""The benchmark of the detector: its steps, and their multiply-adds beside a count by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capgrade.benchmarks.regions import STEPS
from capgrade.pipelines.detectors.resnet import scaled
from tests import tiny_detector
from tests.conftest import call


def test_steps_and_the_error_of_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    tiny_detector.register(monkeypatch.setattr)
    monkeypatch.setattr("capgrade.benchmarks.regions.MATRIX", 256)  # bf16 is slow where the processor lacks it
    for k in range(3):
        noise = np.random.default_rng(k).integers(0, 256, (90, 120, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{k}.png")
    given = {"pictures": tmp_path, "detector": "scenes", "precision": "bf16", "limit": 2}
    sets = [word for key, value in given.items() for word in ("--set", f"bench.{key}={value}")]
    assert call("bench", "regions", *sets, "--set", "regions.boxes=5", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    whole = rows.pop("all")
    assert tuple(rows) == STEPS and whole["images"] == 2
    assert whole["images_per_s"] == pytest.approx(1000 / sum(row["ms"] for row in rows.values()))
    cells = 4 * 6  # 90 x 120 is prepared as 64 x 85
    anchors, inputs, middle = 12, scaled(1024, 1 / 32), 16
    assert rows["rpn"]["gmac"] == pytest.approx(cells * middle * (9 * inputs + 6 * anchors) / 1e9)
    assert rows["head"]["gmac"] > rows["rpn"]["gmac"] < rows["backbone"]["gmac"]
    for name in ("backbone", "rpn", "head"):
        rate = rows[name]["gmac"] * rows[name]["images_per_s"]
        assert rows[name]["share_of_limit"] == pytest.approx(rate / whole["limit_gmac_per_s"])
    assert 0 < whole["relative_error"] < 0.05 and whole["least_cosine"] > 0.99
