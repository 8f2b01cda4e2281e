import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.detectors.ops import iou
from capgrade.pipelines.detectors.targets import IGNORE, SampleRule, Truth, label_anchors, sample_regions


def boxes_of(rng, n, side=100):
    corner = rng.integers(0, side - 20, (n, 2))
    return torch.tensor(np.concatenate([corner, corner + rng.integers(8, 60, (n, 2))], 1), dtype=torch.float32)


def truth_of(rng, n):
    return Truth(boxes_of(rng, n), torch.tensor(rng.integers(1, 9, n)), torch.tensor(rng.integers(1, 4, n)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_anchors_without_a_limit_are_labelled_by_the_rule(seed, objects):
    rng = np.random.default_rng(seed)
    anchors, truth = boxes_of(rng, 80), truth_of(rng, objects)
    inside = torch.tensor(rng.random(80) < 0.8)
    labels, nearest = label_anchors(anchors, truth, inside, SampleRule(anchors=10**6))
    overlap = iou(anchors, truth.boxes) * inside[:, None]
    for a in range(80):
        best = float(overlap[a].max())
        best_of_one = any(overlap[a, g] > 0 and overlap[a, g] == overlap[:, g].max() for g in range(objects))
        wanted = 1 if best >= 0.7 or best_of_one else 0 if inside[a] and best < 0.3 else IGNORE
        assert labels[a] == wanted
        assert overlap[a, nearest[a]] == best


def test_anchor_sampling_keeps_the_limits():
    rng = np.random.default_rng(0)
    labels, _ = label_anchors(
        boxes_of(rng, 4000), truth_of(rng, 6), torch.ones(4000, dtype=torch.bool), SampleRule(anchors=32)
    )
    assert (labels == 1).sum() <= 16
    assert (labels >= 0).sum() == 32


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_sampled_regions_carry_the_class_of_what_they_cover(seed, objects):
    rng = np.random.default_rng(seed)
    proposals, truth, rule = boxes_of(rng, 60), truth_of(rng, objects), SampleRule(regions=24)
    boxes, classes, nearest = sample_regions(proposals, truth, rule)
    overlap = iou(boxes, truth.boxes)
    assert len(boxes) <= 24 and (classes > 0).sum() <= 12
    for r in range(len(boxes)):
        covers = overlap[r].max() >= rule.region_above
        assert classes[r] == (truth.classes[nearest[r]] if covers else 0)
        assert overlap[r, nearest[r]] == overlap[r].max()
    assert (classes > 0).any(), "a true box is always among the candidates"
