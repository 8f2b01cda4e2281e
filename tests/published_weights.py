"""Checkpoints of the bottom-up model under other people's names, and what their networks compute,
written out.

Nothing here comes from the package but the pooling: names are spelt out, batch norms are not
folded, anchors are lists.
"""

import math

import numpy as np
import torch
from torch.nn import functional

from capgrade.pipelines.detectors.faster_rcnn import roi_pool

# By detectron2's names: blocks, middle and output channels, stride, dilation, and Caffe's letters
# of the blocks.
STAGES = {
    "backbone.res2": (2, 8, 16, 1, 1, ("a", "b")),
    "backbone.res3": (3, 8, 32, 2, 1, ("a", "b1", "b2")),
    "backbone.res4": (3, 16, 64, 2, 1, ("a", "b1", "b2")),
    "roi_heads.res5": (2, 32, 128, 1, 2, ("a", "b")),
}
BRANCHES = {"shortcut": "1", "conv1": "2a", "conv2": "2b", "conv3": "2c"}
CLASSES, ATTRIBUTES, HIDDEN, EMBEDDING, ATTRIBUTE_HIDDEN, ANCHORS = 5, 3, 16, 6, 10, 12


def caffe_anchors():
    """generate_anchors.py by hand: ratios 0.5, 1, 2 have sides 23 x 12, 16 x 16, 11 x 22 about
    (7.5, 7.5)."""
    sides = [(w * s, h * s) for w, h in ((23, 12), (16, 16), (11, 22)) for s in (4, 8, 16, 32)]
    return torch.tensor(
        [
            (7.5 - (w - 1) / 2, 7.5 - (h - 1) / 2, 7.5 + (w - 1) / 2, 7.5 + (h - 1) / 2)
            for w, h in sides
        ]
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
    """Random tensors: `tensors` by a file's names, `layers` as the network needs them, by
    MILVLG's."""

    def __init__(self, layout):
        torch.manual_seed({"caffe": 1, "milvlg": 2, "airsplay": 3}[layout])
        self.layout, self.tensors, self.layers = layout, {}, {}
        self.conv("backbone.stem.conv1", "conv1", (8, 3, 7, 7), 0.02)
        inputs = 8
        for stage, (blocks, middle, outputs, _, _, letters) in STAGES.items():
            for i in range(blocks):
                shapes = {
                    "shortcut": (outputs, inputs, 1, 1),
                    "conv1": (middle, outputs if i else inputs, 1, 1),
                    "conv2": (middle, middle, 3, 3),
                    "conv3": (outputs, middle, 1, 1),
                }
                for branch in list(BRANCHES)[i > 0 :]:
                    caffe = f"{stage.split('.')[1]}{letters[i]}_branch{BRANCHES[branch]}"
                    self.conv(
                        f"{stage}.{i}.{branch}",
                        caffe,
                        shapes[branch],
                        0.5 if branch == "conv3" else 1.0,
                    )
            inputs = outputs
        last = layout == "airsplay"  # background, and with it one logit an anchor
        self.plain("rpn.conv", "rpn_conv/3x3", (HIDDEN, 64, 3, 3), 0.05)
        self.plain(
            "rpn.objectness_logits", "rpn_cls_score", ((2 - last) * ANCHORS, HIDDEN, 1, 1), 0.5
        )
        self.plain("rpn.anchor_deltas", "rpn_bbox_pred", (4 * ANCHORS, HIDDEN, 1, 1), 0.1)
        self.plain("cls_score", "cls_score", (CLASSES + 1, 128), 0.3)
        self.plain("bbox_pred", "bbox_pred", (4 * (CLASSES + 1 - last), 128), 0.05)
        self.plain("cls_embed", "cls_embedding", (CLASSES + 1, EMBEDDING), 1.0, bias=False)
        self.plain("attr_linear1", "fc_attr", (ATTRIBUTE_HIDDEN, 128 + EMBEDDING), 0.2)
        self.plain("attr_linear2", "attr_score", (ATTRIBUTES + 1, ATTRIBUTE_HIDDEN), 0.5)

    def conv(self, name, caffe, shape, gain):
        mean, var = 0.2 * torch.randn(shape[0]), 0.5 + torch.rand(shape[0])
        weight, bias = 1 + 0.2 * torch.randn(shape[0]), 0.1 * torch.randn(shape[0])
        kernel = gain * torch.randn(shape) * math.sqrt(2 / math.prod(shape[1:]))
        self.layers[name] = [x.double() for x in (kernel, mean, var, weight, bias)]
        if self.layout == "caffe":
            tail = caffe.removeprefix("res") if caffe != "conv1" else "_conv1"
            self.tensors[caffe] = [kernel]
            self.tensors["bn" + tail] = [mean * 0.75, var * 0.75, torch.tensor([0.75])]
            self.tensors["scale" + tail] = [weight, bias]
        else:
            values = {
                "norm.running_mean": mean,
                "norm.running_var": var,
                "norm.weight": weight,
                "norm.bias": bias,
            }
            self.tensors |= {
                f"{name}.{key}": value for key, value in ({"weight": kernel} | values).items()
            }

    def plain(self, name, caffe, shape, std, bias=True):
        values = [std * torch.randn(shape), *([0.1 * torch.randn(shape[0])] if bias else [])]
        self.layers[name] = [x.double() for x in values]
        if self.layout == "caffe":
            self.tensors[caffe] = values
        else:
            theirs = caffe if self.layout == "airsplay" and name[:4] in ("cls_", "attr") else name
            part = (
                "proposal_generator.rpn_head"
                if name.startswith("rpn.")
                else "roi_heads.box_predictor"
            )
            keys = (f"{part}.{theirs.removeprefix('rpn.')}.{kind}" for kind in ("weight", "bias"))
            self.tensors |= dict(zip(keys, values, strict=False))


class Network:
    """The published network on the tensors of a `Writer`, in float64, in its own order of
    everything."""

    def __init__(self, writer):
        self.layers, self.airsplay = writer.layers, writer.layout == "airsplay"

    def conv(self, x, name, stride=1, padding=0, dilation=1):
        kernel, mean, var, weight, bias = self.layers[name]
        y = functional.conv2d(x, kernel, None, stride, padding, dilation)
        return functional.batch_norm(y, mean, var, weight, bias, eps=1e-5)

    def stage(self, x, stage):
        blocks, _, _, first, dilation, _ = STAGES[stage]
        for i, stride in enumerate([first, *[1] * (blocks - 1)]):
            y = self.conv(x, f"{stage}.{i}.conv1", stride).relu()
            y = self.conv(y, f"{stage}.{i}.conv2", 1, dilation, dilation).relu()
            x = (
                self.conv(y, f"{stage}.{i}.conv3")
                + (x if i else self.conv(x, f"{stage}.0.shortcut", stride))
            ).relu()
        return x

    def backbone(self, images):
        x = self.conv(images.double(), "backbone.stem.conv1", 2, 3).relu()
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True)
        return self.stage(
            self.stage(self.stage(x, "backbone.res2"), "backbone.res3"), "backbone.res4"
        )

    def rpn(self, features):
        """Objectness (A, H, W) and deltas (A, 4, H, W) of the first picture, by their anchors."""
        hidden = functional.conv2d(features, *self.layers["rpn.conv"], padding=1).relu()
        logits = functional.conv2d(hidden, *self.layers["rpn.objectness_logits"])[0]
        deltas = functional.conv2d(hidden, *self.layers["rpn.anchor_deltas"])[0]
        objects = (
            logits.sigmoid() if self.airsplay else logits.unflatten(0, (2, ANCHORS)).softmax(0)[1]
        )
        return objects, deltas.unflatten(0, (ANCHORS, 4))

    def head(self, features, rois):
        """Of rois (R, 5): features, probabilities of objects and of background, moves of objects,
        attributes, none."""
        pooled = next(roi_pool(features.float(), rois, 14, 1 / 16, len(rois))).double()
        x = self.stage(pooled, "roi_heads.res5").mean(dim=(2, 3))
        scores = functional.linear(x, *self.layers["cls_score"])
        moves = functional.linear(x, *self.layers["bbox_pred"]).unflatten(1, (-1, 4))
        joined = torch.cat([x, self.layers["cls_embed"][0][scores.argmax(dim=1)]], dim=1)
        hidden = functional.linear(joined, *self.layers["attr_linear1"]).relu()
        found = functional.linear(hidden, *self.layers["attr_linear2"]).softmax(1)
        classes = scores.softmax(1)
        if self.airsplay:
            moves = moves / moves.new_tensor([10, 10, 5, 5])
            return x, classes[:, :-1], classes[:, -1], moves, found[:, :-1], found[:, -1]
        return x, classes[:, 1:], classes[:, 0], moves[:, 1:], found[:, 1:], found[:, 0]


def as_arrays(tensors):
    """Tensors, and tensors in lists, as numpy arrays."""
    return {
        k: [t.numpy() for t in v] if isinstance(v, list) else np.asarray(v)
        for k, v in tensors.items()
    }
