"""detectron2's and airsplay's conventions against find_top_rpn_proposals and its neighbours written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from capgrade.pipelines.detectors.bottom_up import CONFIGS, BottomUp, BottomUpConfig
from capgrade.pipelines.detectors.ops import nms
from capgrade.pipelines.detectors.resnet import ConvNorm, Stem
from capgrade.pipelines.detectors.rpn import (
    CONVENTIONS,
    ProposalRule,
    clip_boxes,
    decode_boxes,
    encode_boxes,
    make_exact_anchors,
    place_anchors,
    select_proposals,
)
from capgrade.schemas.errors import InputError

SMALL: dict[str, Any] = {"width": 1 / 32, "blocks": (1, 1, 1, 1), "rpn_channels": 8, "n_classes": 3, "n_attributes": 2}


def test_exact_anchors_go_size_by_size_about_the_corner() -> None:
    expected = []
    for size in (64, 128, 256, 512):
        for ratio in (0.5, 1, 2):
            w = math.sqrt(size * size / ratio)
            expected.append([-w / 2, -ratio * w / 2, w / 2, ratio * w / 2])
    found = make_exact_anchors(16, (4, 8, 16, 32), (0.5, 1, 2))
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_open_boxes_round_trip() -> None:
    g = torch.Generator().manual_seed(1)
    corners = torch.rand(2, 50, 2, generator=g) * 100
    boxes, targets = torch.cat([corners, corners + 5 + torch.rand(2, 50, 2, generator=g) * 60], dim=2)
    deltas = encode_boxes(boxes, targets, one_pixel=False)
    error = (decode_boxes(boxes, deltas, one_pixel=False) - targets).abs().max().item()
    assert error < 1e-3, error
    assert decode_boxes(boxes[:1], torch.zeros(1, 4), one_pixel=False).allclose(boxes[:1], atol=1e-4)


def test_open_boxes_end_at_the_sides() -> None:
    boxes = torch.tensor([[-5.0, -5, 1000, 1000], [3, 4, 5, 6]])
    assert clip_boxes(boxes, 60, 80, one_pixel=False).tolist() == [[0, 0, 80, 60], [3, 4, 5, 6]]


def slow_top_proposals(
    logits: np.ndarray, deltas: np.ndarray, anchors: np.ndarray, image: tuple[int, int], rule: ProposalRule
) -> list[int]:
    """Anchor numbers by find_top_rpn_proposals of detectron2, one anchor after the other."""
    boxes, kept = {}, []
    for i in sorted(range(len(logits)), key=lambda i: (-logits[i], i))[: rule.before_nms]:
        a, d = anchors[i], deltas[i]
        w, h = a[2] - a[0], a[3] - a[1]
        cx, cy = a[0] + 0.5 * w + d[0] * w, a[1] + 0.5 * h + d[1] * h
        pw, ph = (math.exp(min(v, math.log(1000 / 16))) * side for v, side in ((d[2], w), (d[3], h)))
        x1, x2 = (min(max(x, 0), image[1]) for x in (cx - 0.5 * pw, cx + 0.5 * pw))
        y1, y2 = (min(max(y, 0), image[0]) for y in (cy - 0.5 * ph, cy + 0.5 * ph))
        if x2 - x1 > rule.min_side and y2 - y1 > rule.min_side:
            boxes[i] = [x1, y1, x2, y2]
            kept.append(i)
    rows = torch.tensor([boxes[i] for i in kept], dtype=torch.float32).reshape(-1, 4)
    order = nms(rows, torch.from_numpy(logits[kept]), rule.nms_threshold, one_pixel=False, at_threshold=False)
    return [kept[k] for k in order[: rule.after_nms].tolist()]


@pytest.mark.parametrize("min_side", [0.0, 30.0])
def test_proposals_equal_the_loop(min_side: float) -> None:
    rng = np.random.default_rng(3)
    anchors = place_anchors(torch.from_numpy(make_exact_anchors(16, (2, 4, 8), (0.5, 1, 2))), 8, 10, 16)
    anchors[7] += 500  # outside: nothing is left of it
    logits = rng.normal(0, 20, len(anchors)).astype(np.float32)
    logits[7] = 100
    deltas = rng.normal(0, 0.5, (len(anchors), 4)).astype(np.float32)
    rule = ProposalRule(200, 40, 0.5, min_side, at_threshold=False)
    expected = slow_top_proposals(logits, deltas, anchors.numpy(), (128, 160), rule)
    inputs = (torch.from_numpy(x)[None] for x in (logits, deltas))
    [(boxes, scores)] = select_proposals(*inputs, anchors, (128, 160), [1.0], rule, CONVENTIONS["detectron2"])
    assert len(boxes) == len(expected) > 5 and 7 not in expected
    assert scores.tolist() == logits[expected].tolist()


def test_padded_pool() -> None:
    stem = Stem(8, padded_pool=True).eval()
    x = torch.randn(1, 3, 33, 31)  # conv1 gives 17 x 16
    with torch.no_grad():
        before = functional.relu(stem.conv1(x))
        after = stem(x)
    assert after.shape[2:] == (9, 8)
    assert torch.equal(after[..., 0, 0], before[..., :2, :2].amax(dim=(2, 3)))
    assert torch.equal(after[..., 8, 7], before[..., 15:17, 13:16].amax(dim=(2, 3)))


def test_logits_order_what_probabilities_tie() -> None:
    """From about 17 on a float32 sigmoid is 1: detectron2 sorts logits."""
    for name, differ in (("caffe", False), ("airsplay", True), ("detectron2", True)):
        torch.manual_seed(0)
        model = BottomUp(BottomUpConfig(conventions=name, **SMALL)).eval()
        with torch.no_grad():
            torch.nn.init.normal_(model.rpn.objectness_logits.weight, std=1)
            A = len(model.anchors)
            model.rpn.objectness_logits.weight[:A] = 0  # no background: softmax over (0, logit)
            model.rpn.objectness_logits.bias[A:] = 60
            _, scores = model.propose(model.backbone(torch.randn(1, 3, 160, 160) * 60), (160, 160), [1.0])[0]
        assert len(scores) > 3 and (scores.unique().numel() > 1) == differ, name


@pytest.mark.parametrize("pooler", ["ROIPool", "ROIAlign", "ROIAlignV2"])
def test_poolers_by_name(pooler: str) -> None:
    """Each gives what none of the others gives."""
    torch.manual_seed(0)
    features, rois = torch.rand(1, 32, 10, 10), torch.tensor([[0.0, 11, 22, 99, 88]])
    found = {}
    for name in ("ROIPool", "ROIAlign", "ROIAlignV2"):
        torch.manual_seed(1)
        model = BottomUp(BottomUpConfig(pooler=name, **SMALL)).eval()
        with torch.no_grad():
            found[name] = model.roi_features(features, rois)
    assert all(not found[pooler].allclose(other) for name, other in found.items() if name != pooler)


def test_named_configs() -> None:
    with torch.device("meta"):
        models = {name: BottomUp(config) for name, config in CONFIGS.items()}
    published, airsplay, ours = (models[name].state_dict() for name in ("caffe", "airsplay", "detectron2"))
    assert {k: v.shape for k, v in published.items()} == {k: v.shape for k, v in airsplay.items()}
    assert ours["rpn.conv.weight"].shape == (1024, 1024, 3, 3) and ours["rpn.anchor_deltas.bias"].shape == (60,)
    first = models["detectron2"].head.res5[0]
    assert isinstance(first.conv1, ConvNorm) and isinstance(first.conv2, ConvNorm)
    assert first.conv1.stride == 2 and first.conv2.dilation == 1
    assert models["detectron2"].backbone.stem.padded_pool and not models["airsplay"].backbone.stem.padded_pool


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="caffe, airsplay, detectron2"):
        BottomUp(BottomUpConfig(conventions="caffe2"))
