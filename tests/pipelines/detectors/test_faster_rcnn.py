"""Proposals against proposal_layer.py and find_top_rpn_proposals written out, and ROIPool against a
slow reference, loop by loop as the upstream code has it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.boxes import decode_boxes, encode_boxes
from capgrade.pipelines.detectors.faster_rcnn import (
    Conventions,
    ProposalRule,
    make_anchors,
    place_anchors,
    roi_pool,
    select_proposals,
)
from tests.capgrade.test_boxes import slow_nms


def test_encode_is_the_inverse_but_for_caffes_pixel() -> None:
    g = torch.Generator().manual_seed(1)
    corners = torch.rand(2, 50, 2, generator=g) * 100
    boxes, targets = torch.cat(
        [corners, corners + 5 + torch.rand(2, 50, 2, generator=g) * 60], dim=2
    )
    found = decode_boxes(boxes, encode_boxes(boxes, targets))
    expected = targets + torch.tensor([0, 0, 1, 1])
    assert (found - expected).abs().max() < 1e-3


def slow_proposals(
    scores: np.ndarray,
    deltas: np.ndarray,
    anchors: np.ndarray,
    least: float,
    rule: ProposalRule,
    name: str,
) -> list[int]:
    """Anchor numbers of the proposals of a picture of 128 x 160, anchor by anchor.
    proposal_layer.py takes the best of the large, and find_top_rpn_proposals of detectron2 the
    large of the best."""
    pixel = int(name == "caffe")
    boxes = {}
    for i, (a, d) in enumerate(zip(anchors, deltas, strict=True)):
        w, h = a[2] - a[0] + pixel, a[3] - a[1] + pixel
        cx, cy = a[0] + 0.5 * w + d[0] * w, a[1] + 0.5 * h + d[1] * h
        pw, ph = (
            math.exp(min(v, math.log(1000 / 16))) * side for v, side in ((d[2], w), (d[3], h))
        )
        x1, x2 = (min(max(x, 0), 160 - pixel) for x in (cx - 0.5 * pw, cx + 0.5 * pw))
        y1, y2 = (min(max(y, 0), 128 - pixel) for y in (cy - 0.5 * ph, cy + 0.5 * ph))
        boxes[i] = [x1, y1, x2, y2]
    sides = {i: min(x2 - x1, y2 - y1) for i, (x1, y1, x2, y2) in boxes.items()}
    large = {i for i, side in sides.items() if (side + 1 >= least if pixel else side > least)}
    best = sorted(large if pixel else boxes, key=lambda i: (-scores[i], i))[: rule.before_nms]
    best = [i for i in best if i in large]
    rows = np.array([boxes[i] for i in best], np.float32)
    kept = slow_nms(rows, scores[best], rule.nms_threshold, bool(pixel))
    return [best[k] for k in kept[: rule.after_nms]]


@pytest.mark.parametrize("name", ["caffe", "airsplay"])
@pytest.mark.parametrize(
    "rule", [ProposalRule(), ProposalRule(200, 20, 0.5, 40.0), ProposalRule(200, 40, 0.5, 0.0)]
)
def test_proposals_equal_the_loop(rule: ProposalRule, name: Conventions) -> None:
    rng = np.random.default_rng(3)
    anchors = place_anchors(
        torch.from_numpy(make_anchors(name, 16, (2, 4, 8), (0.5, 1, 2))), 8, 10, 16
    )
    anchors[7] += 500  # outside: nothing is left of it
    scores = rng.normal(0, 20, len(anchors)).astype(np.float32)
    scores[7] = 100
    deltas = rng.normal(0, 0.5, (len(anchors), 4)).astype(np.float32)
    # its growth is cut, so that nothing of it is left either
    scores[9], deltas[9] = (
        99,
        (60, 0, 10, 0),
    )
    scales = [1.5, 0.5]  # of two pictures: other sides are too small
    inputs = (torch.from_numpy(x).expand(2, *x.shape) for x in (scores, deltas))
    found = select_proposals(*inputs, anchors, (128, 160), scales, rule, name)
    for (boxes, kept), scale in zip(found, scales, strict=True):
        expected = slow_proposals(
            scores, deltas, anchors.numpy(), rule.min_side * scale, rule, name
        )
        assert len(boxes) == len(expected) > 5
        assert kept.tolist() == scores[expected].tolist()


def slow_round(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def slow_roi_pool(features: np.ndarray, rois: np.ndarray, size: int, scale: float) -> np.ndarray:
    """roi_pooling_layer.cpp, variable by variable."""
    B, C, H, W = features.shape
    f32 = np.float32
    out = np.zeros((len(rois), C, size, size), f32)
    for n, roi in enumerate(rois):
        x1, y1, x2, y2 = (slow_round(float(v * f32(scale))) for v in roi[1:])
        bin_h, bin_w = (f32(max(b - a + 1, 1)) / f32(size) for a, b in ((y1, y2), (x1, x2)))
        for ph in range(size):
            for pw in range(size):
                h1, w1 = (int(np.floor(f32(p) * b)) for p, b in ((ph, bin_h), (pw, bin_w)))
                h2, w2 = (int(np.ceil(f32(p + 1) * b)) for p, b in ((ph, bin_h), (pw, bin_w)))
                h1, h2 = (min(max(h + y1, 0), H) for h in (h1, h2))
                w1, w2 = (min(max(w + x1, 0), W) for w in (w1, w2))
                if h2 > h1 and w2 > w1:
                    out[n, :, ph, pw] = features[int(roi[0]), :, h1:h2, w1:w2].max(axis=(1, 2))
    return out


@st.composite
def maps_and_rois(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two images; six rois beyond the map, of no area, with corners on halves of a cell."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    H, W, n = draw(st.integers(1, 20)), draw(st.integers(1, 20)), 6
    features = rng.normal(size=(2, 3, H, W)).astype(np.float32)
    corner = rng.uniform(-20, 16 * np.array([W, H]), (n, 2))
    side = rng.uniform(0, 1.3 * 16 * np.array([W, H]), (n, 2)) * rng.integers(0, 2, (n, 1))
    boxes = np.concatenate([corner, corner + side], axis=1)
    boxes[:3] = np.round(boxes[:3] / 8) * 8
    return features, np.concatenate([rng.integers(0, 2, (n, 1)), boxes], axis=1).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(maps_and_rois(), st.sampled_from([1, 3, 7, 14]))
def test_roi_pool_equals_the_loop(case: tuple[np.ndarray, np.ndarray], size: int) -> None:
    features, rois = case
    parts = list(roi_pool(torch.from_numpy(features), torch.from_numpy(rois), size, 1 / 16, 4))
    assert [len(part) for part in parts] == [4, 2]
    expected = slow_roi_pool(features, rois, size, 1 / 16)
    np.testing.assert_array_equal(torch.cat(parts).numpy(), expected)


def test_roi_pool_gradient_reaches_the_maxima_once() -> None:
    features = torch.randn(1, 2, 9, 9, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 0, 0, 128, 128]])  # 9 x 9 cells
    next(roi_pool(features, rois, 3, 1 / 16, 1)).sum().backward()
    blocks = features.detach().unfold(2, 3, 3).unfold(3, 3, 3)
    is_maximum = blocks == blocks.amax(dim=(4, 5), keepdim=True)
    assert features.grad is not None
    assert torch.equal(features.grad.unfold(2, 3, 3).unfold(3, 3, 3), is_maximum.double())
