"""Overlaps of boxes and non-maximum suppression in plain torch, on any device, for a batch of
pictures at once.

Boxes are float (..., N, 4), x1 y1 x2 y2. Nothing loops over boxes or pictures in Python.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from capgrade.boxes import iou

NMS_BLOCK = 512
PAIRS_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 26}  # cells of (overlapping pair, class), in bools
# On a GPU, steps between two checks for a change, because a check waits for the device.
STEPS_A_CHECK = 6


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

    def suppresses(first: Tensor, second: Tensor) -> Tensor:
        a, b = (boxes.gather(1, index[:, :, None].expand(-1, -1, 4)) for index in (first, second))
        return overlaps(a, b, threshold, caffe=caffe)

    # The best boxes of all pictures come first, block by block, until every picture has its limit.
    for block in order.split(NMS_BLOCK, dim=1):
        alive = valid.gather(1, block)
        by_kept = suppresses(kept[:, :limit], block) & (rank < count[:, None])[:, :, None]
        above, alive = suppresses(block, block).triu_(diagonal=1), alive & ~by_kept.any(dim=1)
        keep = _keep_greedily(above, alive)
        place = (count[:, None] + keep.cumsum(1) - 1).masked_fill(~keep, limit).clamp_(max=limit)
        kept.scatter_(1, place, block)
        count = (count + keep.sum(1)).clamp_(max=limit)
        if N > NMS_BLOCK and bool((count == limit).all()):
            break
    return kept[:, :limit], count


def _keep_greedily(above: Tensor, alive: Tensor) -> Tensor:
    """Which boxes are kept, bool (B, N), where i removes j if `above[i, j]` and i is kept; `above`
    is strictly upper triangular."""
    return _iterate(lambda keep: alive & ~(above & keep[:, :, None]).any(dim=1), alive)


def _iterate(step: Callable[[Tensor], Tensor], keep: Tensor) -> Tensor:
    """The fixed point of `step`, which starts at `keep`.

    It exists and is unique, because after t steps the answers of the t best boxes are final. It
    takes as many steps as the longest chain of removals, a handful in practice.
    """
    steps = 1 if keep.device.type == "cpu" else STEPS_A_CHECK
    while True:
        before = keep
        for _ in range(steps):
            before, keep = keep, step(keep)
        if torch.equal(before, keep):
            return keep


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
    i, j = (picture * boxes.shape[1] + row for row in (i, j))
    at_once = max(1, PAIRS_AT_ONCE.get(boxes.device.type, 1 << 24) // len(i))
    kept = []
    for part in scores.flatten(0, 1).split(at_once, dim=1):
        higher = (part[i] > part[j]) | ((part[i] == part[j]) & (i < j)[:, None])

        def step(keep: Tensor, higher: Tensor = higher) -> Tensor:
            """In each class i removes j if i is kept there and scores higher."""
            removers = torch.zeros(keep.shape, dtype=torch.int32, device=keep.device)
            return removers.index_add_(0, j, (keep[i] & higher).int()) == 0

        kept.append(_iterate(step, torch.ones_like(part, dtype=torch.bool)))
    return torch.cat(kept, dim=1).view_as(scores)
