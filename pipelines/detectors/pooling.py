"""ROIPool in plain torch, on any device.

rois are float (R, 5): image number, then x1 y1 x2 y2. Pooled features are (R, C, size, size), in
torch's channels_last memory format.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

POOL_CELLS_AT_ONCE = 1 << 20  # floats that ROIPool outputs at once on a CPU: 4 MB
Pool = Callable[[slice], Tensor]  # a slice of the rois -> their pooled features


def roi_pool(features: Tensor, rois: Tensor, size: int, scale: float) -> Pool:
    """Max over each of size x size bins of each roi of features (B, C, H, W); differentiable.

    Corners are rounded to cells (halves away from zero), both ends belong to the roi, and bin p of
    a side l covers floor(p l / size) .. ceil((p + 1) l / size) in float32; an empty bin is 0.
    Source: caffe/src/caffe/layers/roi_pooling_layer.cpp, bottom-up-attention.
    """
    # The maximum of a window is that of four windows with sides of powers of two. Their maxima are
    # computed once for all rois, so that a bin costs four look-ups.
    B, C, H, W = features.shape
    corners = rois[:, 1:].float() * scale
    integers = corners.trunc()  # floor(x + 0.5) would round 0.49999997 to 1.
    corners = integers + (corners - integers).abs().ge(0.5) * corners.sign()
    y1, y2 = _bins(corners[:, 1], corners[:, 3], size, H)
    x1, x2 = _bins(corners[:, 0], corners[:, 2], size, W)
    empty = (y2 <= y1)[:, :, None] | (x2 <= x1)[:, None, :]
    (top, bottom, ky), (left, right, kx) = _two_windows(y1, y2, H), _two_windows(x1, x2, W)
    ny, nx = (int(k.max()) + 1 if k.numel() else 1 for k in (ky, kx))
    table = _window_maxima(features.permute(0, 2, 3, 1), ny, nx)  # (ny * nx * B * H * W, C)
    base = (ky[:, :, None] * nx + kx[:, None, :]) * B + rois[:, 0].long()[:, None, None]
    corners_of_bins = ((y, x) for y in (top, bottom) for x in (left, right))
    windows = torch.stack(
        [(base * H + y[:, :, None]) * W + x[:, None, :] for y, x in corners_of_bins]
    )

    def pool(part: slice) -> Tensor:
        part_windows, part_empty = windows[:, part], empty[part]
        # On a CPU small pieces stay in the cache and in memory that is already mapped, and take a
        # quarter of the time.
        on_cpu = features.device.type == "cpu"
        at_once = max(1, POOL_CELLS_AT_ONCE // (size * size * C) if on_cpu else len(part_empty))
        pieces = zip(part_windows.split(at_once, dim=1), part_empty.split(at_once), strict=True)
        pooled = [
            _max_of_four(table, rows).masked_fill(mask[..., None], 0) for rows, mask in pieces
        ]
        return torch.cat(pooled).permute(0, 3, 1, 2)

    return pool


def _max_of_four(table: Tensor, windows: Tensor) -> Tensor:
    """Maximum of the rows of `table` that four windows name: (N, C), (4, ...) -> (..., C)."""
    a, b, c, d = (functional.embedding(index, table) for index in windows)
    return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))


def _bins(start: Tensor, end: Tensor, size: int, length: int) -> tuple[Tensor, Tensor]:
    """First cell and one past the last cell of each bin, int64 (R, size), cut to the feature
    map."""
    width = (end - start + 1).clamp(min=1)
    step = (width / size)[:, None]
    number = torch.arange(size + 1, dtype=torch.float32, device=start.device)
    first = (number[:-1] * step).floor() + start[:, None]
    last = (number[1:] * step).ceil() + start[:, None]
    return first.clamp(0, length).long(), last.clamp(0, length).long()


def _two_windows(first: Tensor, last: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Starts of two windows of side 2^k whose union is first..last - 1, and k. Those of an empty
    bin are any cell, as its value is not used."""
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
        rows = rows if ky == 0 else _max_with_next(rows, 1, 1 << (ky - 1))
        columns = rows
        for kx in range(nx):
            columns = columns if kx == 0 else _max_with_next(columns, 2, 1 << (kx - 1))
            tables.append(columns.reshape(-1, cells.shape[-1]))
    return torch.cat(tables)


def _max_with_next(x: Tensor, dim: int, shift: int) -> Tensor:
    """Maximum of each cell and the one `shift` cells further. The last `shift` cells hold any
    value, because no bin reads a window that leaves the map."""
    shifted = x.narrow(dim, shift, x.shape[dim] - shift)
    maxima = torch.maximum(x.narrow(dim, 0, shifted.shape[dim]), shifted)
    return torch.cat([maxima, x.narrow(dim, 0, shift)], dim=dim)
