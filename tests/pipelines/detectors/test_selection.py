"""The selection rules against the authors' scripts written out: generate_tsv.py, and airsplay's
demo."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.selection import (
    DescribedProposals,
    SelectionRule,
    select_regions,
)
from tests.capgrade.test_boxes import slow_nms
from tests.tiny_detector import SELECTIONS

WIDTH, HEIGHT, SCALE = 333, 250, 600 / 250  # 799.2 x 600 is shown as 799 x 600


def slow_select(scores: np.ndarray, rule: SelectionRule) -> list[int]:
    keep = [i for i, s in enumerate(scores) if s >= np.float32(rule.confidence)]
    best_first = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if len(keep) < rule.min_boxes:
        return best_first[: rule.min_boxes]
    if len(keep) > rule.max_boxes:
        return best_first[: rule.max_boxes]
    return keep


def make_regions(
    n: int, seed: int = 0, *, spread: float = 60, least: float = 0, more: float = 60
) -> DescribedProposals:
    """Proposals in network pixels: one heap where `spread` is small; background is often the
    likeliest."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * spread
    boxes = torch.cat([corner, corner + least + torch.rand(n, 2, generator=g) * more], dim=1)
    classes = (2 * torch.randn(n, 7, generator=g)).softmax(dim=1)
    deltas, features = torch.randn(n, 28, generator=g) * 0.2, torch.rand(n, 8, generator=g)
    return DescribedProposals(
        boxes, features, classes, deltas, torch.randn(n, 5, generator=g).softmax(dim=1)
    )


def large_regions(n: int, spread: float) -> DescribedProposals:
    return make_regions(n, spread=spread, least=100, more=300)


def slow_surviving(boxes: torch.Tensor, classes: torch.Tensor) -> np.ndarray:
    best = np.zeros(len(boxes), np.float32)
    for c in range(1, classes.shape[1]):
        scores = classes[:, c].numpy()
        for i in slow_nms(boxes.numpy(), scores, 0.3):
            best[i] = max(best[i], scores[i])
    return best


@pytest.mark.parametrize("n", [3, 30, 120])
def test_detections_are_the_rows_of_the_regions(n: int) -> None:
    """As many as pass, one more and one fewer than the least and the most; a score at the threshold
    passes."""
    regions, scale = make_regions(n, seed=n), 1.6
    scores = slow_surviving(regions.boxes / scale, regions.classes)
    threshold = float(np.sort(scores)[-(n // 3)])
    passing = int((scores >= threshold).sum())
    for least, most in [
        (1, passing),
        (passing, n),
        (1, max(1, passing - 1)),
        (passing + 1, n),
        (n, n),
        (n + 9, n + 9),
    ]:
        rule = SelectionRule(least, most, confidence=threshold)
        [found] = select_regions([regions], [scale], [(75, 76)], ["x"], rule)
        rows = slow_select(scores, rule)
        assert (found.width, found.height, len(found)) == (75, 76, len(rows))
        np.testing.assert_array_equal(found.boxes, (regions.boxes[rows] / scale).numpy())
        np.testing.assert_array_equal(found.features, regions.features[rows].numpy())
        assert regions.attributes is not None
        for kinds, likely, probabilities in (
            (found.classes, found.confidences, regions.classes),
            (found.attributes, found.attribute_confidences, regions.attributes),
        ):
            assert kinds is not None and likely is not None and kinds.dtype == np.int32
            np.testing.assert_array_equal(kinds, probabilities[rows, 1:].argmax(dim=1).numpy())
            np.testing.assert_array_equal(likely, probabilities[rows, 1:].amax(dim=1).numpy())
        assert found.check() is found


def slow_airsplay(regions: DescribedProposals) -> tuple[list[int], list[list[float]], float]:
    """Rows, boxes and the threshold that was reached: loops over what doit() does."""
    boxes, scores = [], []
    net = [math.floor(WIDTH * SCALE + 0.5), math.floor(HEIGHT * SCALE + 0.5)]
    for box, probabilities, moves in zip(
        regions.boxes, regions.classes, regions.deltas, strict=True
    ):
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
        kept = slow_nms(np.array(boxes), np.array(scores), threshold, caffe=False)[:36]
        if len(kept) >= 36:
            break
    rows = [i for i in kept if boxes[i][2] > boxes[i][0] and boxes[i][3] > boxes[i][1]]
    return rows, [boxes[i] for i in rows], float(threshold)


@pytest.mark.parametrize(
    ("n", "spread", "reached", "count"),
    [
        (300, 500, 0.3, 35),
        (200, 200, 0.5, 36),
        (60, 0, 0.8, 36),
        (36, 0, 0.9, 35),
        (20, 500, 0.9, 19),
    ],
)
def test_airsplays_rule_equals_its_script(
    n: int, spread: float, reached: float, count: int
) -> None:
    """A box beyond the picture counts while boxes suppress each other; then it is left out."""
    regions = large_regions(n, spread)
    if spread == 500:
        regions.boxes[3], regions.classes[3, 1] = torch.tensor([2000.0, 10, 2300, 200]), 2.0
    rows, boxes, threshold = slow_airsplay(regions)
    assert (round(threshold, 9), len(rows)) == (reached, count)
    found = select_regions([regions], [SCALE], [(WIDTH, HEIGHT)], ["x"], SELECTIONS["airsplay"])[0]
    np.testing.assert_allclose(found.boxes, boxes, atol=1e-3)
    np.testing.assert_array_equal(found.features, regions.features[rows].numpy())
    assert found.classes.tolist() == regions.classes[rows, 1:].argmax(dim=1).tolist()


@pytest.mark.parametrize("attributes", [True, False])
@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_a_batch_is_selected_as_its_pictures(name: str, attributes: bool) -> None:
    """Bit for bit, whatever the others are: many proposals, few, none, other sizes."""
    regions = [make_regions(n, seed=n) for n in (120, 3, 0, 40)] + [make_regions(0)]
    if not attributes:
        regions = [dataclasses.replace(one, attributes=None) for one in regions]
    scales, sizes = [1.6, 1.0, 2.5, 0.7, 1.0], [(75, 76), (120, 90), (5, 5), (171, 171), (9, 9)]
    batch = select_regions(regions, scales, sizes, "abcde", SELECTIONS[name])
    for one, scale, size, image_id, found in zip(
        regions, scales, sizes, "abcde", batch, strict=True
    ):
        [alone] = select_regions([one], [scale], [size], [image_id], SELECTIONS[name])
        assert (
            (found.attributes is not None)
            == (found.attribute_confidences is not None)
            == attributes
        )
        assert len(found) <= len(one.boxes) and found.features.shape == (len(found), 8)
        for field in dataclasses.fields(alone):
            ours, theirs = getattr(found, field.name), getattr(alone, field.name)
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
            assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
