"""The whole detector: the published parameter shapes, and a tiny one run from picture to detections."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig, detect
from capgrade.pipelines.detectors.preprocess import preprocess
from capgrade.pipelines.detectors.resnet import ConvNorm
from capgrade.pipelines.detectors.rpn import ProposalRule
from capgrade.pipelines.detectors.selection import SELECTIONS, Detections
from capgrade.schemas.pictures import read_image
from tests.conftest import DATA

TINY = BottomUpConfig(
    n_classes=12,
    n_attributes=5,
    width=1 / 32,
    blocks=(1, 1, 2, 1),
    rpn_channels=16,
    embedding=8,
    attribute_hidden=16,
    pooled=7,
    proposals=ProposalRule(1000, 60),
    short_side=192,
    long_side=320,
)

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


def make_tiny(config: BottomUpConfig = TINY) -> BottomUp:
    torch.manual_seed(7)
    model = BottomUp(config).eval()
    for layer in (model.head.cls_score, model.head.attr_linear2, model.rpn.objectness_logits):
        torch.nn.init.normal_(layer.weight, std=1)  # scores that differ
    return model


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
    check(detect(make_tiny(), rgb, SELECTIONS[name]), rgb, low, high)


def test_a_photograph() -> None:
    files = sorted((DATA / "images").glob("*.jpg"))
    if not files:
        pytest.skip("no photographs here")
    rgb = read_image(files[0])
    check(detect(make_tiny(), rgb, SELECTIONS["adaptive"]), rgb, 10, 60)


def test_the_same_twice() -> None:
    first, again = (detect(make_tiny(), picture(), SELECTIONS["adaptive"]) for _ in range(2))
    for field in dataclasses.fields(Detections):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(again, field.name))


def test_a_batch_equals_its_pictures() -> None:
    model = make_tiny()
    images = torch.stack([preprocess(picture(seed=s), short=192, long=320)[0] for s in range(3)])
    with torch.inference_mode():
        together = model(images, [2.0] * 3)
        alone = [model(image[None], [2.0])[0] for image in images]
    for a, b in zip(together, alone, strict=True):
        for field in dataclasses.fields(a):
            torch.testing.assert_close(getattr(a, field.name), getattr(b, field.name), rtol=1e-4, atol=1e-4)


def test_bfloat16_autocast_stays_near_and_returns_float32() -> None:
    model = make_tiny()
    features = model.backbone(preprocess(picture(), short=192, long=320)[0][None])
    proposals = model.propose(features, (192, 256), [2.0])
    with torch.inference_mode():
        exact = model.describe(features, proposals)[0]
        with torch.autocast("cpu", torch.bfloat16):
            rough = model.describe(features, proposals)[0]
    assert all(getattr(rough, field.name).dtype == torch.float32 for field in dataclasses.fields(rough))
    error = ((rough.features - exact.features).norm() / exact.features.norm()).item()
    assert error < 0.02, error


def test_few_rois_at_once_change_nothing() -> None:
    image = preprocess(picture(), short=192, long=320)[0][None]
    with torch.inference_mode():
        whole = make_tiny()(image, [2.0])[0]
        parts = make_tiny(dataclasses.replace(TINY, rois_at_once=7))(image, [2.0])[0]
    assert len(whole.boxes) > 14
    torch.testing.assert_close(whole.features, parts.features, rtol=1e-4, atol=1e-5)


def test_attributes_see_the_best_class_background_included() -> None:
    model = make_tiny()
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
    found = detect(make_tiny(config), picture(), SELECTIONS["fixed36"])
    assert len(found) == 0 and found.features.shape == (0, TINY.n_features)


def test_gradients_reach_the_first_kernel() -> None:
    model = make_tiny().train()
    image = preprocess(picture(), short=192, long=320)[0][None]
    regions = model(image, [2.0])[0]
    (regions.classes[:, 1].sum() + regions.attributes[:, 1].sum() + regions.deltas.square().sum()).backward()
    for name, parameter in model.named_parameters():
        if not name.startswith("rpn"):
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert model.backbone.stem.conv1.weight.grad is not None
    assert model.backbone.stem.conv1.weight.grad.abs().max() > 0
