"""ROIPool in plain torch, on any device.

rois are float (R, 5): image number, then x1 y1 x2 y2. Pooled features are (R, C, size, size),
channels last.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

POOL_CELLS_AT_ONCE = 1 << 20  # floats of ROIPool's output on a CPU: 4 MB
Pool = Callable[[slice], Tensor]  # pools some of the rois


def roi_pool(features: Tensor, rois: Tensor, size: int, scale: float) -> Pool:
    """Max over each of size x size bins of each roi of features (B, C, H, W).

    Corners are rounded to cells (halves away from zero), both ends belong to the roi, bin p covers
    floor(p l / size) .. ceil((p + 1) l / size) in float32; an empty bin is 0. Any window is the
    maximum of four windows of power-of-two sides, so a bin costs four row look-ups. The maxima of
    windows are made once for all rois. Source: caffe/src/caffe/layers/roi_pooling_layer.cpp,
    bottom-up-attention. Differentiable in `features`.
    """
    B, C, H, W = features.shape
    corners = rois[:, 1:].float() * scale
    whole = corners.trunc()  # floor(x + 0.5) would lift 0.49999997 to 1
    corners = whole + (corners - whole).abs().ge(0.5) * corners.sign()
    y1, y2 = _bins(corners[:, 1], corners[:, 3], size, H)
    x1, x2 = _bins(corners[:, 0], corners[:, 2], size, W)
    empty = (y2 <= y1)[:, :, None] | (x2 <= x1)[:, None, :]
    (top, bottom, ky), (left, right, kx) = _two_windows(y1, y2, H), _two_windows(x1, x2, W)
    ny, nx = (int(k.max()) + 1 if k.numel() else 1 for k in (ky, kx))
    table = _window_maxima(features.permute(0, 2, 3, 1), ny, nx)  # (ny * nx * B * H * W, C)
    base = (ky[:, :, None] * nx + kx[:, None, :]) * B + rois[:, 0].long()[:, None, None]
    windows = torch.stack(
        [
            (base * H + y[:, :, None]) * W + x[:, None, :]
            for y in (top, bottom)
            for x in (left, right)
        ]
    )

    def pool(some: slice) -> Tensor:
        chosen, none = windows[:, some], empty[some]
        # On a CPU small pieces stay in the cache and in memory already mapped: a quarter of the
        # time.
        on_cpu = features.device.type == "cpu"
        at_once = max(1, POOL_CELLS_AT_ONCE // (size * size * C) if on_cpu else len(none))
        pieces = zip(chosen.split(at_once, dim=1), none.split(at_once), strict=True)
        pooled = torch.cat(
            [_best_of(table, part).masked_fill(hole[..., None], 0) for part, hole in pieces]
        )
        return pooled.permute(0, 3, 1, 2)

    return pool


def _best_of(table: Tensor, windows: Tensor) -> Tensor:
    """Maximum of the rows named by four windows: (N, C), (4, ...) -> (..., C)."""
    a, b, c, d = (functional.embedding(index, table) for index in windows)
    return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))


def _bins(start: Tensor, end: Tensor, size: int, length: int) -> tuple[Tensor, Tensor]:
    """First and past-the-last cell of each bin, int64 (R, size), cut to the feature map."""
    width = (end - start + 1).clamp(min=1)
    step = (width / size)[:, None]
    number = torch.arange(size + 1, dtype=torch.float32, device=start.device)
    first = (number[:-1] * step).floor() + start[:, None]
    last = (number[1:] * step).ceil() + start[:, None]
    return first.clamp(0, length).long(), last.clamp(0, length).long()


def _two_windows(first: Tensor, last: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Starts of two windows of side 2^k whose union is first..last - 1, and k; empty ones point to
    some cell."""
    count = (last - first).clamp(min=1)
    k = torch.zeros_like(count)
    for power in range(1, length.bit_length()):
        k += count >= 1 << power
    first = first.clamp(max=length - 1)
    return first, torch.maximum(last - (1 << k), first), k


def _window_maxima(cells: Tensor, ny: int, nx: int) -> Tensor:
    """Maxima of the windows of sides 2^ky, 2^kx that start at each cell: (B, H, W, C) -> (ny nx B H
    W, C)."""
    rows, tables = cells, []
    for ky in range(ny):
        rows = rows if ky == 0 else _with_next(rows, 1, 1 << (ky - 1))
        columns = rows
        for kx in range(nx):
            columns = columns if kx == 0 else _with_next(columns, 2, 1 << (kx - 1))
            tables.append(columns.reshape(-1, cells.shape[-1]))
    return torch.cat(tables)


def _with_next(x: Tensor, dim: int, shift: int) -> Tensor:
    """Maximum of each cell and the one `shift` further; cells whose window leaves the map are never
    read."""
    shifted = x.narrow(dim, shift, x.shape[dim] - shift)
    return torch.cat(
        [torch.maximum(x.narrow(dim, 0, shifted.shape[dim]), shifted), x.narrow(dim, 0, shift)],
        dim=dim,
    )
