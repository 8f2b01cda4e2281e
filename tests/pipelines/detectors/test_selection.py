"""The selection rule against generate_tsv.py written out, in each of its branches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors.ops import nms
from capgrade.pipelines.detectors.selection import (
    DescribedProposals,
    SelectionRule,
    select,
    select_regions,
    surviving_score,
)
from tests.tiny_detector import SELECTIONS

RULES = {name: rule for name, rule in SELECTIONS.items() if isinstance(rule, SelectionRule)}


def slow_select(scores: np.ndarray, rule: SelectionRule) -> list[int]:
    keep = [i for i, s in enumerate(scores) if s >= np.float32(rule.confidence)]
    best_first = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if len(keep) < rule.min_boxes:
        return best_first[: rule.min_boxes]
    if len(keep) > rule.max_boxes:
        return best_first[: rule.max_boxes]
    return keep


def rows_of(scores: np.ndarray, rule: SelectionRule) -> list[int]:
    rows, count = select(torch.from_numpy(scores)[None], rule)
    return rows[0, : int(count[0])].tolist()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 0.9]), max_size=160), st.sampled_from(sorted(RULES)))
def test_select_equals_the_loop(values: list[float], name: str) -> None:
    scores = np.array(values, np.float32)
    assert rows_of(scores, RULES[name]) == slow_select(scores, RULES[name])


@pytest.mark.parametrize(
    ("name", "passing", "kept", "is_sorted"),
    [
        ("adaptive", 0, 10, True),
        ("adaptive", 9, 10, True),
        ("adaptive", 10, 10, False),
        ("adaptive", 57, 57, False),
        ("adaptive", 100, 100, False),
        ("adaptive", 101, 100, True),
        ("fixed36", 35, 36, True),
        ("fixed36", 36, 36, False),
        ("fixed36", 37, 36, True),
    ],
)
def test_branches(name: str, passing: int, kept: int, is_sorted: bool) -> None:
    """Only the branches that cut or fill are sorted; otherwise rows stay in proposal order."""
    rng = np.random.default_rng(passing)
    scores = np.concatenate([rng.uniform(0.2, 1, passing), rng.uniform(0, 0.19, 150 - passing)]).astype(np.float32)
    rng.shuffle(scores)
    rows = rows_of(scores, RULES[name])
    assert len(rows) == kept
    assert rows == slow_select(scores, RULES[name])
    falling = sorted(rows, key=lambda i: -scores[i])
    assert rows == (falling if is_sorted else sorted(rows)) and falling != sorted(rows)


def make_regions(n: int, seed: int = 0, n_classes: int = 6, n_attributes: int = 4) -> DescribedProposals:
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * 60
    boxes = torch.cat([corner, corner + torch.rand(n, 2, generator=g) * 60], dim=1)
    classes, attributes = ((4 * torch.randn(n, k + 1, generator=g)).softmax(dim=1) for k in (n_classes, n_attributes))
    features = torch.rand(n, 8, generator=g)
    return DescribedProposals(boxes, features, classes, torch.zeros(n, 4 * n_classes + 4), attributes)


def slow_surviving(boxes: torch.Tensor, classes: torch.Tensor) -> list[float]:
    best = [0.0] * len(boxes)
    for c in range(1, classes.shape[1]):
        for i in nms(boxes, classes[:, c], 0.3).tolist():
            best[i] = max(best[i], classes[i, c].item())
    return best


@pytest.mark.parametrize("n", [0, 1, 40, 120])
def test_surviving_score_equals_the_loop(n: int) -> None:
    regions = make_regions(n)
    found = surviving_score(regions.boxes[None], regions.classes[None], RULES["adaptive"])
    assert found[0].tolist() == slow_surviving(regions.boxes, regions.classes)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("n", [3, 30, 120])
def test_detections_are_the_rows_of_the_regions(name: str, n: int) -> None:
    regions, scale, rule = make_regions(n, seed=n), 1.6, RULES[name]
    [found] = select_regions([regions], [scale], [(75, 76)], rule)
    scores = np.array(slow_surviving(regions.boxes / scale, regions.classes), np.float32)
    rows = slow_select(scores, rule)
    assert len(found) == len(rows) >= min(n, rule.min_boxes) and len(found) <= rule.max_boxes
    assert (found.width, found.height) == (75, 76)
    for k, row in enumerate(rows):
        np.testing.assert_array_equal(found.boxes[k], (regions.boxes[row] / scale).numpy())
        np.testing.assert_array_equal(found.features[k], regions.features[row].numpy())
        assert found.attributes is not None and found.attribute_scores is not None and regions.attributes is not None
        classes, attributes = regions.classes[row, 1:].tolist(), regions.attributes[row, 1:].tolist()
        assert found.scores[k] == scores[row]
        assert (found.classes[k], found.class_scores[k]) == (int(np.argmax(classes)), np.float32(max(classes)))
        expected = (int(np.argmax(attributes)), np.float32(max(attributes)))
        assert (found.attributes[k], found.attribute_scores[k]) == expected
    assert found.boxes.dtype == found.features.dtype == found.scores.dtype == np.float32
    assert found.attributes is not None and found.classes.dtype == found.attributes.dtype == np.int64


@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_no_regions(name: str) -> None:
    [found] = select_regions([make_regions(0)], [1.0], [(5, 5)], SELECTIONS[name])
    assert len(found) == 0 and found.features.shape == (0, 8) and found.classes.shape == (0,)


def test_a_model_without_attributes() -> None:
    regions = dataclasses.replace(make_regions(40), attributes=None)
    [found] = select_regions([regions], [1.0], [(75, 76)], SELECTIONS["adaptive"])
    assert found.attributes is None and found.attribute_scores is None and len(found.classes) == len(found) > 0


@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_a_batch_is_selected_as_its_pictures(name: str) -> None:
    """Bit for bit, whatever the others are: many proposals, few, none, other sizes."""
    found = [make_regions(n, seed=n) for n in (120, 3, 0, 40)] + [make_regions(0)]
    scales, sizes = [1.6, 1.0, 2.5, 0.7, 1.0], [(75, 76), (120, 90), (5, 5), (171, 171), (9, 9)]
    batch = select_regions(found, scales, sizes, SELECTIONS[name])
    for regions, scale, size, one in zip(found, scales, sizes, batch, strict=True):
        [alone] = select_regions([regions], [scale], [size], SELECTIONS[name])
        for field in dataclasses.fields(alone):
            ours, theirs = getattr(one, field.name), getattr(alone, field.name)
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
            assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
