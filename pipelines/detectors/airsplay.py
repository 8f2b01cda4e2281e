"""The selection of airsplay's extraction, which LXMERT's detectron2 features come from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pipelines.detectors.ops import nms
from pipelines.detectors.rpn import clip_boxes, decode_boxes

if TYPE_CHECKING:
    from pipelines.detectors.selection import Regions


@dataclasses.dataclass(frozen=True)
class AirsplayRule:
    """`count` regions by falling score of their best class, background left out; no score is too low.

    Boxes are regressed for that class and suppress each other whatever their classes, at 0.3, 0.4, ... 0.9 until
    `count` stay; fewer when even 0.9 leaves fewer. Features are the proposal's, so a box and its feature do not
    match exactly. Of the kept, boxes without area are left out; upstream drops the box and keeps its feature.
    Source: demo/detectron2_mscoco_proposal_maxnms.py, airsplay/py-bottom-up-attention.
    """

    count: int = 36

    def choose(self, regions: Regions, scale: float, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        scores, classes = regions.classes[:, 1:].max(dim=1)
        boxes = _regressed(regions, classes + 1, scale, size)
        kept = self.kept(boxes, scores)
        kept = kept[(boxes[kept, 2:] > boxes[kept, :2]).all(dim=1)]
        return boxes[kept], scores[kept], kept

    def kept(self, boxes: Tensor, scores: Tensor) -> Tensor:
        """Rows at the first threshold that leaves enough."""
        for threshold in np.arange(0.3, 1.0, 0.1):
            kept = nms(boxes, scores, float(threshold), limit=self.count, one_pixel=False, at_threshold=False)
            if len(kept) >= self.count:
                break
        return kept


def _regressed(regions: Regions, classes: Tensor, scale: float, size: tuple[int, int]) -> Tensor:
    """The box of each region moved for its class, in picture pixels: (R, 4). Both sides end at the picture's."""
    width, height = size
    x, y = (side / max(1, round(side * scale)) for side in size)
    boxes = regions.boxes * regions.boxes.new_tensor([x, y, x, y])
    deltas = regions.deltas.unflatten(1, (regions.classes.shape[1], 4))[
        torch.arange(len(boxes), device=boxes.device), classes
    ]
    return clip_boxes(decode_boxes(boxes, deltas, one_pixel=False), height, width, one_pixel=False)
