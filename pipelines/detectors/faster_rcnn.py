"""What Faster R-CNN does with boxes: anchors and the region proposal network, and ROIPool.

All boxes are in network pixels, those of the resized picture.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capgrade.boxes import clip_boxes, decode_boxes, nms_batch, take_rows
from capgrade.devices import autocast

# The code base whose rules of boxes a model follows. Caffe's boxes hold both border pixels, so that
# a side is x2 - x1 + 1. airsplay's (py-bottom-up-attention, detectron2 of 2020) have sides x2 - x1
# and end at (width, height). Its anchors are not rounded, except with "airsplay_rounded", for
# checkpoints that bring Caffe's anchors. Sources: lib/rpn and lib/fast_rcnn of bottom-up-attention;
# anchor_generator.py, box_regression.py and proposal_generator/proposal_utils.py of
# detectron2/modeling.
Conventions = Literal["caffe", "airsplay", "airsplay_rounded"]
POOL_CELLS_AT_ONCE = 1 << 20  # floats that ROIPool outputs at once on a CPU: 4 MB


@dataclasses.dataclass(frozen=True)
class ProposalRule:
    """Which proposals are kept: the `before_nms` best before suppression, the `after_nms` best
    after it, and none with a side below `min_side` original pixels. Source: lib/fast_rcnn/config.py
    (TEST.RPN_*), bottom-up-attention."""

    before_nms: int = 6000
    after_nms: int = 300
    nms_threshold: float = 0.7
    min_side: float = 16.0


def make_anchors(
    conventions: Conventions, base: int, scales: tuple[float, ...], ratios: tuple[float, ...]
) -> np.ndarray:
    """The anchors of a cell, float32 (ratios x scales, 4); a ratio is height / width.

    Caffe's have their centre at (base - 1) / 2, ratio by ratio; sides are +1 and are rounded before
    they are scaled (lib/rpn/generate_anchors.py, bottom-up-attention). airsplay's have theirs at
    (0, 0), scale by scale, with area (base * scale)^2 (generate_cell_anchors,
    detectron2/modeling/anchor_generator.py).
    """
    shapes = np.array(ratios, np.float64)
    if conventions == "airsplay":
        areas = [(base * scale) ** 2 for scale in scales]
        widths = np.array([math.sqrt(area / ratio) for area in areas for ratio in ratios])
        centre, half = 0.0, np.stack([widths, np.tile(shapes, len(scales)) * widths], axis=1) / 2
    else:
        widths = np.round(np.sqrt(base * base / shapes))
        sides = np.stack([widths, np.round(widths * shapes)], axis=1)
        sides = sides[:, None] * np.array(scales, np.float64)[:, None]
        centre, half = (base - 1) / 2, (sides.reshape(-1, 2) - 1) / 2
    return np.concatenate([centre - half, centre + half], axis=1).astype(np.float32)


def place_anchors(anchors: Tensor, height: int, width: int, stride: int) -> Tensor:
    """Anchors (A, 4) at every cell: (height * width * A, 4), anchors fastest, then x, then y."""
    y = torch.arange(height, device=anchors.device, dtype=anchors.dtype) * stride
    x = torch.arange(width, device=anchors.device, dtype=anchors.dtype) * stride
    shift_y, shift_x = torch.meshgrid(y, x, indexing="ij")
    shifts = torch.stack([shift_x, shift_y, shift_x, shift_y], dim=-1)
    return (shifts[:, :, None] + anchors).reshape(-1, 4)


class RPNHead(nn.Module):
    """3x3 convolution, then per anchor a background and an object score, and four deltas.

    Rows of its outputs are in the order of `place_anchors`. Score channels: A of background, then A
    of object (rpn_cls_score in test.prototxt, bottom-up-attention).
    """

    def __init__(self, inputs: int, middle: int, anchors: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, middle, 3, padding=1)
        self.objectness_logits = nn.Conv2d(middle, 2 * anchors, 1)
        self.anchor_deltas = nn.Conv2d(middle, 4 * anchors, 1)
        for layer in (self.conv, self.objectness_logits, self.anchor_deltas):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> background and object logits (B, H W A, 2), deltas (B, H W A, 4);
        computed in float32."""
        B = len(features)
        hidden = functional.relu(self.conv(features)).float()
        with autocast("float32", features.device):
            logits, deltas = self.objectness_logits(hidden), self.anchor_deltas(hidden)
        logits = logits.unflatten(1, (2, -1)).permute(0, 3, 4, 2, 1)
        return logits.reshape(B, -1, 2), deltas.permute(0, 2, 3, 1).reshape(B, -1, 4)


