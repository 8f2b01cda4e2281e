"""Which of a picture's proposals are kept, and what is known of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from pipelines.detectors.ops import nms_per_class


@dataclasses.dataclass(frozen=True)
class Regions:
    """What a model says of one picture's R proposals; boxes in network pixels, everything float32.

    classes has 0 = background, attributes 0 = none, as the Caffe model and MILVLG's conversion number them.
    """

    boxes: Tensor  # (R, 4) x1 y1 x2 y2, by falling objectness, not regressed
    objectness: Tensor  # (R,)
    features: Tensor  # (R, D), >= 0
    classes: Tensor  # (R, n_classes + 1) probabilities
    deltas: Tensor  # (R, 4 (n_classes + 1))
    attributes: Tensor  # (R, n_attributes + 1) probabilities


@dataclasses.dataclass(frozen=True)
class Detections:
    """The kept regions of one picture, K rows; boxes in pixels of the picture as it is stored.

    Class and attribute numbers leave out background and none, as objects_id and attrs_id of MILVLG's npz files.
    """

    width: int
    height: int
    boxes: np.ndarray  # float32 (K, 4) x1 y1 x2 y2
    features: np.ndarray  # float32 (K, D)
    scores: np.ndarray  # float32 (K,), best class score that survived suppression, 0 if none did
    classes: np.ndarray  # int64 (K,), 0 .. n_classes - 1
    class_scores: np.ndarray  # float32 (K,), probability of that class
    attributes: np.ndarray  # int64 (K,), 0 .. n_attributes - 1
    attribute_scores: np.ndarray  # float32 (K,)

    def __len__(self) -> int:
        return len(self.boxes)


@dataclasses.dataclass(frozen=True)
class SelectionRule:
    """Regions with a class score >= confidence after suppression; at least min_boxes, at most max_boxes.

    Fewer proposals than min_boxes give fewer regions. Source: tools/generate_tsv.py, bottom-up-attention.
    """

    min_boxes: int
    max_boxes: int
    confidence: float = 0.2
    nms_threshold: float = 0.3
    at_threshold: bool = True  # IoU equal to the threshold suppresses: Caffe's CPU code


SELECTIONS = {"adaptive": SelectionRule(10, 100), "fixed36": SelectionRule(36, 36)}


def surviving_score(boxes: Tensor, classes: Tensor, rule: SelectionRule) -> Tensor:
    """max_conf: best score of each region over the classes in which it survives suppression: (R, 4), (R, C+1) -> (R,).

    Suppression runs once a class, background left out, on the same unregressed boxes in picture pixels.
    """
    foreground = classes[:, 1:]
    if not len(boxes):
        return foreground.new_zeros(0)
    keep = nms_per_class(boxes, foreground, rule.nms_threshold, at_threshold=rule.at_threshold)
    return foreground.masked_fill(~keep, 0).amax(dim=1)


def select(scores: Tensor, rule: SelectionRule) -> Tensor:
    """Rows kept, int64 (K,), of `surviving_score` values (R,).

    Between min_boxes and max_boxes pass: those, in proposal order. Otherwise the best min_boxes or max_boxes by
    falling score, equal ones by row (the upstream order of equal scores is arbitrary). So with 36/36 the rows are
    sorted unless exactly 36 pass.
    """
    passing = (scores >= rule.confidence).nonzero()[:, 0]
    if rule.min_boxes <= len(passing) <= rule.max_boxes:
        return passing
    wanted = rule.min_boxes if len(passing) < rule.min_boxes else rule.max_boxes
    return scores.argsort(descending=True, stable=True)[:wanted]


def select_regions(regions: Regions, scale: float, width: int, height: int, rule: SelectionRule) -> Detections:
    """The rule on one picture's regions; `scale` is network pixels a picture pixel."""
    boxes = regions.boxes / scale
    scores = surviving_score(boxes, regions.classes, rule)
    rows = select(scores, rule)
    class_scores, classes = regions.classes[rows, 1:].max(dim=1)
    attribute_scores, attributes = regions.attributes[rows, 1:].max(dim=1)
    return Detections(
        width,
        height,
        *map(_numpy, (boxes[rows], regions.features[rows], scores[rows])),
        *map(_numpy, (classes, class_scores, attributes, attribute_scores)),
    )


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().to("cpu", torch.float32 if x.is_floating_point() else None).numpy()
