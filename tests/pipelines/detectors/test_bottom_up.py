"""The whole detector: the published parameter shapes, and a tiny one run from picture to detections."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.preprocess import preprocess
from capgrade.pipelines.detectors.resnet import ConvNorm
from capgrade.pipelines.detectors.rpn import ProposalRule
from capgrade.pipelines.detectors.selection import Detections
from tests import tiny_detector
from tests.tiny_detector import SELECTIONS, detect, tiny_model

TINY = dataclasses.replace(tiny_detector.TINY, proposals=ProposalRule(1000, 60), short_side=192, long_side=320)

# Everything outside the convolutions of the ResNet, from test.prototxt.
PUBLISHED = {
    "rpn.conv.weight": (512, 1024, 3, 3),
    "rpn.conv.bias": (512,),
    "rpn.objectness_logits.weight": (24, 512, 1, 1),
    "rpn.objectness_logits.bias": (24,),
    "rpn.anchor_deltas.weight": (48, 512, 1, 1),
    "rpn.anchor_deltas.bias": (48,),
    "head.cls_score.weight": (1601, 2048),
    "head.cls_score.bias": (1601,),
    "head.bbox_pred.weight": (6404, 2048),
    "head.bbox_pred.bias": (6404,),
    "head.cls_embed.weight": (1601, 256),
    "head.attr_linear1.weight": (512, 2304),
    "head.attr_linear1.bias": (512,),
    "head.attr_linear2.weight": (401, 512),
    "head.attr_linear2.bias": (401,),
}


def published_convolutions() -> dict[str, tuple[int, ...]]:
    """Kernels of ResNet-101, stage by stage."""
    shapes = {"backbone.stem.conv1": (64, 3, 7, 7)}
    inputs = 64
    for stage, blocks, middle in ((2, 3, 64), (3, 4, 128), (4, 23, 256), (5, 3, 512)):
        for b in range(blocks):
            prefix = f"{'head' if stage == 5 else 'backbone'}.res{stage}.{b}"
            if b == 0:
                shapes[f"{prefix}.shortcut"] = (4 * middle, inputs, 1, 1)
            shapes[f"{prefix}.conv1"] = (middle, inputs, 1, 1)
            shapes[f"{prefix}.conv2"] = (middle, middle, 3, 3)
            shapes[f"{prefix}.conv3"] = (4 * middle, middle, 1, 1)
            inputs = 4 * middle
    return shapes


def test_published_parameters() -> None:
    with torch.device("meta"):
        model = BottomUp()
    expected: dict[str, tuple[int, ...]] = dict(PUBLISHED)
    for name, shape in published_convolutions().items():
        expected |= {f"{name}.weight": shape, f"{name}.scale": shape[:1], f"{name}.shift": shape[:1]}
    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == expected
    strided = [name for name, m in model.named_modules() if isinstance(m, ConvNorm) and m.stride == 2]
    stages = ("backbone.res3.0", "backbone.res4.0")
    assert strided == ["backbone.stem.conv1", *(f"{s}.{part}" for s in stages for part in ("shortcut", "conv1"))]


def picture(height: int = 90, width: int = 120, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def check(found: Detections, rgb: np.ndarray, low: int, high: int) -> None:
    n = len(found)
    assert low <= n <= high
    assert found.boxes.shape == (n, 4) and found.features.shape == (n, TINY.n_features)
    height, width = rgb.shape[:2]
    assert (found.width, found.height) == (width, height)
    assert (found.boxes >= 0).all() and (found.boxes[:, 2:] <= [width, height]).all()
    assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()
    assert np.isfinite(found.features).all() and (found.features >= 0).all() and found.features.max() > 0
    assert found.classes.min() >= 0 and found.classes.max() < TINY.n_classes
    assert found.attributes is not None
    assert found.attributes.min() >= 0 and found.attributes.max() < TINY.n_attributes
    assert (found.scores <= found.class_scores).all() and found.class_scores.max() <= 1


@pytest.mark.parametrize(("name", "low", "high"), [("adaptive", 10, 60), ("fixed36", 36, 36)])
def test_picture_to_detections(name: str, low: int, high: int) -> None:
    rgb = picture()
    check(detect(tiny_model(TINY), rgb, SELECTIONS[name]), rgb, low, high)


def test_few_rois_at_once_change_nothing() -> None:
    image = preprocess(picture(), short=192, long=320)[0][None]
    with torch.inference_mode():
        whole = tiny_model(TINY)(image, [2.0])[0]
        parts = tiny_model(dataclasses.replace(TINY, rois_at_once=7))(image, [2.0])[0]
    assert len(whole.boxes) > 14
    torch.testing.assert_close(whole.features, parts.features, rtol=1e-4, atol=1e-5)


def test_attributes_see_the_best_class_background_included() -> None:
    model = tiny_model(TINY)
    image = preprocess(picture(), short=192, long=320)[0][None]
    with torch.no_grad():
        logits = model.head.cls_score(model(image, [2.0])[0].features)
        model.head.cls_score.bias[0] = (logits[:, 1:].amax(dim=1) - logits[:, 0]).median()  # background wins half
        regions = model(image, [2.0])[0]
        best = regions.classes.argmax(dim=1)
        assert (best == 0).any() and (best > 0).any()
        head = model.head
        for row in range(0, len(best), 9):
            joined = torch.cat([regions.features[row], head.cls_embed.weight[best[row]]])
            logits = head.attr_linear2(head.attr_linear1(joined).relu())
            torch.testing.assert_close(regions.attributes[row], logits.softmax(dim=0), rtol=1e-4, atol=1e-5)


def test_no_proposals() -> None:
    config = dataclasses.replace(TINY, proposals=ProposalRule(min_side=1000))
    found = detect(tiny_model(config), picture(), SELECTIONS["fixed36"])
    assert len(found) == 0 and found.features.shape == (0, TINY.n_features)