def select_proposals(
    scores: Tensor,
    deltas: Tensor,
    anchors: Tensor,
    image: tuple[int, int],
    scales: Sequence[float],
    rule: ProposalRule,
    conventions: Conventions = "caffe",
) -> list[tuple[Tensor, Tensor]]:
    """Proposals of each picture by falling score: (B, N), (B, N, 4), anchors (N, 4) -> B times
    boxes (R, 4) and scores (R,), R <= after_nms. `image` (height, width) is the size of all resized
    pictures, `scales` their factors.

    Caffe decodes, clips, drops sides below min_side * scale, takes the best, suppresses, takes the
    best (lib/rpn/proposal_layer.py, bottom-up-attention). airsplay takes the best before it drops
    (find_top_rpn_proposals of detectron2). Of equal scores the earlier anchor is first."""
    # MILVLG's rpn_outputs.py also drops sides equal to the minimum. Caffe's order of equal scores
    # is arbitrary.
    caffe = conventions == "caffe"
    anchors = anchors.expand(len(scores), -1, -1)
    if not caffe:
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : rule.before_nms]
        scores, deltas, anchors = (
            take_rows(scores, best),
            take_rows(deltas, best),
            take_rows(anchors, best),
        )
    boxes = decode_boxes(anchors.flatten(0, 1), deltas.flatten(0, 1), caffe=caffe)
    boxes = clip_boxes(boxes, *image, caffe=caffe).view_as(anchors)
    min_sides = boxes.new_tensor(rule.min_side * np.array(scales))[:, None, None]
    sides = boxes[..., 2:] - boxes[..., :2]
    valid = (sides + 1 >= min_sides if caffe else sides > min_sides).all(dim=2)
    if caffe:
        order = scores.masked_fill(~valid, -torch.inf).argsort(dim=1, descending=True, stable=True)
        best = order[:, : rule.before_nms]
        scores, boxes, valid = (
            take_rows(scores, best),
            take_rows(boxes, best),
            take_rows(valid, best),
        )
    kept, count = nms_batch(boxes, scores, rule.nms_threshold, valid, rule.after_nms, caffe=caffe)
    pictures = zip(take_rows(boxes, kept), take_rows(scores, kept), count.tolist(), strict=True)
    return [(box[:n], score[:n]) for box, score, n in pictures]


def roi_pool(
    features: Tensor, rois: Tensor, size: int, scale: float, at_once: int
) -> Iterator[Tensor]:
    """Max over each of size x size bins of each roi of features (B, C, H, W); differentiable.

    Rois are float (R, 5), R >= 1: image number, x1 y1 x2 y2. Yields (at most at_once, C, size,
    size) in torch's channels_last memory format. Corners are rounded to cells (halves away from
    zero), both ends belong to the roi, and bin p of a side l covers floor(p l / size) ..
    ceil((p + 1) l / size) in float32; an empty bin is 0. Source:
    caffe/src/caffe/layers/roi_pooling_layer.cpp, bottom-up-attention.
    """
    # The maximum of a window is that of four windows with sides of powers of two. Their maxima are
    # computed once for all rois, so that a bin costs four look-ups.
    B, C, H, W = features.shape
    corners = rois[:, 1:].float() * scale
    integers = corners.trunc()  # floor(x + 0.5) would round 0.49999997 to 1.
    corners = integers + (corners - integers).abs().ge(0.5) * corners.sign()
    top, bottom, ky, no_row = _cover_bins(corners[:, 1], corners[:, 3], size, H)
    left, right, kx, no_column = _cover_bins(corners[:, 0], corners[:, 2], size, W)
    empty = no_row[:, :, None] | no_column[:, None, :]
    ny, nx = int(ky.max()) + 1, int(kx.max()) + 1
    table = _window_maxima(features.permute(0, 2, 3, 1), ny, nx)  # (ny * nx * B * H * W, C)
    base = (ky[:, :, None] * nx + kx[:, None, :]) * B + rois[:, 0].long()[:, None, None]
    y = torch.stack([top, top, bottom, bottom])[:, :, :, None]
    x = torch.stack([left, right, left, right])[:, :, None, :]
    windows = (base * H + y) * W + x  # rows of the table: (4, R, size, size)
    # On a CPU small pieces stay in the cache and in memory that is already mapped, and take a
    # quarter of the time.
    on_cpu = features.device.type == "cpu"
    piece = max(1, POOL_CELLS_AT_ONCE // (size * size * C)) if on_cpu else at_once
    for group, is_empty in zip(windows.split(at_once, dim=1), empty.split(at_once), strict=True):
        pooled = []
        for rows, mask in zip(group.split(piece, dim=1), is_empty.split(piece), strict=True):
            maxima = functional.embedding(rows[0], table)
            for corner in rows[1:]:
                maxima = torch.maximum(maxima, functional.embedding(corner, table))
            pooled.append(maxima.masked_fill(mask[..., None], 0))
        yield torch.cat(pooled).permute(0, 3, 1, 2)


def _cover_bins(
    start: Tensor, end: Tensor, size: int, length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For the bins of each roi along one axis, cut to a map of so many cells, (R, size) each.

    Int64 starts of two windows of side 2^k whose union is the bin, k, and whether the bin is empty;
    the windows of an empty bin are any cell, as its value is not used.
    """
    step = ((end - start + 1).clamp(min=1) / size)[:, None]
    number = torch.arange(size + 1, dtype=torch.float32, device=start.device)
    first = ((number[:-1] * step).floor() + start[:, None]).clamp(0, length).long()
    last = ((number[1:] * step).ceil() + start[:, None]).clamp(0, length).long()
    # x = m 2^e with 0.5 <= m < 1, so that e - 1 is the logarithm to base 2, rounded down.
    k = torch.frexp((last - first).clamp(min=1).float()).exponent.long() - 1
    low = first.clamp(max=length - 1)
    return low, torch.maximum(last - (1 << k), low), k, last <= first


def _window_maxima(cells: Tensor, ny: int, nx: int) -> Tensor:
    """Maxima of the windows of sides 2^ky, 2^kx that start at each cell: (B, H, W, C) -> (ny nx B H
    W, C). Those that leave the map have any value, because no bin reads them."""
    rows, tables = cells, []
    for ky in range(ny):
        if ky:
            rows = torch.maximum(rows, rows.roll(-(1 << (ky - 1)), dims=1))
        columns = rows
        for kx in range(nx):
            if kx:
                columns = torch.maximum(columns, columns.roll(-(1 << (kx - 1)), dims=2))
            tables.append(columns.reshape(-1, cells.shape[-1]))
    return torch.cat(tables)
