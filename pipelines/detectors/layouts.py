"""Published layouts of the bottom-up model's weights: what its tensors are called, and how they become ours.

Sources: models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt of bottom-up-attention; bua/caffe/modeling of
MILVLG/bottom-up-attention.pytorch; detectron2/modeling of airsplay/py-bottom-up-attention.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import BottomUpConfig
from capgrade.pipelines.detectors.configs import CONFIGS

Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]
NORM_EPSILON = 1e-5
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)  # MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS: inference divides deltas by them
CELL_ANCHORS = "proposal_generator.anchor_generator.cell_anchors.0"
# In checkpoints of detectron2, but no weights.
BESIDE = re.compile(r"(.*\.num_batches_tracked|pixel_(mean|std))")

CAFFE_NAMES = {
    "backbone.stem.conv1": "conv1",
    "rpn.conv": "rpn_conv/3x3",
    "rpn.objectness_logits": "rpn_cls_score",
    "rpn.anchor_deltas": "rpn_bbox_pred",
    "head.cls_score": "cls_score",
    "head.bbox_pred": "bbox_pred",
    "head.cls_embed": "cls_embedding",
    "head.attr_linear1": "fc_attr",
    "head.attr_linear2": "attr_score",
}
CAFFE_BRANCHES = {"shortcut": "1", "conv1": "2a", "conv2": "2b", "conv3": "2c"}
PARTS = {
    "backbone": "backbone",
    "rpn": "proposal_generator.rpn_head",
    "head.res5": "roi_heads.res5",
    "head": "roi_heads.box_predictor",
}
AIRSPLAY_HEAD = {"cls_embed": "cls_embedding", "attr_linear1": "fc_attr", "attr_linear2": "attr_score"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one code base names tensors: `kernel` by our layer's name, `norms` of a layer: mean, var, weight, bias.

    A fifth name of `norms` is Caffe's factor, which divides mean and var. background_last: classes, their
    embeddings and attributes count background and none last instead of first, deltas leave it out and are to be
    divided by BOX_WEIGHTS, and an anchor has one logit.
    """

    name: str
    config: BottomUpConfig
    layer: Callable[[str], str]
    kinds: Mapping[str, str]
    norms: Callable[[str], tuple[str, ...]]
    background_last: bool = False

    def tensor(self, ours: str) -> str:
        """Their name of our `{layer}.weight` or `{layer}.bias`."""
        layer, kind = ours.rsplit(".", 1)
        return f"{self.layer(layer)}.{self.kinds[kind]}"

    def shapes(self, ours: Shapes) -> dict[str, tuple[int, ...]]:
        """What a file of this layout holds, for a model of these shapes."""
        found: dict[str, tuple[int, ...]] = {}
        for name, shape in ours.items():
            layer, kind = name.rsplit(".", 1)
            if kind == "scale":
                found |= {norm: (1,) if i == 4 else shape for i, norm in enumerate(self.norms(layer))}
            elif kind != "shift":
                found[self.tensor(name)] = self._shape(layer, shape) if self.background_last else shape
        return found

    def _shape(self, layer: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        rows = {"rpn.objectness_logits": shape[0] // 2, "head.bbox_pred": shape[0] - 4}
        return rows.get(layer, shape[0]), *shape[1:]

    def translated(self, tensors: Tensors, shapes: Shapes, order: Tensor | None) -> dict[str, Tensor]:
        """Our state dict, from tensors that have been checked; `order` has their number of each of our anchors."""
        found: dict[str, Tensor] = {}
        for name in shapes:
            layer, kind = name.rsplit(".", 1)
            if kind == "scale":
                norms = [tensors[norm].double() for norm in self.norms(layer)]
                found[name], found[f"{layer}.shift"] = (x.float() for x in folded(*norms))
            elif kind != "shift":
                tensor = tensors[self.tensor(name)].float()
                tensor = background_first(layer, tensor) if self.background_last else tensor
                found[name] = in_order(layer, tensor, order) if order is not None else tensor
        return found


def folded(mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, factor: Tensor | None = None) -> tuple[Tensor, ...]:
    """scale and shift of a norm with fixed statistics, (C,) each; a factor of 0 leaves no statistics (Caffe's rule)."""
    if factor is not None:
        inverse = 1 / factor if factor.item() else torch.zeros_like(factor)
        mean, var = mean * inverse, var * inverse
    scale = weight / (var + NORM_EPSILON).sqrt()
    return scale, bias - mean * scale


def background_first(layer: str, tensor: Tensor) -> Tensor:
    """detectron2's rows as Caffe's. A logit x through a sigmoid is the softmax of 0 and x."""
    if layer == "rpn.objectness_logits":
        return torch.cat([torch.zeros_like(tensor), tensor])
    if layer == "head.bbox_pred":
        weights = tensor.new_tensor(BOX_WEIGHTS).reshape(4, *[1] * (tensor.ndim - 1))
        moves = (tensor.unflatten(0, (-1, 4)) / weights).flatten(0, 1)
        return torch.cat([torch.zeros_like(moves[:4]), moves])
    if layer in ("head.cls_score", "head.cls_embed", "head.attr_linear2"):
        return tensor.roll(1, dims=0)
    return tensor


def in_order(layer: str, tensor: Tensor, order: Tensor) -> Tensor:
    """The RPN's outputs with their anchors in our order: (2 A, ...) scores, (4 A, ...) deltas, others as they are."""
    if layer == "rpn.objectness_logits":
        return tensor.unflatten(0, (2, -1))[:, order].flatten(0, 1)
    if layer == "rpn.anchor_deltas":
        return tensor.unflatten(0, (-1, 4))[order].flatten(0, 1)
    return tensor


def _caffe_layer(ours: str) -> str:
    if ours in CAFFE_NAMES:
        return CAFFE_NAMES[ours]
    stage, block, branch = ours.split(".")[-3:]
    letter = chr(ord("a") + int(block)) if stage in ("res2", "res5") or block == "0" else f"b{block}"
    return f"{stage}{letter}_branch{CAFFE_BRANCHES[branch]}"


def _caffe_norms(ours: str) -> tuple[str, ...]:
    layer = _caffe_layer(ours)
    name = f"_{layer}" if layer == "conv1" else layer.removeprefix("res")
    return f"bn{name}.0", f"bn{name}.1", f"scale{name}.0", f"scale{name}.1", f"bn{name}.2"


def _detectron_layer(ours: str) -> str:
    part = max((part for part in PARTS if ours.startswith(f"{part}.")), key=len)
    return PARTS[part] + ours.removeprefix(part)


def _detectron_norms(ours: str) -> tuple[str, ...]:
    return tuple(f"{_detectron_layer(ours)}.norm.{x}" for x in ("running_mean", "running_var", "weight", "bias"))


def _airsplay_layer(ours: str) -> str:
    part, _, last = _detectron_layer(ours).rpartition(".")
    return f"{part}.{AIRSPLAY_HEAD.get(last, last)}"


AS_THEY_ARE = {"weight": "weight", "bias": "bias"}
LAYOUTS = {
    "caffe": Layout("caffe", CONFIGS["caffe"], _caffe_layer, {"weight": "0", "bias": "1"}, _caffe_norms),
    "milvlg": Layout("milvlg", CONFIGS["caffe"], _detectron_layer, AS_THEY_ARE, _detectron_norms),
    "airsplay": Layout(
        "airsplay", CONFIGS["airsplay"], _airsplay_layer, AS_THEY_ARE, _detectron_norms, background_last=True
    ),
}
