"""The whole detector: its configurations, and a tiny one from pictures to detections by batch,
precision, rule. How a picture is prepared, against OpenCV's rules written out."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import (
    NARROWEST,
    PIXEL_MEANS,
    BottomUp,
    BottomUpConfig,
    BottomUpDetector,
    CaffePrepare,
    make_backbone,
    resize,
)
from capgrade.pipelines.detectors.catalogue import make_detector, precision_for, rule_of
from capgrade.pipelines.detectors.selection import AirsplayRule, SelectionRule
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.errors import InputError
from tests.tiny_detector import TINY, tiny_model

RULE = SelectionRule(5, 8)
SMALL: dict[str, Any] = {
    "width": 1 / 32,
    "blocks": (1, 1, 1, 1),
    "rpn_channels": 8,
    "n_classes": 3,
    "n_attributes": 2,
}


@pytest.fixture
def prepared() -> tuple[Tensor, list[float]]:
    picture = np.random.default_rng(1).integers(0, 256, (96, 128, 3), np.uint8)
    image, scale = TINY.prepare(picture)
    return image[None], [scale]


def test_the_published_model() -> None:
    with torch.device("meta"):
        model = BottomUp()
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert (
        shapes["head.cls_score.weight"] == (1601, 2048)
        and "backbone.res4.22.conv3.weight" in shapes
    )
    assert shapes["head.attr_linear2.weight"] == (401, 512)


def test_logits_order_what_probabilities_tie() -> None:
    """From about 17 on a float32 sigmoid is 1: airsplay's code sorts logits."""
    for name, differ in (("caffe", False), ("airsplay", True)):
        torch.manual_seed(0)
        model = BottomUp(
            BottomUpConfig(**{**SMALL, "conventions": name, "anchor_scales": (2,)})
        ).eval()
        with torch.no_grad():
            torch.nn.init.normal_(model.rpn.objectness_logits.weight, std=1)
            A = len(model.anchors)
            model.rpn.objectness_logits.weight[:A] = 0  # no background: softmax over (0, logit)
            model.rpn.objectness_logits.bias[A:] = 60
            model.rpn.anchor_deltas.weight.zero_()
            features = model.backbone(torch.randn(1, 3, 160, 96) * 60)
            boxes, scores = model.propose(features, (160, 96), [0.0])[0]
            best = int(model.rpn.logits(features)[0][0].diff(dim=-1).argmax())
        assert len(scores) > 3 and (scores.unique().numel() > 1) == differ, name
        y, x, a = np.unravel_index(best, (features.shape[2], features.shape[3], A))
        anchor = model.anchors[a] + 16 * torch.tensor([x, y, x, y])
        ends = torch.tensor([96, 160, 96, 160])
        assert not differ or torch.equal(boxes[0], torch.minimum(anchor, ends).clamp(min=0))


def test_few_rois_at_once_change_nothing(prepared: tuple[Tensor, list[float]]) -> None:
    with torch.inference_mode():
        whole = tiny_model()(*prepared)[0]
        parts = tiny_model(dataclasses.replace(TINY, rois_at_once=7))(*prepared)[0]
    assert len(whole.boxes) > 14
    torch.testing.assert_close(whole.features, parts.features, rtol=1e-4, atol=1e-5)


def test_attributes_see_the_best_class_background_included(
    prepared: tuple[Tensor, list[float]],
) -> None:
    model = tiny_model()
    with torch.no_grad():
        logits = model.head.cls_score(model(*prepared)[0].features)
        # background wins half
        model.head.cls_score.bias[0] = (logits[:, 1:].amax(dim=1) - logits[:, 0]).median()
        regions = model(*prepared)[0]
        best = regions.classes.argmax(dim=1)
        assert (best == 0).any() and (best > 0).any()
        head = model.head
        for row in range(0, len(best), 9):
            joined = torch.cat([regions.features[row], head.cls_embed.weight[best[row]]])
            logits = head.attr_linear2(head.attr_linear1(joined).relu())
            torch.testing.assert_close(
                regions.attributes[row], logits.softmax(dim=0), rtol=1e-4, atol=1e-5
            )


