"""Overlaps of boxes and non-maximum suppression in plain torch, on any device, for a batch of
pictures at once.

Boxes are float (..., N, 4), x1 y1 x2 y2. No op loops over boxes or pictures in Python.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from capgrade.boxes import iou

NMS_BLOCK = 512
# (overlapping pair, class) cells: 16 MB of bools, 64 MB
PAIRS_AT_ONCE = {
    "cpu": 1 << 24,
    "cuda": 1 << 26,
}
STEPS_A_LOOK = 6  # on a GPU, where a look at what a step changed makes the processor wait


def overlaps(boxes: Tensor, others: Tensor, threshold: float, *, caffe: bool = True) -> Tensor:
    """Which pairs suppress: IoU >= threshold (Caffe on CPU; not its GPU code) or > (torchvision):
    bool (..., N, M).

    The float32 IoU is compared with the threshold in float64, as cpu_nms.pyx and torchvision's CPU
    kernel do.
    """
    values = iou(boxes, others, caffe=caffe)
    near = np.float32(threshold)
    if caffe:
        return values >= float(
            near if float(near) >= threshold else np.nextafter(near, np.float32(2))
        )
    return values > float(near if float(near) <= threshold else np.nextafter(near, np.float32(-1)))


def nms_batch(
    boxes: Tensor,
    scores: Tensor,
    threshold: float,
    there: Tensor,
    limit: int,
    *,
    caffe: bool = True,
) -> tuple[Tensor, Tensor]:
    """Greedy suppression in B pictures: (B, N, 4), (B, N) -> indices kept, int64 (B, K), by falling
    score, equal scores by rising index; and how many count (B,).

    `there` (B, N) says which boxes are no padding. Blocks of the best, all pictures together, until
    each has `limit`. Scores must not be NaN. Source: peteanderson80/bottom-up-attention,
    lib/nms/cpu_nms.pyx, whose order of equal scores is arbitrary; without `caffe` torchvision's
    nms.
    """
    B, N = scores.shape
    limit = min(limit, N)
    order = scores.masked_fill(~there, -torch.inf).argsort(dim=1, descending=True, stable=True)
    # what is beyond the limit goes to the last column
    kept, count = (
        order.new_zeros(B, limit + 1),
        order.new_zeros(B),
    )
    rank = torch.arange(limit, device=order.device)

    def hit(first: Tensor, second: Tensor) -> Tensor:
        a, b = (boxes.gather(1, index[:, :, None].expand(-1, -1, 4)) for index in (first, second))
        return overlaps(a, b, threshold, caffe=caffe)

    for block in order.split(NMS_BLOCK, dim=1):
        alive = there.gather(1, block)
        before = hit(kept[:, :limit], block) & (rank < count[:, None])[:, :, None]
        above, alive = hit(block, block).triu_(diagonal=1), alive & ~before.any(dim=1)
        keep = _greedy(above, alive)
        place = (count[:, None] + keep.cumsum(1) - 1).masked_fill(~keep, limit).clamp_(max=limit)
        kept.scatter_(1, place, block)
        count = (count + keep.sum(1)).clamp_(max=limit)
        if N > NMS_BLOCK and bool((count == limit).all()):
            break
    return kept[:, :limit], count


def _greedy(above: Tensor, alive: Tensor) -> Tensor:
    """Who stays, when i removes j iff above[i, j] and i stays; above is strictly upper triangular:
    bool (B, N)."""
    return _settled(lambda keep: alive & ~(above & keep[:, :, None]).any(dim=1), alive)


def _settled(step: Callable[[Tensor], Tensor], keep: Tensor) -> Tensor:
    """What `step` no longer changes. After t steps the first t answers of an order are final, so
    there is one such point; it takes as many steps as the longest chain of removals, a handful in
    practice."""
    steps = 1 if keep.device.type == "cpu" else STEPS_A_LOOK
    while True:
        before = keep
        for _ in range(steps):
            before, keep = keep, step(keep)
        if torch.equal(before, keep):
            return keep


def nms_per_class(boxes: Tensor, scores: Tensor, threshold: float, there: Tensor) -> Tensor:
    """Survivors of one suppression a class, over the same boxes: (B, N, 4), scores (B, N, C) ->
    bool (B, N, C).

    Equals `nms_batch` of `scores[..., c]` for each c. Overlaps are found once; only overlapping
    pairs are visited, for all classes and pictures together; `there` (B, N) says which boxes are no
    padding. Source: the loop over classes in tools/generate_tsv.py (bottom-up-attention).
    """
    hit = overlaps(boxes, boxes, threshold) & there[:, :, None] & there[:, None]
    hit &= ~torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    picture, i, j = hit.nonzero(as_tuple=True)
    if not len(i):
        return torch.ones_like(scores, dtype=torch.bool)
    i, j = (picture * boxes.shape[1] + row for row in (i, j))
    at_once = max(1, PAIRS_AT_ONCE.get(boxes.device.type, 1 << 24) // len(i))
    kept = []
    for some in scores.flatten(0, 1).split(at_once, dim=1):
        higher = (some[i] > some[j]) | ((some[i] == some[j]) & (i < j)[:, None])

        def step(keep: Tensor, higher: Tensor = higher) -> Tensor:
            """i removes j in a class iff it stays there and scores higher."""
            removers = torch.zeros(keep.shape, dtype=torch.int32, device=keep.device)
            return removers.index_add_(0, j, (keep[i] & higher).int()) == 0

        kept.append(_settled(step, torch.ones_like(some, dtype=torch.bool)))
    return torch.cat(kept, dim=1).view_as(scores)
