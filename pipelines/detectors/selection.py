"""Which of a picture's proposals are kept, and what is known of them."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pipelines.detectors.airsplay import AirsplayRule
from pipelines.detectors.ops import nms_per_class


@dataclasses.dataclass(frozen=True)
class Regions:
    """What a model says of one picture's R proposals; boxes in network pixels, everything float32.

    classes has 0 = background, attributes 0 = none, as the Caffe model and MILVLG's conversion number them.
    """

    boxes: Tensor  # (R, 4) x1 y1 x2 y2, by falling objectness, not regressed
    objectness: Tensor  # (R,), as `BottomUp.propose` gives it
    features: Tensor  # (R, D), >= 0
    classes: Tensor  # (R, n_classes + 1) probabilities
    deltas: Tensor  # (R, 4 (n_classes + 1))
    attributes: Tensor | None  # (R, n_attributes + 1) probabilities, of a model that has them


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
    attributes: np.ndarray | None  # int64 (K,), 0 .. n_attributes - 1; of a model that has them
    attribute_scores: np.ndarray | None  # float32 (K,)

    def __len__(self) -> int:
        return len(self.boxes)


class Rule(Protocol):
    """Which regions of a picture are kept."""

    def choose(self, regions: Regions, scale: float, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes (K, 4) in pixels of a picture of `size` (width, height), their scores (K,) and their rows (K,)."""
        ...


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

    def choose(self, regions: Regions, scale: float, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        boxes = regions.boxes / scale
        scores = surviving_score(boxes, regions.classes, self)
        rows = select(scores, self)
        return boxes[rows], scores[rows], rows


SELECTIONS: dict[str, Rule] = {
    "adaptive": SelectionRule(10, 100),
    "fixed36": SelectionRule(36, 36),
    "airsplay": AirsplayRule(),
}


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


def select_regions(regions: Regions, scale: float, width: int, height: int, rule: Rule) -> Detections:
    """The rule on one picture's regions; `scale` is network pixels a picture pixel."""
    boxes, scores, rows = rule.choose(regions, scale, (width, height))
    found = map(_numpy, (boxes, regions.features[rows], scores, *_best(regions.classes[rows])))
    attributes = (None, None) if regions.attributes is None else map(_numpy, _best(regions.attributes[rows]))
    return Detections(width, height, *found, *attributes)


def _best(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Number of the likeliest but for column 0, from 0, and its probability: (K, C + 1) -> (K,), (K,)."""
    score, number = probabilities[:, 1:].max(dim=1)
    return number, score


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().to("cpu", torch.float32 if x.is_floating_point() else None).numpy()
