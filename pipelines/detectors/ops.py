"""Non-maximum suppression, ROIPool and ROIAlign in plain torch, on any device.

Boxes are float (N, 4), x1 y1 x2 y2; rois are float (R, 5), image number first. No op loops over boxes in Python.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

NMS_BLOCK = 512
PAIRS_AT_ONCE = 1 << 24  # (overlapping pair, class) cells: 16 MB of bools
POOL_CELLS_AT_ONCE = 1 << 20  # floats of ROIPool's output on a CPU: 4 MB
ALIGN_CELLS_AT_ONCE = 1 << 26  # floats of ROIAlign's half-way product: 256 MB


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
    """Which pairs suppress: IoU >= threshold (`at_threshold`, Caffe on CPU) or > (its GPU kernel): bool (N, M)."""
    values = iou(boxes, others, one_pixel=one_pixel)
    return values >= threshold if at_threshold else values > threshold


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
    Source: peteanderson80/bottom-up-attention, lib/nms/cpu_nms.pyx, whose order of equal scores is arbitrary.
    """
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


def roi_pool(features: Tensor, rois: Tensor, size: int, scale: float) -> Tensor:
    """Max over each of size x size bins of each roi: (B, C, H, W), (R, 5) -> (R, C, size, size), channels last.

    Corners are rounded to cells (halves away from zero), both ends belong to the roi, bin p covers
    floor(p l / size) .. ceil((p + 1) l / size) in float32; an empty bin is 0.
    Any window is the maximum of four windows of power-of-two sides, so a bin costs four row look-ups.
    Source: caffe/src/caffe/layers/roi_pooling_layer.cpp, bottom-up-attention. Differentiable in `features`.
    """
    B, C, H, W = features.shape
    corners = _round_half_away(rois[:, 1:].float() * scale)
    y1, y2 = _bins(corners[:, 1], corners[:, 3], size, H)
    x1, x2 = _bins(corners[:, 0], corners[:, 2], size, W)
    empty = (y2 <= y1)[:, :, None] | (x2 <= x1)[:, None, :]
    (top, bottom, ky), (left, right, kx) = _two_windows(y1, y2, H), _two_windows(x1, x2, W)
    ny, nx = (int(k.max()) + 1 if k.numel() else 1 for k in (ky, kx))
    table = _window_maxima(features.permute(0, 2, 3, 1), ny, nx)  # (ny * nx * B * H * W, C)
    base = (ky[:, :, None] * nx + kx[:, None, :]) * B + rois[:, 0].long()[:, None, None]
    windows = torch.stack(
        [(base * H + y[:, :, None]) * W + x[:, None, :] for y in (top, bottom) for x in (left, right)]
    )
    # On a CPU small pieces stay in the cache and in memory already mapped: a quarter of the time.
    at_once = max(1, POOL_CELLS_AT_ONCE // (size * size * C)) if features.device.type == "cpu" else max(1, len(rois))
    pieces = zip(windows.split(at_once, dim=1), empty.split(at_once), strict=True)
    pooled = torch.cat([_best_of(table, some).masked_fill(none[..., None], 0) for some, none in pieces])
    return pooled.permute(0, 3, 1, 2)


def _best_of(table: Tensor, windows: Tensor) -> Tensor:
    """Maximum of the rows named by four windows: (N, C), (4, ...) -> (..., C)."""
    a, b, c, d = (functional.embedding(index, table) for index in windows)
    return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))


def _round_half_away(x: Tensor) -> Tensor:
    """C's round(); floor(x + 0.5) would lift 0.49999997 to 1."""
    whole = x.trunc()
    return whole + (x - whole).abs().ge(0.5) * x.sign()


def _bins(start: Tensor, end: Tensor, size: int, length: int) -> tuple[Tensor, Tensor]:
    """First and past-the-last cell of each bin, int64 (R, size), cut to the feature map."""
    width = (end - start + 1).clamp(min=1)
    step = (width / size)[:, None]
    number = torch.arange(size + 1, dtype=torch.float32, device=start.device)
    first = (number[:-1] * step).floor() + start[:, None]
    last = (number[1:] * step).ceil() + start[:, None]
    return first.clamp(0, length).long(), last.clamp(0, length).long()


