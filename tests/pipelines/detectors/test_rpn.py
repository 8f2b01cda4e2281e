"""Suppression, loop by loop as the upstream code has it; proposals against proposal_layer.py and find_top_rpn_proposals
written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors import ops
from capgrade.pipelines.detectors.rpn import (
    Conventions,
    ProposalRule,
    decode_boxes,
    encode_boxes,
    make_anchors,
    place_anchors,
    select_proposals,
)


def test_encode_is_the_inverse_but_for_caffes_pixel() -> None:
    g = torch.Generator().manual_seed(1)
    corners = torch.rand(2, 50, 2, generator=g) * 100
    boxes, targets = torch.cat([corners, corners + 5 + torch.rand(2, 50, 2, generator=g) * 60], dim=2)
    found = decode_boxes(boxes, encode_boxes(boxes, targets))
    expected = targets + torch.tensor([0, 0, 1, 1])
    assert (found - expected).abs().max() < 1e-3


def slow_proposals(
    scores: np.ndarray, deltas: np.ndarray, anchors: np.ndarray, least: float, rule: ProposalRule, name: str
) -> list[int]:
    """Anchor numbers of the proposals of a picture of 128 x 160, anchor by anchor. proposal_layer.py takes the best of
    the large, and find_top_rpn_proposals of detectron2 the large of the best."""
    pixel = int(name == "caffe")
    boxes = {}
    for i, (a, d) in enumerate(zip(anchors, deltas, strict=True)):
        w, h = a[2] - a[0] + pixel, a[3] - a[1] + pixel
        cx, cy = a[0] + 0.5 * w + d[0] * w, a[1] + 0.5 * h + d[1] * h
        pw, ph = (math.exp(min(v, math.log(1000 / 16))) * side for v, side in ((d[2], w), (d[3], h)))
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
@pytest.mark.parametrize("rule", [ProposalRule(), ProposalRule(200, 20, 0.5, 40.0), ProposalRule(200, 40, 0.5, 0.0)])
def test_proposals_equal_the_loop(rule: ProposalRule, name: Conventions) -> None:
    rng = np.random.default_rng(3)
    anchors = place_anchors(torch.from_numpy(make_anchors(name, 16, (2, 4, 8), (0.5, 1, 2))), 8, 10, 16)
    anchors[7] += 500  # outside: nothing is left of it
    scores = rng.normal(0, 20, len(anchors)).astype(np.float32)
    scores[7] = 100
    deltas = rng.normal(0, 0.5, (len(anchors), 4)).astype(np.float32)
    scores[9], deltas[9] = 99, (60, 0, 10, 0)  # its growth is cut, so that nothing of it is left either
    scales = [1.5, 0.5]  # of two pictures: other sides are too small
    inputs = (torch.from_numpy(x).expand(2, *x.shape) for x in (scores, deltas))
    found = select_proposals(*inputs, anchors, (128, 160), scales, rule, name)
    for (boxes, kept), scale in zip(found, scales, strict=True):
        expected = slow_proposals(scores, deltas, anchors.numpy(), rule.min_side * scale, rule, name)
        assert len(boxes) == len(expected) > 5
        assert kept.tolist() == scores[expected].tolist()


Boxes = tuple[np.ndarray, np.ndarray]  # and their scores


def slow_iou(a: np.ndarray, b: np.ndarray, extra: int) -> np.float32:
    w = max(np.float32(0), min(a[2], b[2]) - max(a[0], b[0]) + extra)
    h = max(np.float32(0), min(a[3], b[3]) - max(a[1], b[1]) + extra)
    area, other = ((x[2] - x[0] + extra) * (x[3] - x[1] + extra) for x in (a, b))
    with np.errstate(invalid="ignore"):
        return w * h / (area + other - w * h)


def slow_nms(boxes: np.ndarray, scores: np.ndarray, threshold: float, caffe: bool = True) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: (-scores[i], i)):
        values = [float(slow_iou(boxes[k], boxes[i], int(caffe))) for k in kept]
        if not any(v >= threshold if caffe else v > threshold for v in values):
            kept.append(i)
    return kept


@st.composite
def box_sets(draw: st.DrawFn) -> Boxes:
    """Small integer boxes and scores of few values: many ties, many IoUs exactly at a threshold."""
    n = draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    corner = rng.integers(0, 12, (n, 2))
    boxes = np.concatenate([corner, corner + rng.integers(0, 8, (n, 2))], axis=1).astype(np.float32)
    return boxes, (rng.integers(0, draw(st.sampled_from([3, 1000])), n) / 8).astype(np.float32)


@settings(max_examples=100, deadline=None)
@given(
    cases=st.lists(box_sets(), min_size=1, max_size=4), threshold=st.sampled_from([0.2, 0.25, 0.3, 0.5, 0.7, 0.75]),
    caffe=st.booleans(), limit=st.integers(1, 40),
    block=st.sampled_from([2, 3, 9, 512]), at_once=st.sampled_from([1, 1 << 24]),
)  # fmt: skip
def test_a_batch_and_its_classes_are_suppressed_as_by_the_loop(
    cases: list[Boxes], threshold: float, caffe: bool, limit: int, block: int, at_once: int
) -> None:
    """Padded to the most, padding anywhere; in blocks smaller than the pictures."""
    most = max(len(boxes) for boxes, _ in cases)
    boxes, scores = torch.full((len(cases), most, 4), 3.0), torch.full((len(cases), most), 9.0)
    there = torch.zeros(len(cases), most, dtype=torch.bool)
    for b, (some, values) in enumerate(cases):
        rows = torch.randperm(most, generator=torch.Generator().manual_seed(b))[: len(some)].sort().values
        boxes[b, rows], scores[b, rows] = torch.from_numpy(some).float(), torch.from_numpy(values).float()
        there[b, rows] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "NMS_BLOCK", block)
        patch.setattr(ops, "PAIRS_AT_ONCE", {"cpu": at_once})
        kept, count = ops.nms_batch(boxes, scores, threshold, there, limit, caffe=caffe)
        classes = torch.stack([scores, -scores], dim=2)
        survivors = ops.nms_per_class(boxes, classes, threshold, there)
    for b, (some, values) in enumerate(cases):
        rows = there[b].nonzero()[:, 0]
        expected = slow_nms(some, values, threshold, caffe)
        assert kept[b, : int(count[b])].tolist() == rows[expected[:limit]].tolist()
        for c, sign in enumerate((1, -1)):
            expected = slow_nms(some, sign * values, threshold)
            assert survivors[b, rows, c].nonzero()[:, 0].tolist() == sorted(expected)
