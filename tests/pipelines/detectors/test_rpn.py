"""Proposals against proposal_layer.py and find_top_rpn_proposals written out."""

import math

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.rpn import (
    Conventions,
    ProposalRule,
    decode_boxes,
    encode_boxes,
    make_anchors,
    place_anchors,
    select_proposals,
)
from tests.pipelines.detectors.test_ops import slow_nms


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
