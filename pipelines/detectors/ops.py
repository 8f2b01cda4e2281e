"""Overlaps of boxes and non-maximum suppression in plain torch, on any device.

Boxes are float (N, 4), x1 y1 x2 y2. No op loops over boxes in Python.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pipelines.detectors import library

NMS_BLOCK = 512
PAIRS_AT_ONCE = 1 << 24  # (overlapping pair, class) cells: 16 MB of bools


def iou(boxes: Tensor, others: Tensor, *, one_pixel: bool = True) -> Tensor:
    """Intersection over union: (N, 4), (M, 4) -> (N, M).

    `one_pixel`: a box holds both its border pixels, so widths are x2 - x1 + 1 (Caffe, lib/nms/cpu_nms.pyx);
    without it x2 - x1 (torchvision, detectron2), where two boxes of no area give NaN.
    """
    extra = float(one_pixel)
    area, other_area = _area(boxes, extra), _area(others, extra)
    top_left = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    bottom_right = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared = (bottom_right - top_left + extra).clamp_(min=0).prod(dim=2)
    return shared / (area[:, None] + other_area[None] - shared)


def _area(boxes: Tensor, extra: float) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0] + extra) * (boxes[:, 3] - boxes[:, 1] + extra)


def overlaps(boxes: Tensor, others: Tensor, threshold: float, *, one_pixel: bool, at_threshold: bool) -> Tensor:
    """Which pairs suppress: IoU >= threshold (`at_threshold`, Caffe on CPU) or > (torchvision): bool (N, M).

    The float32 IoU is compared with the threshold in float64, as cpu_nms.pyx and torchvision's CPU kernel do.
    """
    values = iou(boxes, others, one_pixel=one_pixel)
    near = np.float32(threshold)
    if at_threshold:
        return values >= float(near if float(near) >= threshold else np.nextafter(near, np.float32(2)))
    return values > float(near if float(near) <= threshold else np.nextafter(near, np.float32(-1)))


def nms(
    boxes: Tensor,
    scores: Tensor,
    threshold: float,
    *,
    groups: Tensor | None = None,
    limit: int | None = None,
    one_pixel: bool = True,
    at_threshold: bool = True,
) -> Tensor:
    """Greedy suppression: indices kept, int64 (K,), by falling score; equal scores by rising index.

    Boxes of different `groups` (N,) never suppress each other. With `limit` the first so many are kept,
    and the rest is not looked at. Scores must not be NaN.
    Source: peteanderson80/bottom-up-attention, lib/nms/cpu_nms.pyx, whose order of equal scores is arbitrary;
    without `one_pixel` and `at_threshold` torchvision's nms, which takes over unless it would do more than asked.
    """
    plain = not one_pixel and not at_threshold and groups is None
    whole = limit is None or boxes.is_cuda  # torchvision knows no limit, which on a CPU costs ten times the work
    if plain and whole and (operator := library.theirs("nms", boxes)):
        return operator(boxes, scores, threshold)[:limit]
    order = scores.argsort(descending=True, stable=True)
    kept = order[:0]
    for block in order.split(NMS_BLOCK):
        alive = ~_hit(kept, block, boxes, groups, threshold, one_pixel, at_threshold).any(dim=0)
        block = block[alive]
        above = _hit(block, block, boxes, groups, threshold, one_pixel, at_threshold).triu_(diagonal=1)
        kept = torch.cat([kept, block[_greedy(above)]])
        if limit is not None and len(kept) >= limit:
            return kept[:limit]
    return kept


def _hit(
    first: Tensor, second: Tensor, boxes: Tensor, groups: Tensor | None, threshold: float, one: bool, at: bool
) -> Tensor:
    hit = overlaps(boxes[first], boxes[second], threshold, one_pixel=one, at_threshold=at)
    return hit if groups is None else hit & (groups[first][:, None] == groups[second][None])


def _greedy(above: Tensor) -> Tensor:
    """Who stays, when i removes j iff above[i, j] and i stays; above is strictly upper triangular: bool (N,).

    After step t the first t answers are final, so the loop ends at the one fixed point; it takes as many
    steps as the longest chain of removals, a handful in practice.
    """
    keep = torch.ones(len(above), dtype=torch.bool, device=above.device)
    while True:
        now = ~(above & keep[:, None]).any(dim=0)
        if torch.equal(now, keep):
            return keep
        keep = now


def nms_per_class(
    boxes: Tensor, scores: Tensor, threshold: float, *, one_pixel: bool = True, at_threshold: bool = True
) -> Tensor:
    """Survivors of one suppression a class, over the same boxes: (N, 4), scores (N, C) -> bool (N, C).

    Equals `nms(boxes, scores[:, c], threshold)` for each c. Overlaps are found once; only overlapping pairs are
    visited, for all classes together. Source: the loop over classes in tools/generate_tsv.py (bottom-up-attention).
    """
    hit = overlaps(boxes, boxes, threshold, one_pixel=one_pixel, at_threshold=at_threshold)
    i, j = hit.fill_diagonal_(False).nonzero(as_tuple=True)
    if not len(i):
        return torch.ones_like(scores, dtype=torch.bool)
    at_once = max(1, PAIRS_AT_ONCE // len(i))
    return torch.cat([_greedy_pairs(i, j, some) for some in scores.split(at_once, dim=1)], dim=1)


def _greedy_pairs(i: Tensor, j: Tensor, scores: Tensor) -> Tensor:
    """`_greedy` for many orders at once: i removes j in a class iff it stays there and scores higher (N, C)."""
    higher = (scores[i] > scores[j]) | ((scores[i] == scores[j]) & (i < j)[:, None])
    keep = torch.ones_like(scores, dtype=torch.bool)
    while True:
        removers = torch.zeros(scores.shape, dtype=torch.int32, device=scores.device)
        removers.index_add_(0, j, (keep[i] & higher).int())
        now = removers == 0
        if torch.equal(now, keep):
            return keep
        keep = now
