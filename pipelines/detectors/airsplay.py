"""The selection of airsplay's extraction, which LXMERT's detectron2 features come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from capgrade.pipelines.detectors.ops import nms_batch
from capgrade.pipelines.detectors.rpn import decode_boxes

if TYPE_CHECKING:
    from capgrade.pipelines.detectors.selection import Chosen, Padded


@dataclasses.dataclass(frozen=True)
class AirsplayRule:
    """`count` regions by falling score of their best class, background left out; no score is too low.

    Boxes are regressed for that class and suppress each other whatever their classes, at 0.3, 0.4, ... 0.9 until
    `count` stay; fewer when even 0.9 leaves fewer. Features are the proposal's, so a box and its feature do not
    match exactly. Of the kept, boxes without area are left out; upstream drops the box and keeps its feature.
    Source: demo/detectron2_mscoco_proposal_maxnms.py, airsplay/py-bottom-up-attention.
    """

    count: int = 36
    regresses: ClassVar[bool] = True

    def choose(self, batch: Padded, scales: Sequence[float], sizes: Sequence[tuple[int, int]]) -> Chosen:
        scores, classes = batch.classes[..., 1:].max(dim=2)
        boxes = _regressed(batch, classes + 1, scales, sizes)
        rows, count = self.kept(boxes, scores, batch.there)
        picture = torch.arange(len(rows), device=rows.device)[:, None]
        good = (boxes[..., 2:] > boxes[..., :2]).all(dim=2)[picture, rows]
        good &= torch.arange(rows.shape[1], device=rows.device) < count[:, None]
        rows = rows.gather(1, (~good).byte().argsort(dim=1, stable=True))  # those with an area first
        return boxes[picture, rows], scores[picture, rows], rows, good.sum(1)

    def kept(self, boxes: Tensor, scores: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of each picture, (B, K), and how many count (B,), at its first threshold that leaves enough."""
        rows = count = None
        for threshold in np.arange(0.3, 1.0, 0.1):
            found, number = nms_batch(
                boxes, scores, float(threshold), there=there, limit=self.count, one_pixel=False, at_threshold=False
            )
            if rows is None or count is None:
                rows, count = found, number
            enough = count >= self.count
            rows, count = torch.where(enough[:, None], rows, found), torch.where(enough, count, number)
            if bool((count >= self.count).all()):
                break
        assert rows is not None and count is not None
        return rows, count


def _regressed(batch: Padded, classes: Tensor, scales: Sequence[float], sizes: Sequence[tuple[int, int]]) -> Tensor:
    """The box of each region moved for its class, in picture pixels: (B, R, 4). Both sides end at the picture's."""
    to_pixels = [
        [side / max(1, round(side * scale)) for side in size] * 2 for size, scale in zip(sizes, scales, strict=True)
    ]
    assert batch.deltas is not None  # computed for a rule that `regresses`
    boxes = batch.boxes * batch.boxes.new_tensor(to_pixels)[:, None]
    deltas = batch.deltas.unflatten(2, (batch.classes.shape[2], 4))
    deltas = deltas.gather(2, classes[..., None, None].expand(-1, -1, 1, 4))[:, :, 0]
    regressed = decode_boxes(boxes.flatten(0, 1), deltas.flatten(0, 1), one_pixel=False).view_as(boxes)
    ends = boxes.new_tensor([[*size, *size] for size in sizes])[:, None]
    return torch.minimum(regressed, ends).clamp(min=0)
