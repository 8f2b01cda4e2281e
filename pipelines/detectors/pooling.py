"""ROIPool and ROIAlign in plain torch, on any device.

rois are float (R, 5): image number, then x1 y1 x2 y2. Pooled features are (R, C, size, size), channels last.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

POOL_CELLS_AT_ONCE = 1 << 20  # floats of ROIPool's output on a CPU: 4 MB
Pool = Callable[[slice], Tensor]  # pools some of the rois


def roi_pool(features: Tensor, rois: Tensor, size: int, scale: float) -> Pool:
    """Max over each of size x size bins of each roi of features (B, C, H, W).

    Corners are rounded to cells (halves away from zero), both ends belong to the roi, bin p covers
    floor(p l / size) .. ceil((p + 1) l / size) in float32; an empty bin is 0.
    Any window is the maximum of four windows of power-of-two sides, so a bin costs four row look-ups. The maxima of
    windows are made once for all rois. Source: caffe/src/caffe/layers/roi_pooling_layer.cpp, bottom-up-attention.
    Differentiable in `features`.
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

    def pool(some: slice) -> Tensor:
        chosen, none = windows[:, some], empty[some]
        # On a CPU small pieces stay in the cache and in memory already mapped: a quarter of the time.
        on_cpu = features.device.type == "cpu"
        at_once = max(1, POOL_CELLS_AT_ONCE // (size * size * C) if on_cpu else len(none))
        pieces = zip(chosen.split(at_once, dim=1), none.split(at_once), strict=True)
        pooled = torch.cat([_best_of(table, part).masked_fill(hole[..., None], 0) for part, hole in pieces])
        return pooled.permute(0, 3, 1, 2)

    return pool


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
    shifted = x.narrow(dim, shift, x.shape[dim] - shift)
    return torch.cat([torch.maximum(x.narrow(dim, 0, shifted.shape[dim]), shifted), x.narrow(dim, 0, shift)], dim=dim)


def roi_align(features: Tensor, rois: Tensor, size: int, scale: float) -> Pool:
    """Mean of bilinear samples in each bin of each roi of features (B, C, H, W): detectron2's ROIAlignV2.

    Half a cell is taken off the corners; a bin has ceil(side / size) samples an axis. Samples are separable in y and x,
    so pooling is a product with the weights of rows, then with those of columns.
    Source: ROIAlign_cpu.cpp, facebookresearch/detectron2. Differentiable in `features`.
    """
    corners = rois[:, 1:].float() * scale - 0.5
    y = _sample_weights(corners[:, 1], corners[:, 3], size, features.shape[2]).to(features.dtype)
    x = _sample_weights(corners[:, 0], corners[:, 2], size, features.shape[3]).to(features.dtype)

    def pool(some: slice) -> Tensor:
        out = features.new_zeros(len(rois[some]), features.shape[1], size, size)
        for image, plane in enumerate(features):
            mine = rois[some, 0] == image
            out[mine] = torch.einsum("rph,chw,rqw->rcpq", y[some][mine], plane, x[some][mine])
        return out.contiguous(memory_format=torch.channels_last)

    return pool


def _sample_weights(start: Tensor, end: Tensor, size: int, length: int) -> Tensor:
    """Weight of each cell in the mean of each bin's samples along one axis: float32 (R, size, length)."""
    step = (end - start) / size
    count = step.ceil().clamp(min=0)
    number = torch.arange(int(count.max()) if count.numel() else 0, device=start.device)
    inner = (number + 0.5) * (step / count.clamp(min=1))[:, None]  # (R, G)
    bin_start = start[:, None] + torch.arange(size, device=start.device) * step[:, None]  # (R, size)
    at = bin_start[:, :, None] + inner[:, None, :]  # (R, size, G)
    used = (number < count[:, None])[:, None, :] & (at >= -1) & (at <= length)
    cell = torch.arange(length, device=start.device)
    hat = (1 - (at.clamp(0, length - 1)[..., None] - cell).abs()).clamp_(min=0)
    return (hat * used[..., None]).sum(dim=2) / count.clamp(min=1)[:, None, None]


POOLERS = {"ROIPool": roi_pool, "ROIAlignV2": roi_align}  # by the names of detectron2's POOLER_TYPE
