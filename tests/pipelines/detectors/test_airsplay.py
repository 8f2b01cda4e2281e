"""airsplay's selection against its demo script written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.selection import AirsplayRule, DescribedProposals, select_regions
from tests.tiny_detector import SELECTIONS

WIDTH, HEIGHT, SCALE = 333, 250, 600 / 250  # 799.2 x 600 is shown as 799 x 600


def make_regions(n: int, spread: float, seed: int = 0) -> DescribedProposals:
    """Proposals in network pixels: one heap where `spread` is small; background is often the likeliest."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * spread
    boxes = torch.cat([corner, corner + 100 + torch.rand(n, 2, generator=g) * 300], dim=1)
    classes = (2 * torch.randn(n, 7, generator=g)).softmax(dim=1)
    deltas = torch.randn(n, 28, generator=g) * 0.2
    return DescribedProposals(boxes, torch.rand(n, 8, generator=g), classes, deltas, None)


def slow_airsplay(regions: DescribedProposals) -> tuple[list[int], list[list[float]], float]:
    """Rows, boxes and the threshold that was reached: loops over what doit() does."""
    boxes, scores = [], []
    net = [math.floor(WIDTH * SCALE + 0.5), math.floor(HEIGHT * SCALE + 0.5)]
    for box, probabilities, moves in zip(regions.boxes, regions.classes, regions.deltas, strict=True):
        best = 1 + int(probabilities[1:].argmax())
        dx, dy, dw, dh = (float(v) for v in moves[4 * best : 4 * best + 4])
        x1, y1, x2, y2 = (float(v) for v in box)
        w, h = x2 - x1, y2 - y1
        cx, cy = x1 + w / 2 + dx * w, y1 + h / 2 + dy * h
        w, h = w * math.exp(dw), h * math.exp(dh)
        x = [min(max(v, 0.0), net[0]) * WIDTH / net[0] for v in (cx - w / 2, cx + w / 2)]
        y = [min(max(v, 0.0), net[1]) * HEIGHT / net[1] for v in (cy - h / 2, cy + h / 2)]
        boxes.append([x[0], y[0], x[1], y[1]])
        scores.append(float(probabilities[best]))
    for threshold in np.arange(0.3, 1.0, 0.1):
        kept: list[int] = []
        for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
            if not any(overlap(boxes[k], boxes[i]) > threshold for k in kept):
                kept.append(i)
        if len(kept[:36]) >= 36:
            break
    rows = [i for i in kept[:36] if boxes[i][2] > boxes[i][0] and boxes[i][3] > boxes[i][1]]
    return rows, [boxes[i] for i in rows], float(threshold)


def overlap(a: list[float], b: list[float]) -> float:
    w, h = (max(0.0, min(a[k + 2], b[k + 2]) - max(a[k], b[k])) for k in (0, 1))
    area = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return w * h / max(sum(area) - w * h, 1e-12)


@pytest.mark.parametrize(
    ("n", "spread", "reached", "count"),
    [(300, 500, 0.3, 36), (200, 200, 0.5, 36), (60, 0, 0.8, 36), (36, 0, 0.9, 35), (20, 500, 0.9, 20)],
)
def test_equals_the_script(n: int, spread: float, reached: float, count: int) -> None:
    regions = make_regions(n, spread)
    rows, boxes, threshold = slow_airsplay(regions)
    assert abs(threshold - reached) < 1e-9 and len(rows) == count
    found = select_regions([regions], [SCALE], [(WIDTH, HEIGHT)], SELECTIONS["airsplay"])[0]
    np.testing.assert_allclose(found.boxes, boxes, atol=1e-3)
    np.testing.assert_array_equal(found.features, regions.features[rows].numpy())
    np.testing.assert_array_equal(found.scores, found.class_scores)
    assert found.classes.tolist() == regions.classes[rows, 1:].argmax(dim=1).tolist()


def test_boxes_end_at_the_picture_and_empty_ones_are_left_out() -> None:
    regions = make_regions(40, 500)
    regions.boxes[3] = torch.tensor([2000.0, 10, 2300, 200])  # beyond the picture: nothing is left of it
    regions.classes[3, 1] = 2.0
    found = select_regions([regions], [SCALE], [(WIDTH, HEIGHT)], AirsplayRule(40))[0]
    assert len(found) > 5 and (found.boxes[:, 2:] > found.boxes[:, :2]).all() and found.scores.max() < 2
    assert found.boxes.min() == 0 and (found.boxes[:, 2:].max(axis=0) == [WIDTH, HEIGHT]).all()