def _two_windows(first: Tensor, last: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Starts of two windows of side 2^k whose union is first..last - 1, and k; empty ones point to some cell."""
    count = (last - first).clamp(min=1)
    k = torch.zeros_like(count)
    for power in range(1, length.bit_length()):
        k += count >= 1 << power
    first = first.clamp(max=length - 1)
    return first, torch.maximum(last - (1 << k), first), k


def _window_maxima(cells: Tensor, ny: int, nx: int) -> Tensor:
    """Maxima of the windows of sides 2^ky, 2^kx that start at each cell: (B, H, W, C) -> (ny nx B H W, C)."""
    rows, tables = cells, []
    for ky in range(ny):
        rows = rows if ky == 0 else _with_next(rows, 1, 1 << (ky - 1))
        columns = rows
        for kx in range(nx):
            columns = columns if kx == 0 else _with_next(columns, 2, 1 << (kx - 1))
            tables.append(columns.reshape(-1, cells.shape[-1]))
    return torch.cat(tables)


def _with_next(x: Tensor, dim: int, shift: int) -> Tensor:
    """Maximum of each cell and the one `shift` further; cells whose window leaves the map are never read."""
    ahead = x.narrow(dim, shift, x.shape[dim] - shift)
    return torch.cat([torch.maximum(x.narrow(dim, 0, ahead.shape[dim]), ahead), x.narrow(dim, 0, shift)], dim=dim)


def roi_align(
    features: Tensor, rois: Tensor, size: int, scale: float, *, sampling_ratio: int = 0, aligned: bool = True
) -> Tensor:
    """Mean of bilinear samples in each bin of each roi: (B, C, H, W), (R, 5) -> (R, C, size, size).

    `aligned` takes half a cell off the corners (detectron2's ROIAlignV2); without it rois are at least 1 cell.
    sampling_ratio 0: ceil(side / size) samples a bin and axis. Samples are separable in y and x, so a roi is
    Wy @ map @ Wx^T with weights (size, H) and (size, W).
    Source: detectron2/layers/csrc/ROIAlign/ROIAlign_cpu.cpp. Differentiable in `features`.
    """
    _, C, H, W = features.shape
    corners = rois[:, 1:].float() * scale - (0.5 if aligned else 0.0)
    wy = _sample_weights(corners[:, 1], corners[:, 3], size, H, sampling_ratio, aligned).to(features.dtype)
    wx = _sample_weights(corners[:, 0], corners[:, 2], size, W, sampling_ratio, aligned).to(features.dtype)
    image = rois[:, 0].long()
    at_once = max(1, ALIGN_CELLS_AT_ONCE // (C * max(H, size) * W))
    parts = [
        torch.einsum("rph,rchw,rqw->rcpq", wy[part], features[image[part]], wx[part])
        for part in torch.arange(len(rois), device=rois.device).split(at_once)
    ]
    return torch.cat(parts)


def _sample_weights(start: Tensor, end: Tensor, size: int, length: int, ratio: int, aligned: bool) -> Tensor:
    """Weight of each cell in the mean of each bin's samples along one axis: float32 (R, size, length)."""
    side = end - start if aligned else (end - start).clamp(min=1)
    step = side / size
    count = step.ceil().clamp(min=0) if ratio == 0 else torch.full_like(step, ratio)
    number = torch.arange(int(count.max()) if count.numel() else 0, device=start.device)
    inner = (number + 0.5) * (step / count.clamp(min=1))[:, None]  # (R, G)
    bin_start = start[:, None] + torch.arange(size, device=start.device) * step[:, None]  # (R, size)
    at = bin_start[:, :, None] + inner[:, None, :]  # (R, size, G)
    used = (number < count[:, None])[:, None, :] & (at >= -1) & (at <= length)
    cell = torch.arange(length, device=start.device)
    hat = (1 - (at.clamp(0, length - 1)[..., None] - cell).abs()).clamp_(min=0)
    return (hat * used[..., None]).sum(dim=2) / count.clamp(min=1)[:, None, None]
