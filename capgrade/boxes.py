"""Boxes in plain torch, on any device: overlaps, suppression and moves.

Boxes are float (..., N, 4), x1 y1 x2 y2. Nothing loops over boxes or pictures in Python.
"""

import itertools
import math

import numpy as np
import torch
from torch import Tensor

NMS_BLOCK = 512
PAIRS_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 26}  # cells of (overlapping pair, class), in bools
# On a GPU, steps between two checks for a change, because a check waits for the device.
STEPS_A_CHECK = 6
LARGEST_LOG_GROWTH = math.log(1000 / 16)


def iou(boxes: Tensor, others: Tensor, *, caffe: bool = True) -> Tensor:
    """Intersection over union: (..., N, 4), (..., M, 4) -> (..., N, M).

    `caffe`: a box holds both its border pixels, so widths are x2 - x1 + 1 (lib/nms/cpu_nms.pyx);
    without it x2 - x1 (torchvision, detectron2), where two boxes of no area give NaN.

    >>> iou(torch.tensor([[0.0, 0, 9, 9]]), torch.tensor([[0.0, 0, 9, 4], [20, 20, 29, 29]]))
    tensor([[0.5000, 0.0000]])
    """
    extra = float(caffe)
    area = (boxes[..., 2:] - boxes[..., :2] + extra).prod(dim=-1)
    other_area = (others[..., 2:] - others[..., :2] + extra).prod(dim=-1)
    top_left = torch.maximum(boxes[..., :, None, :2], others[..., None, :, :2])
    bottom_right = torch.minimum(boxes[..., :, None, 2:], others[..., None, :, 2:])
    shared = (bottom_right - top_left + extra).clamp_(min=0).prod(dim=-1)
    return shared / (area[..., :, None] + other_area[..., None, :] - shared)


def overlaps(boxes: Tensor, others: Tensor, threshold: float, *, caffe: bool = True) -> Tensor:
    """Which pairs suppress each other, bool (..., N, M): IoU >= threshold, as in Caffe's CPU code,
    or without `caffe` IoU > threshold, as in torchvision.

    The float32 IoU is compared with the threshold in float64, as cpu_nms.pyx and torchvision's CPU
    kernel do.
    """
    values = iou(boxes, others, caffe=caffe)
    # The comparison in float64 is one in float32 with the next float32 above or below.
    near = np.float32(threshold)
    if caffe:
        above = near if float(near) >= threshold else np.nextafter(near, np.float32(2))
        return values >= float(above)
    below = near if float(near) <= threshold else np.nextafter(near, np.float32(-1))
    return values > float(below)


def nms_batch(
    boxes: Tensor,
    scores: Tensor,
    threshold: float,
    valid: Tensor,
    limit: int,
    *,
    caffe: bool = True,
) -> tuple[Tensor, Tensor]:
    """Greedy suppression in B pictures: (B, N, 4), scores (B, N) without NaN -> the indices kept,
    int64 (B, K <= limit), by falling score, equal scores by rising index; and their number (B,),
    after which columns mean nothing.

    `valid` (B, N) is False for padding. Source: lib/nms/cpu_nms.pyx of bottom-up-attention, whose
    order of equal scores is arbitrary; without `caffe` torchvision's nms.
    """
    B, N = scores.shape
    limit = min(limit, N)
    order = scores.masked_fill(~valid, -torch.inf).argsort(dim=1, descending=True, stable=True)
    # The last column takes what is beyond the limit.
    kept, count = order.new_zeros(B, limit + 1), order.new_zeros(B)
    rank = torch.arange(limit, device=order.device)
    steps = 1 if boxes.device.type == "cpu" else STEPS_A_CHECK
    # The best boxes of all pictures come first, block by block, until every picture has its limit.
    for block in order.split(NMS_BLOCK, dim=1):
        block_boxes, kept_boxes = take_rows(boxes, block), take_rows(boxes, kept[:, :limit])
        by_kept = overlaps(kept_boxes, block_boxes, threshold, caffe=caffe)
        by_kept &= (rank < count[:, None])[:, :, None]
        alive = valid.gather(1, block) & ~by_kept.any(dim=1)
        # Box i of the block removes a later box j if they overlap and i is kept. After t steps the
        # answers of the t best boxes are final; all are after the longest chain of removals.
        above = overlaps(block_boxes, block_boxes, threshold, caffe=caffe).triu_(diagonal=1)
        keep = alive
        for step in itertools.count(1):
            before, keep = keep, alive & ~(above & keep[:, :, None]).any(dim=1)
            if step % steps == 0 and torch.equal(before, keep):
                break
        place = (count[:, None] + keep.cumsum(1) - 1).masked_fill(~keep, limit).clamp_(max=limit)
        kept.scatter_(1, place, block)
        count = (count + keep.sum(1)).clamp_(max=limit)
        if N > NMS_BLOCK and bool((count == limit).all()):
            break
    return kept[:, :limit], count


