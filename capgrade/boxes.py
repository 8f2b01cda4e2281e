"""Overlaps of boxes in plain torch, on any device. Boxes are float (..., N, 4), x1 y1 x2 y2."""

import torch
from torch import Tensor


def iou(boxes: Tensor, others: Tensor, *, caffe: bool = True) -> Tensor:
    """Intersection over union: (..., N, 4), (..., M, 4) -> (..., N, M).

    `caffe`: a box holds both its border pixels, so widths are x2 - x1 + 1 (lib/nms/cpu_nms.pyx);
    without it x2 - x1 (torchvision, detectron2), where two boxes of no area give NaN.
    """
    extra = float(caffe)
    area, other_area = _area(boxes, extra), _area(others, extra)
    top_left = torch.maximum(boxes[..., :, None, :2], others[..., None, :, :2])
    bottom_right = torch.minimum(boxes[..., :, None, 2:], others[..., None, :, 2:])
    shared = (bottom_right - top_left + extra).clamp_(min=0).prod(dim=-1)
    return shared / (area[..., :, None] + other_area[..., None, :] - shared)


def _area(boxes: Tensor, extra: float) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0] + extra) * (boxes[..., 3] - boxes[..., 1] + extra)
