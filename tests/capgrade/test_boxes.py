"""Overlaps and suppression against a slow reference, loop by loop as the upstream code has it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade import boxes as of_boxes

Boxes = tuple[np.ndarray, np.ndarray]  # and their scores


def slow_iou(a: np.ndarray, b: np.ndarray, extra: int) -> np.float32:
    w = max(np.float32(0), min(a[2], b[2]) - max(a[0], b[0]) + extra)
    h = max(np.float32(0), min(a[3], b[3]) - max(a[1], b[1]) + extra)
    area, other = ((x[2] - x[0] + extra) * (x[3] - x[1] + extra) for x in (a, b))
    with np.errstate(invalid="ignore"):
        return w * h / (area + other - w * h)


def slow_nms(
    boxes: np.ndarray, scores: np.ndarray, threshold: float, caffe: bool = True
) -> list[int]:
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
        rows = (
            torch.randperm(most, generator=torch.Generator().manual_seed(b))[: len(some)]
            .sort()
            .values
        )
        boxes[b, rows], scores[b, rows] = (
            torch.from_numpy(some).float(),
            torch.from_numpy(values).float(),
        )
        there[b, rows] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_boxes, "NMS_BLOCK", block)
        patch.setattr(of_boxes, "PAIRS_AT_ONCE", {"cpu": at_once})
        kept, count = of_boxes.nms_batch(boxes, scores, threshold, there, limit, caffe=caffe)
        classes = torch.stack([scores, -scores], dim=2)
        survivors = of_boxes.nms_per_class(boxes, classes, threshold, there)
    for b, (some, values) in enumerate(cases):
        rows = there[b].nonzero()[:, 0]
        expected = slow_nms(some, values, threshold, caffe)
        assert kept[b, : int(count[b])].tolist() == rows[expected[:limit]].tolist()
        for c, sign in enumerate((1, -1)):
            expected = slow_nms(some, sign * values, threshold)
            assert survivors[b, rows, c].nonzero()[:, 0].tolist() == sorted(expected)