def nms_per_class(boxes: Tensor, scores: Tensor, threshold: float, valid: Tensor) -> Tensor:
    """Which boxes survive suppression in each class: (B, N, 4), scores (B, N, C) -> bool
    (B, N, C).

    Equals `nms_batch` of `scores[..., c]` for each c, but visits only overlapping pairs, for all
    classes and pictures together. `valid` (B, N) is False for padding. Source: the loop over
    classes in tools/generate_tsv.py (bottom-up-attention).
    """
    overlapping = overlaps(boxes, boxes, threshold) & valid[:, :, None] & valid[:, None]
    overlapping &= ~torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    picture, i, j = overlapping.nonzero(as_tuple=True)
    if not len(i):
        return torch.ones_like(scores, dtype=torch.bool)
    i, j = picture * boxes.shape[1] + i, picture * boxes.shape[1] + j
    at_once = max(1, PAIRS_AT_ONCE.get(boxes.device.type, 1 << 24) // len(i))
    steps = 1 if boxes.device.type == "cpu" else STEPS_A_CHECK
    kept = []
    for part in scores.flatten(0, 1).split(at_once, dim=1):
        # In each class i removes j if i is kept there and scores higher; see `nms_batch`.
        higher = (part[i] > part[j]) | ((part[i] == part[j]) & (i < j)[:, None])
        keep = torch.ones_like(part, dtype=torch.bool)
        for step in itertools.count(1):
            removers = torch.zeros(keep.shape, dtype=torch.int32, device=keep.device)
            removers.index_add_(0, j, (keep[i] & higher).int())
            before, keep = keep, removers == 0
            if step % steps == 0 and torch.equal(before, keep):
                break
        kept.append(keep)
    return torch.cat(kept, dim=1).view_as(scores)


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows of each picture that its indices name: (B, N, ...), (B, K) -> (B, K, ...)."""
    return x[torch.arange(len(x), device=x.device)[:, None], index]


def decode_boxes(boxes: Tensor, deltas: Tensor, *, caffe: bool = True) -> Tensor:
    """Boxes moved by deltas dx dy dw dh: (N, 4), (N, 4 K) -> (N, 4 K), sides +1 with `caffe`.

    A side grows at most 1000/16 times, as in MILVLG's box_regression.py. Caffe's
    bbox_transform_inv has no limit; after clipping both agree, unless such a box does not reach
    both borders of the picture.
    """
    sides = boxes[:, None, 2:] - boxes[:, None, :2] + int(caffe)
    centres = boxes[:, None, :2] + 0.5 * sides
    deltas = deltas.reshape(len(boxes), deltas.shape[1] // 4, 4)
    centres = deltas[..., :2] * sides + centres
    half = 0.5 * deltas[..., 2:].clamp(max=LARGEST_LOG_GROWTH).exp() * sides
    return torch.cat([centres - half, centres + half], dim=2).flatten(1)


def encode_boxes(boxes: Tensor, targets: Tensor) -> Tensor:
    """The deltas that move boxes onto targets, (N, 4), (N, 4) -> (N, 4): bbox_transform of
    bottom-up-attention.

    `decode_boxes` returns x2 and y2 larger by one pixel, because Caffe's inverse keeps the +1.
    """
    sides, target_sides = (b[:, 2:] - b[:, :2] + 1 for b in (boxes, targets))
    shift = (targets[:, :2] + 0.5 * target_sides - boxes[:, :2] - 0.5 * sides) / sides
    return torch.cat([shift, (target_sides / sides).log()], dim=1)


def clip_boxes(boxes: Tensor, height: float, width: float, *, caffe: bool = True) -> Tensor:
    """Corners cut to 0..width-1 and 0..height-1, or without `caffe` to 0..width and 0..height:
    (N, 4 K) -> (N, 4 K).

    Sources: lib/fast_rcnn/bbox_transform.py, bottom-up-attention; Boxes.clip,
    detectron2/structures/boxes.py.
    """
    last = torch.tensor([width, height], device=boxes.device, dtype=boxes.dtype) - int(caffe)
    corners = boxes.reshape(len(boxes), boxes.shape[1] // 2, 2)
    return torch.minimum(corners, last).clamp(min=0).reshape(boxes.shape)
