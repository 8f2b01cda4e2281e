"""Checkpoints of the bottom-up model under other people's names, and what their networks compute, written out.

Nothing here comes from the package but the pooling: names are spelt out, batch norms are not folded, anchors are lists.
"""

import math

import numpy as np
import torch
from torch.nn import functional

from capgrade.pipelines.detectors.pooling import roi_pool

BLOCKS = (2, 3, 3, 2)
CHANNELS = {1: (8, 8, 8), 2: (8, 8, 16), 3: (16, 8, 32), 4: (32, 16, 64), 5: (64, 32, 128)}  # in, middle, out
CLASSES, ATTRIBUTES, HIDDEN, EMBEDDING, ATTRIBUTE_HIDDEN, ANCHORS = 5, 3, 16, 6, 10, 12
HEADS = {"airsplay": ("cls_embedding", "fc_attr", "attr_score")}  # others: as MILVLG
MILVLG_HEAD = ("cls_embed", "attr_linear1", "attr_linear2")
PARTS = {"1": "shortcut", "2a": "conv1", "2b": "conv2", "2c": "conv3"}
LETTERS = {2: ("a", "b", "c"), 3: ("a", "b1", "b2"), 4: ("a", "b1", "b2"), 5: ("a", "b", "c")}


def caffe_anchors():
    """generate_anchors.py by hand: ratios 0.5, 1, 2 have sides 23 x 12, 16 x 16, 11 x 22 about (7.5, 7.5)."""
    sides = [(w * s, h * s) for w, h in ((23, 12), (16, 16), (11, 22)) for s in (4, 8, 16, 32)]
    return torch.tensor(
        [(7.5 - (w - 1) / 2, 7.5 - (h - 1) / 2, 7.5 + (w - 1) / 2, 7.5 + (h - 1) / 2) for w, h in sides]
    )


def detectron_anchors():
    """Sizes outside, ratios inside, about (0, 0)."""
    rows = []
    for size in (64, 128, 256, 512):
        for ratio in (0.5, 1.0, 2.0):
            w = math.sqrt(size * size / ratio)
            rows.append((-w / 2, -ratio * w / 2, w / 2, ratio * w / 2))
    return torch.tensor(rows)


class Writer:
    """Random tensors by name; `conv` gives a layer with its norm, as the network needs it."""

    def __init__(self, layout):
        torch.manual_seed({"caffe": 1, "milvlg": 2, "airsplay": 3}[layout])
        self.layout, self.caffe, self.tensors = layout, layout == "caffe", {}
        self.conv("conv1", "backbone.stem.conv1", (8, 3, 7, 7), 0.02)
        for stage in (2, 3, 4, 5):
            self.stage(stage)
        airsplay = layout == "airsplay"
        rows = CLASSES if airsplay else CLASSES + 1
        head, rpn = "roi_heads.box_predictor.", "proposal_generator.rpn_head."
        names = HEADS.get(layout, MILVLG_HEAD)
        self.plain("rpn_conv/3x3", rpn + "conv", (HIDDEN, 64, 3, 3), 0.05)
        self.plain("rpn_cls_score", rpn + "objectness_logits", ((1 if airsplay else 2) * ANCHORS, HIDDEN, 1, 1), 0.5)
        self.plain("rpn_bbox_pred", rpn + "anchor_deltas", (4 * ANCHORS, HIDDEN, 1, 1), 0.1)
        self.plain("cls_score", head + "cls_score", (CLASSES + 1, 128), 0.3)
        self.plain("bbox_pred", head + "bbox_pred", (4 * rows, 128), 0.05)
        self.plain("cls_embedding", head + names[0], (CLASSES + 1, EMBEDDING), 1.0, bias=False)
        self.plain("fc_attr", head + names[1], (ATTRIBUTE_HIDDEN, 128 + EMBEDDING), 0.2)
        self.plain("attr_score", head + names[2], (ATTRIBUTES + 1, ATTRIBUTE_HIDDEN), 0.5)

    def stage(self, stage):
        inputs, middle, outputs = CHANNELS[stage]
        for i in range(BLOCKS[stage - 2]):
            theirs = f"{'roi_heads' if stage == 5 else 'backbone'}.res{stage}.{i}."
            caffe = f"res{stage}{LETTERS[stage][i]}_branch"
            shapes = {"1": (outputs, inputs, 1, 1), "2a": (middle, outputs if i else inputs, 1, 1),
                      "2b": (middle, middle, 3, 3), "2c": (outputs, middle, 1, 1)}  # fmt: skip
            for branch in PARTS if i == 0 else list(PARTS)[1:]:
                self.conv(caffe + branch, theirs + PARTS[branch], shapes[branch], 0.5 if branch == "2c" else 1.0)

    def conv(self, caffe, theirs, shape, gain=1.0):
        mean, var = 0.2 * torch.randn(shape[0]), 0.5 + torch.rand(shape[0])
        weight, bias = 1 + 0.2 * torch.randn(shape[0]), 0.1 * torch.randn(shape[0])
        kernel = gain * torch.randn(shape) * math.sqrt(2 / math.prod(shape[1:]))
        if self.caffe:
            tail = caffe.removeprefix("res") if caffe != "conv1" else "_conv1"
            self.tensors[caffe] = [kernel]
            self.tensors["bn" + tail] = [mean * 0.75, var * 0.75, torch.tensor([0.75])]
            self.tensors["scale" + tail] = [weight, bias]
        else:
            values = {"norm.running_mean": mean, "norm.running_var": var, "norm.weight": weight, "norm.bias": bias}
            self.tensors |= {f"{theirs}.{key}": value for key, value in ({"weight": kernel} | values).items()}

    def plain(self, caffe, theirs, shape, std, bias=True):
        values = [std * torch.randn(shape), *([0.1 * torch.randn(shape[0])] if bias else [])]
        if self.caffe:
            self.tensors[caffe] = values
        else:
            self.tensors |= dict(zip((f"{theirs}.weight", f"{theirs}.bias"), values, strict=False))