def test_bfloat16_is_near_float32_on_the_same_boxes(prepared: tuple[Tensor, list[float]]) -> None:
    """bfloat16 has 8 bits: the features of given boxes differ by about 1 %; each keeps its
    direction."""
    images, scales = prepared
    model = tiny_model()
    with torch.inference_mode():
        maps = model.backbone(images)
        proposals = model.propose(maps, (images.shape[2], images.shape[3]), scales)
        expected = model.describe(maps, proposals)[0].features
        with torch.autocast("cpu", torch.bfloat16):
            found = model.describe(model.backbone(images), proposals)[0].features
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    assert (found - expected).norm() / expected.norm() < 0.03
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.999


def test_scores_and_boxes_are_computed_in_float32_under_bfloat16(
    prepared: tuple[Tensor, list[float]],
) -> None:
    """A class score of 8 bits ties with its neighbours, and a box of 8 bits moves by pixels."""
    images, scales = prepared
    detector = BottomUpDetector(tiny_model(), AirsplayRule(6), precision="bf16")
    with torch.inference_mode():
        head, (found,) = detector.model.head, detector.describe_proposals(images, scales)
        assert (
            found.deltas is not None
            and found.attributes is not None
            and found.features.dtype == torch.float32
        )
        torch.testing.assert_close(
            found.classes, head.cls_score(found.features).softmax(dim=1), rtol=1e-5, atol=1e-7
        )
        torch.testing.assert_close(
            found.deltas, head.bbox_pred(found.features), rtol=1e-5, atol=1e-7
        )
        with torch.autocast("cpu", torch.bfloat16):
            features = detector.model.backbone(images)
            logits, deltas = detector.model.rpn.logits(features)
    assert features.dtype == torch.bfloat16 and logits.dtype == deltas.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float()) and not torch.equal(
        deltas, deltas.bfloat16().float()
    )


def test_out_of_memory_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = BottomUpDetector(tiny_model(), RULE)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(detector, "describe_proposals", full)
    with pytest.raises(
        InputError,
        match=r"cpu is out of memory with 3 pictures of \(64, 85\) -> lower regions.batch",
    ):
        detector.detect(torch.zeros(3, 3, 64, 85), [1.0] * 3, [(85, 64)] * 3, ["x"] * 3)


def test_random_weights_follow_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "capgrade.pipelines.detectors.catalogue.BottomUp", lambda: BottomUp(BottomUpConfig(**SMALL))
    )
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    params = RegionsParams(detector="bottom_up", weights="random", device="cpu")
    made: Any = [make_detector(params.model_copy(update={"seed": seed})) for seed in (3, 3, 4)]
    first, again, other = (one.model.backbone.res2[0].conv1.weight for one in made)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_precisions_and_rules_by_name() -> None:
    gpu, processor = torch.device("cuda", 0), torch.device("cpu")
    assert (
        precision_for(RegionsParams(), gpu) == "bf16"
        and precision_for(RegionsParams(), processor) == "float32"
    )
    assert precision_for(RegionsParams(precision="tf32"), gpu) == "tf32"
    assert precision_for(RegionsParams(detector="detectron2"), gpu) == "float32"
    assert rule_of(RegionsParams(boxes="10-100", confidence=0.3)) == SelectionRule(
        10, 100, confidence=0.3
    )
    assert rule_of(RegionsParams(boxes="20", selection="airsplay")) == AirsplayRule(20)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"precision": "tf32", "device": "cpu"},
            "precision is tf32 on device cpu -> use float32 or bf16, or a GPU",
        ),
        (
            {"weights": "x.pth"},
            "x.pth: detector scenes has weights of its own -> give --detector bottom_up",
        ),
        ({"detector": "bottom_up"}, "detector bottom_up has no weights -> give --weights FILE"),
        ({"detector": "x"}, "unknown detector 'x' -> choose from: scenes, bottom_up, detectron2"),
        (
            {"detector": "detectron2", "weights": "x.pkl"},
            "detector detectron2 needs a config and a checkpoint -> give",
        ),
        (
            {"detector": "detectron2", "weights": "x.pkl", "config": "x.yaml", "precision": "bf16"},
            "detector detectron2 runs in float32 -> leave precision out",
        ),
        ({"config": "x.yaml"}, "detector scenes does not read regions.config"),
        (
            {"detector": "patches", "weights": "x.pth"},
            "detector patches does not read regions.weights",
        ),
        ({"detector": "patches"}, "detector patches has no model -> give --model"),
        ({"detector": "patches", "model": "x", "boxes": "4-9"}, "4-9 boxes are no grid"),
    ],
)
def test_what_a_detector_needs(given: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_detector(RegionsParams(**given))


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [
        (375, 500, 1.6),
        (500, 375, 1.6),
        (600, 1000, 1.0),
        (480, 800, 1.25),  # 1000 exactly is allowed
        (480, 801, 1000 / 801),
        (300, 900, 1000 / 900),
        (1200, 1200, 0.5),
        (1199, 1999, 600 / 1199),  # the long side becomes 1000.3, which rounds to 1000
    ],
)
def test_scale(height: int, width: int, scale: float) -> None:
    assert CaffePrepare().scale(height, width) == pytest.approx(scale, abs=0)


