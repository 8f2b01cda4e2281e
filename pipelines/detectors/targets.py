"""What a detector in training is told: which anchors and regions are objects, and where these are."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from capgrade.pipelines.detectors.ops import iou

IGNORE = -1


@dataclasses.dataclass(frozen=True)
class Truth:
    """The objects of one picture, boxes in network pixels."""

    boxes: Tensor  # float32 (G, 4)
    classes: Tensor  # int64 (G,), 1 .. n_classes
    attributes: Tensor  # int64 (G,), 1 .. n_attributes; IGNORE where unknown


@dataclasses.dataclass(frozen=True)
class SampleRule:
    """How many anchors and regions of a picture are learnt from. Source: lib/fast_rcnn/config.py (TRAIN.*),
    bottom-up-attention, with fewer regions: 32 instead of 128 per picture, half of them objects."""

    anchors: int = 256
    anchor_share: float = 0.5  # of objects, at most
    anchor_above: float = 0.7
    anchor_below: float = 0.3
    regions: int = 32
    region_share: float = 0.5
    region_above: float = 0.5


def label_anchors(anchors: Tensor, truth: Truth, inside: Tensor, rule: SampleRule) -> tuple[Tensor, Tensor]:
    """1 object, 0 background, IGNORE: int64 (N,); and the object nearest to each anchor: int64 (N,).

    Objects: IoU >= anchor_above with one, and the best anchors of each. Anchors that leave the picture are
    ignored; a random choice keeps at most `anchors`. Source: lib/rpn/anchor_target_layer.py.
    """
    overlap = iou(anchors, truth.boxes)
    overlap[~inside] = 0
    best, nearest = overlap.max(dim=1)
    labels = torch.full((len(anchors),), IGNORE, device=anchors.device)
    labels[inside & (best < rule.anchor_below)] = 0
    of_object = overlap.amax(dim=0)
    labels[((overlap == of_object) & (of_object > 0)).any(dim=1)] = 1
    labels[best >= rule.anchor_above] = 1
    _keep(labels, 1, int(rule.anchors * rule.anchor_share))
    _keep(labels, 0, rule.anchors - int((labels == 1).sum()))
    return labels, nearest


def _keep(labels: Tensor, value: int, most: int) -> None:
    rows = (labels == value).nonzero()[:, 0]
    if len(rows) > most:
        labels[rows[torch.randperm(len(rows), device=rows.device)[most:]]] = IGNORE


def sample_regions(proposals: Tensor, truth: Truth, rule: SampleRule) -> tuple[Tensor, Tensor, Tensor]:
    """Regions to learn from: boxes (R, 4), classes int64 (R,) with 0 = background, objects int64 (R,).

    The proposals and the true boxes; objects have IoU >= region_above and are at most region_share of them.
    Source: lib/rpn/proposal_target_layer.py.
    """
    boxes = torch.cat([proposals, truth.boxes])
    best, nearest = iou(boxes, truth.boxes).max(dim=1)
    objects = _some((best >= rule.region_above).nonzero()[:, 0], int(rule.regions * rule.region_share))
    others = _some((best < rule.region_above).nonzero()[:, 0], rule.regions - len(objects))
    rows = torch.cat([objects, others])
    classes = truth.classes[nearest[rows]]
    classes[len(objects) :] = 0
    return boxes[rows], classes, nearest[rows]


def _some(rows: Tensor, most: int) -> Tensor:
    return rows[torch.randperm(len(rows), device=rows.device)[:most]]