class Network:
    """The published network on the tensors of a `Writer`, in float64, in its own order of everything."""

    def __init__(self, writer):
        self.caffe, self.tensors = writer.caffe, writer.tensors

    def conv(self, x, stage, i=0, branch="2a", stride=1, dilation=1):
        if self.caffe:
            layer = f"res{stage}{LETTERS[stage][i]}_branch{branch}" if stage > 1 else "conv1"
            tail = layer.removeprefix("res") if stage > 1 else "_conv1"
            (kernel,), (mean, var, factor) = self.tensors[layer], self.tensors["bn" + tail]
            (weight, bias), mean, var = self.tensors["scale" + tail], mean / factor, var / factor
        else:
            of = "roi_heads" if stage == 5 else "backbone"
            name = f"{of}.res{stage}.{i}.{PARTS[branch]}" if stage > 1 else "backbone.stem.conv1"
            keys = ("weight", "norm.running_mean", "norm.running_var", "norm.weight", "norm.bias")
            kernel, mean, var, weight, bias = (self.tensors[f"{name}.{key}"] for key in keys)
        kernel, mean, var, weight, bias = (t.double() for t in (kernel, mean, var, weight, bias))
        padding = 3 if stage == 1 else dilation if branch == "2b" else 0
        y = functional.conv2d(x, kernel, None, stride, padding, dilation)
        return functional.batch_norm(y, mean, var, weight, bias, eps=1e-5)

    def stage(self, x, stage):
        for i in range(BLOCKS[stage - 2]):
            stride, dilation = 2 if i == 0 and stage in (3, 4) else 1, 2 if stage == 5 else 1
            y = self.conv(x, stage, i, "2a", stride).relu()
            y = self.conv(y, stage, i, "2b", dilation=dilation).relu()
            x = (self.conv(y, stage, i, "2c") + (self.conv(x, stage, i, "1", stride) if i == 0 else x)).relu()
        return x

    def backbone(self, images):
        x = self.conv(images.double(), 1, stride=2).relu()
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True)
        return self.stage(self.stage(self.stage(x, 2), 3), 4)

    def plain(self, caffe, theirs):
        """Weight and bias, float64; None for a missing bias."""
        if self.caffe:
            values = [*self.tensors[caffe], None]
        else:
            name = f"{'proposal_generator.rpn_head' if caffe.startswith('rpn') else 'roi_heads.box_predictor'}.{theirs}"
            values = [self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")]
        return [None if v is None else v.double() for v in values[:2]]

    def rpn(self, features):
        """Objectness (A, H, W) and deltas (A, 4, H, W) of the first picture, by their anchors."""
        hidden = functional.conv2d(features, *self.plain("rpn_conv/3x3", "conv"), padding=1).relu()
        logits = functional.conv2d(hidden, *self.plain("rpn_cls_score", "objectness_logits"))[0]
        deltas = functional.conv2d(hidden, *self.plain("rpn_bbox_pred", "anchor_deltas"))[0]
        one = len(logits) == ANCHORS
        objects = logits.sigmoid() if one else logits.unflatten(0, (2, ANCHORS)).softmax(0)[1]
        return objects, deltas.unflatten(0, (ANCHORS, 4))

    def head(self, features, rois, layout):
        """Of rois (R, 5): features, probabilities of objects and of background, moves of objects, attributes, none."""
        x = self.stage(roi_pool(features.float(), rois, 14, 1 / 16)(slice(None)).double(), 5).mean(dim=(2, 3))
        names = HEADS.get(layout, MILVLG_HEAD)
        scores = functional.linear(x, *self.plain("cls_score", "cls_score"))
        moves = functional.linear(x, *self.plain("bbox_pred", "bbox_pred")).unflatten(1, (-1, 4))
        joined = torch.cat([x, self.plain("cls_embedding", names[0])[0][scores.argmax(dim=1)]], dim=1)
        hidden = functional.linear(joined, *self.plain("fc_attr", names[1])).relu()
        found, classes = functional.linear(hidden, *self.plain("attr_score", names[2])).softmax(1), scores.softmax(1)
        if layout == "airsplay":
            moves = moves / moves.new_tensor([10, 10, 5, 5])
            return x, classes[:, :-1], classes[:, -1], moves, found[:, :-1], found[:, -1]
        return x, classes[:, 1:], classes[:, 0], moves[:, 1:], found[:, 1:], found[:, 0]


def as_arrays(tensors):
    """Tensors, and tensors in lists, as numpy arrays."""
    return {k: [t.numpy() for t in v] if isinstance(v, list) else np.asarray(v) for k, v in tensors.items()}
