"""The comparison with detectron2: its weights are ours, its table tells equal from unequal; the real one runs small."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from capgrade.benchmarks import detectron_parity
from capgrade.benchmarks.detectron_parity import Stages, compare, differences
from capgrade.benchmarks.detectron_weights import BOX_WEIGHTS, random_model, to_detectron
from capgrade.pipelines.detectors.detectron_zoo import need_detectron2
from capgrade.schemas.errors import InputError


def test_weights_under_their_names() -> None:
    model = random_model(50, 10)
    state = to_detectron(model)
    convs = 1 + 3 * (3 + 4 + 6 + 3) + 4
    assert len(state) == 5 * convs + 6 + 4  # kernel and four norm vectors; RPN; predictor
    name = "roi_heads.res5.0.conv2"
    x = torch.rand(1, 512, 7, 7)
    plain = functional.conv2d(x, state[f"{name}.weight"], padding=1)
    norm = (state[f"{name}.norm.{key}"] for key in ("running_mean", "running_var", "weight", "bias"))
    expected = model.head.res5[0].conv2(x)
    error = (functional.batch_norm(plain, *norm) - expected).abs().max().item()
    assert error < 1e-4, error
    predictor = "roi_heads.box_predictor"
    assert torch.equal(state[f"{predictor}.cls_score.weight"][-1], model.head.cls_score.weight[0])
    assert torch.equal(state[f"{predictor}.bbox_pred.weight"][5], model.head.bbox_pred.weight[9] * BOX_WEIGHTS[1])
    assert state["proposal_generator.rpn_head.objectness_logits.weight"].shape == (15, 1024, 1, 1)


def stages(seed: int = 0) -> Stages:
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(6, 2, generator=g) * 300
    sizes = {"backbone": (4, 3, 3), "rpn_logits": (2, 3, 3), "rpn_deltas": (8, 3, 3), "roi_features": (6, 5)}
    sizes |= {"class_scores": (6, 3), "boxes": (6, 8)}
    values = {name: torch.rand(*shape, generator=g) for name, shape in sizes.items()}
    return Stages(proposals=torch.cat([corner, corner + 50], dim=1), **values)


def test_differences_pair_regions_and_see_what_is_off() -> None:
    ours, order = stages(), torch.tensor([1, 0, 2, 3, 5, 4])
    rows = ("proposals", "roi_features", "class_scores", "boxes")
    theirs = dataclasses.replace(ours, **{name: getattr(ours, name)[order] for name in rows})
    found = differences(ours, theirs)
    assert found["proposals"]["moved_rows"] == 4
    assert all(values["abs"] == values["rel"] == 0 for values in found.values())
    off = theirs.roi_features.clone()
    off[0, 0] += 0.5
    found = differences(ours, dataclasses.replace(theirs, roi_features=off))["roi_features"]
    assert abs(found["abs"] - 0.5) < 1e-6 and 0.3 < found["rel"] < 1.1


def test_other_proposals_are_refused() -> None:
    with pytest.raises(InputError, match="do not pair"):
        differences(stages(), stages(seed=1))


def test_absence_is_one_line(tmp_path: Path) -> None:
    try:
        need_detectron2()
    except InputError:
        command = [sys.executable, "-m", "capgrade.benchmarks.detectron_parity", "--images", str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 1 and run.stderr.startswith("detectron2") and run.stderr.count("\n") == 1
    else:
        pytest.skip("detectron2 is here")


def test_equal_to_detectron2(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        need_detectron2()
    except InputError as absent:
        pytest.skip(absent.problem)
    monkeypatch.setattr(detectron_parity, "SIDES", (160, 240))
    rgb = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    found = compare([rgb], depth=50, proposals=20)
    assert found["equal"] and found["ratio"] > 0 and len(found["differences"]) == 7, found
