"""The region proposal network: anchors, its head, and the choice of proposals. All boxes are in
network pixels, those of the resized picture."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capgrade.devices import autocast
from capgrade.pipelines.detectors.ops import nms_batch

# The code base whose rules of boxes a model follows. Caffe's boxes hold both border pixels, so that
# a side is x2 - x1 + 1. airsplay's (py-bottom-up-attention, detectron2 of 2020) have sides x2 - x1
# and end at (width, height). Its anchors are not rounded, except with "airsplay_rounded", for
# checkpoints that bring Caffe's anchors. Sources: lib/rpn and lib/fast_rcnn of bottom-up-attention;
# anchor_generator.py, box_regression.py and proposal_generator/proposal_utils.py of
# detectron2/modeling.
Conventions = Literal["caffe", "airsplay", "airsplay_rounded"]
LARGEST_LOG_GROWTH = math.log(1000 / 16)


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
    y, x = (
        torch.arange(n, device=anchors.device, dtype=anchors.dtype) * stride
        for n in (height, width)
    )
    shift_y, shift_x = torch.meshgrid(y, x, indexing="ij")
    shifts = torch.stack([shift_x, shift_y, shift_x, shift_y], dim=-1)
    return (shifts[:, :, None] + anchors).reshape(-1, 4)


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
        scores, deltas, anchors = (take(x, best) for x in (scores, deltas, anchors))
    boxes = decode_boxes(anchors.flatten(0, 1), deltas.flatten(0, 1), caffe=caffe)
    boxes = clip_boxes(boxes, *image, caffe=caffe).view_as(anchors)
    min_sides = torch.tensor([rule.min_side * scale for scale in scales], device=boxes.device)
    min_sides = min_sides[:, None, None]
    sides = boxes[..., 2:] - boxes[..., :2]
    valid = (sides + 1 >= min_sides if caffe else sides > min_sides).all(dim=2)
    if caffe:
        order = scores.masked_fill(~valid, -torch.inf).argsort(dim=1, descending=True, stable=True)
        best = order[:, : rule.before_nms]
        scores, boxes, valid = (take(x, best) for x in (scores, boxes, valid))
    kept, count = nms_batch(boxes, scores, rule.nms_threshold, valid, rule.after_nms, caffe=caffe)
    pictures = zip(take(boxes, kept), take(scores, kept), count.tolist(), strict=True)
    return [(box[:n], score[:n]) for box, score, n in pictures]


def take(x: Tensor, index: Tensor) -> Tensor:
    """The rows of each picture that its indices name: (B, N, ...), (B, K) -> (B, K, ...)."""
    return x[torch.arange(len(x), device=x.device)[:, None], index]