def slow_resize(plane: np.ndarray, scale: float) -> np.ndarray:
    """cv::resize, INTER_LINEAR, float32: pixel by pixel."""
    H, W = plane.shape
    out = np.zeros((max(1, round(H * scale)), max(1, round(W * scale))), np.float32)
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            fy, fx = ((v + 0.5) / scale - 0.5 for v in (y, x))
            y0, x0 = math.floor(fy), math.floor(fx)
            fy, fx = fy - y0, fx - x0
            y0, fy = (0, 0.0) if y0 < 0 else (y0, fy)
            x0, fx = (0, 0.0) if x0 < 0 else (x0, fx)
            y0, fy = (H - 1, 0.0) if y0 >= H - 1 else (y0, fy)
            x0, fx = (W - 1, 0.0) if x0 >= W - 1 else (x0, fx)
            y1, x1 = min(y0 + 1, H - 1), min(x0 + 1, W - 1)
            top = plane[y0, x0] * (1 - fx) + plane[y0, x1] * fx
            out[y, x] = top * (1 - fy) + (plane[y1, x0] * (1 - fx) + plane[y1, x1] * fx) * fy
    return out


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 15), st.integers(1, 15), st.floats(0.3, 4.0))
def test_resize_equals_the_loop(height: int, width: int, scale: float) -> None:
    plane = (
        np.random.default_rng(height * 16 + width)
        .uniform(-120, 150, (height, width))
        .astype(np.float32)
    )
    found = resize(torch.from_numpy(plane)[None], scale)[0].numpy()
    np.testing.assert_allclose(found, slow_resize(plane, scale), atol=1e-4)


def test_prepared_is_bgr_less_the_mean() -> None:
    rgb = np.zeros((60, 80, 3), np.uint8)
    rgb[..., 0], rgb[..., 1], rgb[..., 2] = 10, 20, 30
    image, scale = CaffePrepare()(rgb)
    assert scale == 10.0 and image.shape == (3, 600, 800) and image.dtype == torch.float32
    for channel, value in enumerate((30, 20, 10)):
        expected = torch.full((600, 800), value - PIXEL_MEANS[channel])
        torch.testing.assert_close(image[channel], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (9, 400), (640, 480), (333, 500), (1001, 999)]
)
def test_the_prepared_size_is_told_beforehand(width: int, height: int) -> None:
    prepare = CaffePrepare(64, 128)
    assert (
        prepare.size(width, height) == prepare(np.zeros((height, width, 3), np.uint8))[0].shape[1:]
    )


def test_a_picture_too_narrow_for_the_model_is_refused_and_no_wider_one() -> None:
    with pytest.raises(InputError, match="1 x 400 pixels are too narrow"):
        CaffePrepare()(np.zeros((400, 1, 3), np.uint8))
    stem = make_backbone(BottomUpConfig(**SMALL)).get_submodule("stem")
    assert stem(torch.zeros(1, 3, 9, NARROWEST)).numel()
