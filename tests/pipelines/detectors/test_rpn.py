"""Anchors against the published numbers, proposals against proposal_layer.py written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.ops import nms
from capgrade.pipelines.detectors.rpn import (
    ProposalRule,
    RPNHead,
    clip_boxes,
    decode_boxes,
    encode_boxes,
    make_anchors,
    place_anchors,
    select_proposals,
)

# Scales 8, 16, 32 are printed in lib/rpn/generate_anchors.py (from 1: one less here); 4 is worked out by hand.
LEGACY = [
    (-38, -16, 53, 31),
    (-84, -40, 99, 55),
    (-176, -88, 191, 103),
    (-360, -184, 375, 199),
    (-24, -24, 39, 39),
    (-56, -56, 71, 71),
    (-120, -120, 135, 135),
    (-248, -248, 263, 263),
    (-14, -36, 29, 51),
    (-36, -80, 51, 95),
    (-80, -168, 95, 183),
    (-168, -344, 183, 359),
]


def test_the_twelve_legacy_anchors() -> None:
    anchors = make_anchors(16, (4, 8, 16, 32), (0.5, 1, 2))
    assert anchors.dtype == np.float32
    assert anchors.tolist() == [list(map(float, row)) for row in LEGACY]


def test_anchors_go_by_row_column_anchor() -> None:
    anchors = torch.from_numpy(make_anchors(16, (4, 8), (1,)))
    placed = place_anchors(anchors, 2, 3, 16)
    expected = [
        (a + torch.tensor([16 * x, 16 * y, 16 * x, 16 * y])).tolist()
        for y in range(2)
        for x in range(3)
        for a in anchors
    ]
    assert placed.tolist() == expected


def test_head_order_follows_the_anchors() -> None:
    """Caffe's reshape and softmax: background in the first A channels, object in the next A."""
    head = RPNHead(8, 8, 3)
    x = torch.randn(2, 8, 4, 5)
    found, deltas = head.logits(x)
    hidden = head.conv(x).relu()
    logits, moves = head.objectness_logits(hidden), head.anchor_deltas(hidden)
    for b, y, x_, a in [(0, 0, 0, 0), (1, 3, 4, 2), (0, 2, 1, 1), (1, 0, 4, 0)]:
        row = (y * 5 + x_) * 3 + a
        torch.testing.assert_close(found[b, row], torch.stack([logits[b, a, y, x_], logits[b, 3 + a, y, x_]]))
        torch.testing.assert_close(deltas[b, row], moves[b, 4 * a : 4 * a + 4, y, x_])


def test_decode_known_and_several_classes() -> None:
    box = torch.tensor([[10.0, 20, 19, 39]])  # 10 x 20 about (15, 30)
    zero = torch.zeros(1, 4)
    assert decode_boxes(box, zero).tolist() == [[10, 20, 20, 40]]  # Caffe's x2, y2: one more than they were
    move = torch.tensor([[0.5, -0.25, np.log(2.0), 0]], dtype=torch.float32)
    torch.testing.assert_close(decode_boxes(box, move), torch.tensor([[10.0, 15, 30, 35]]))
    both = decode_boxes(box, torch.cat([zero, move], dim=1))
    torch.testing.assert_close(both, torch.tensor([[10.0, 20, 20, 40, 10, 15, 30, 35]]))
    assert decode_boxes(box, torch.tensor([[0, 0, 1e4, 1e4]])).isfinite().all()


def test_encode_is_the_inverse_but_for_the_pixel() -> None:
    g = torch.Generator().manual_seed(1)
    corners = torch.rand(2, 50, 2, generator=g) * 100
    boxes, targets = torch.cat([corners, corners + 5 + torch.rand(2, 50, 2, generator=g) * 60], dim=2)
    found = decode_boxes(boxes, encode_boxes(boxes, targets))
    expected = targets + torch.tensor([0, 0, 1, 1])
    assert (found - expected).abs().max() < 1e-3


def test_clip() -> None:
    boxes = torch.tensor([[-5.0, -5, 1000, 1000], [3, 4, 5, 6]])
    assert clip_boxes(boxes, 60, 80).tolist() == [[0, 0, 79, 59], [3, 4, 5, 6]]
    assert clip_boxes(torch.zeros(0, 8), 60, 80).shape == (0, 8)


def slow_proposals(
    scores: np.ndarray,
    deltas: np.ndarray,
    anchors: np.ndarray,
    image: tuple[int, int],
    scale: float,
    rule: ProposalRule,
) -> list[int]:
    """Anchor numbers of the proposals, by proposal_layer.py, one anchor after the other."""
    large, boxes = [], {}
    for i, (a, d) in enumerate(zip(anchors, deltas, strict=True)):
        w, h = a[2] - a[0] + 1, a[3] - a[1] + 1
        cx, cy = a[0] + 0.5 * w + d[0] * w, a[1] + 0.5 * h + d[1] * h
        pw, ph = np.exp(d[2]) * w, np.exp(d[3]) * h
        box = np.array([cx - 0.5 * pw, cy - 0.5 * ph, cx + 0.5 * pw, cy + 0.5 * ph])
        box[0::2] = np.clip(box[0::2], 0, image[1] - 1)
        box[1::2] = np.clip(box[1::2], 0, image[0] - 1)
        if min(box[2] - box[0], box[3] - box[1]) + 1 >= rule.min_side * scale:
            large.append(i)
            boxes[i] = box
    best = sorted(large, key=lambda i: (-scores[i], i))[: rule.before_nms]
    rows = torch.tensor(np.array([boxes[i] for i in best]), dtype=torch.float32).reshape(-1, 4)
    kept = nms(rows, torch.from_numpy(scores[best]), rule.nms_threshold)[: rule.after_nms]
    return [best[k] for k in kept.tolist()]


@pytest.mark.parametrize("rule", [ProposalRule(), ProposalRule(200, 20, 0.5, 40.0)])
def test_proposals_equal_the_loop(rule: ProposalRule) -> None:
    rng = np.random.default_rng(3)
    anchors = place_anchors(torch.from_numpy(make_anchors(16, (4, 8, 16, 32), (0.5, 1, 2))), 8, 10, 16)
    scores = rng.random(len(anchors)).astype(np.float32)
    deltas = rng.normal(0, 0.5, (len(anchors), 4)).astype(np.float32)
    scales = [1.5, 0.5]  # of two pictures: other sides are too small
    inputs = (torch.from_numpy(x).expand(2, *x.shape) for x in (scores, deltas))
    for (boxes, kept), scale in zip(select_proposals(*inputs, anchors, (128, 160), scales, rule), scales, strict=True):
        expected = slow_proposals(scores, deltas, anchors.numpy(), (128, 160), scale, rule)
        assert len(boxes) == len(expected) > 5
        assert kept.tolist() == scores[expected].tolist()
        sides = boxes[:, 2:] - boxes[:, :2] + 1
        assert sides.min() >= rule.min_side * scale


def test_no_proposal_is_large_enough() -> None:
    anchors = torch.from_numpy(make_anchors(16, (4,), (1,)))
    inputs = torch.ones(1, 1), torch.zeros(1, 1, 4)
    [(boxes, scores)] = select_proposals(*inputs, anchors, (10, 10), [1.0], ProposalRule())
    assert boxes.shape == (0, 4) and scores.shape == (0,)
