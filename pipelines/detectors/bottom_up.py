"""The bottom-up-attention detector: Faster R-CNN on ResNet-101 C4 with an attribute head, in plain
torch. Its pictures are BGR less their mean, resized as OpenCV does."""

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from capgrade.devices import autocast, precision_of
from capgrade.pipelines.detectors.faster_rcnn import (
    Conventions,
    ProposalRule,
    RPNHead,
    make_anchors,
    place_anchors,
    roi_pool,
    select_proposals,
)
from capgrade.pipelines.detectors.selection import DescribedProposals, ProposalDetector, RegionRule
from capgrade.schemas.block import Precision
from capgrade.schemas.errors import InputError, first_names

STRIDE = 16
MOST_BLOCKS = 64  # of a stage; ResNet-152 has 36
_Blocks = Annotated[int, Field(ge=1, le=MOST_BLOCKS)]
_NAMED = 5  # tensors named in one message
PIXEL_MEANS = (102.9801, 115.9465, 122.7717)  # B, G, R: lib/fast_rcnn/config.py
SHORT_SIDE, LONG_SIDE = 600, 1000
# The least side of a prepared picture: the stem's convolution makes of 3 pixels the 2 that its pool
# needs.
NARROWEST = 3


def _resized_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Height and width after a resize; halves are rounded to even, as cvRound does."""
    return max(1, round(height * scale)), max(1, round(width * scale))


def resize(image: Tensor, scale: float) -> Tensor:
    """Bilinear without antialiasing: float32 (C, H, W) -> (C, round(H scale), round(W scale)).

    Equals cv2.resize(image, None, fx=scale, fy=scale, interpolation=INTER_LINEAR): output pixel d
    reads (d + 0.5) / scale - 0.5, computed in float64 and cut to the image.
    """
    # torch's `interpolate` has no such mode: given the output size, it divides by round(H scale) /
    # H instead of scale, and given the factor, it rounds the size down.
    height, width = _resized_size(image.shape[-2], image.shape[-1], scale)
    left, right, share = _taps(width, image.shape[-1], scale, image.device)
    image = torch.lerp(image[..., left], image[..., right], share)
    top, bottom, share = _taps(height, image.shape[-2], scale, image.device)
    return torch.lerp(image[..., top, :], image[..., bottom, :], share[:, None])


def _taps(
    size: int, source: int, scale: float, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """The two source pixels of each output pixel, and the float32 share of the second."""
    at = (torch.arange(size, dtype=torch.float64, device=device) + 0.5) / scale - 0.5
    at = at.clamp(0, source - 1)
    first = at.floor().long()
    return first, (first + 1).clamp(max=source - 1), (at - first).float()


@dataclasses.dataclass(frozen=True)
class CaffePrepare:
    """uint8 (H, W, 3) RGB -> float32 (3, h, w) BGR less PIXEL_MEANS, resized; and the scale h / H.

    The mean is subtracted before the resize, there is no division by a deviation and no padding.
    InputError for a picture that is too narrow for the model.
    """

    short: int = SHORT_SIDE
    long: int = LONG_SIDE

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        height, width = rgb.shape[:2]
        if min(self.size(width, height)) < NARROWEST:
            raise InputError(f"{width} x {height} pixels are too narrow for the detector")
        bgr = torch.from_numpy(np.ascontiguousarray(rgb[:, :, ::-1].transpose(2, 0, 1))).float()
        bgr -= torch.tensor(PIXEL_MEANS)[:, None, None]
        scale = self.scale(height, width)
        return resize(bgr, scale), scale

    def scale(self, height: int, width: int) -> float:
        """The factor that makes the short side `short` pixels, or less where the long side would be
        longer than `long`. Source: _get_image_blob, lib/fast_rcnn/test.py, bottom-up-attention."""
        scale = self.short / min(height, width)
        if round(scale * max(height, width)) > self.long:
            scale = self.long / max(height, width)
        return scale

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the prepared picture."""
        return _resized_size(height, width, self.scale(height, width))


@dataclasses.dataclass(frozen=True)
class BottomUpConfig:
    """The published model by default; smaller ones have other widths, blocks and counts.

    `rois_at_once` bounds memory: a roi takes 1.6 MB for each activation at full width. Source:
    models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt, bottom-up-attention.
    """

    n_classes: int = 1600  # without background
    n_attributes: int = 400  # without "none"; 0 for a model without an attribute head
    width: float = 1.0  # factor of the channels of every ResNet layer
    blocks: tuple[_Blocks, _Blocks, _Blocks, _Blocks] = (3, 4, 23, 3)
    rpn_channels: int = 512
    anchor_base: int = 16
    anchor_scales: tuple[float, ...] = (4, 8, 16, 32)
    anchor_ratios: tuple[float, ...] = (0.5, 1, 2)
    proposals: ProposalRule = ProposalRule()
    conventions: Conventions = "caffe"
    pooled: int = 14
    embedding: int = 256
    attribute_hidden: int = 512
    short_side: int = SHORT_SIDE
    long_side: int = LONG_SIDE
    rois_at_once: int = 300

    @property
    def n_features(self) -> int:
        """The length of a region's feature: 2,048 at full width."""
        return _scale_channels(2048, self.width)

    @property
    def prepare(self) -> CaffePrepare:
        """The function that turns a picture into the model's input."""
        return CaffePrepare(self.short_side, self.long_side)

    def anchors(self) -> Tensor:
        """The anchors of one cell: float32 (A, 4)."""
        shapes = self.anchor_base, self.anchor_scales, self.anchor_ratios
        return torch.from_numpy(make_anchors(self.conventions, *shapes))


def _scale_channels(channels: int, width: float) -> int:
    """Channels of a narrower network: a multiple of 8, at least 8."""
    return max(8, round(channels * width / 8) * 8)


class ConvNorm(nn.Module):
    """Convolution without bias, then a frozen batch norm: conv(x) * scale + shift, per output
    channel.

    The buffers `scale` and `shift` of a trained norm are weight / sqrt(var + 1e-5) and bias - mean
    * scale (Caffe's BatchNorm + Scale with global statistics). `forward` multiplies the kernel by
    the scale, which saves a pass over the activations.
    """

    weight: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("shift", torch.zeros(outputs))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight * self.scale[:, None, None, None]
        return functional.conv2d(x, kernel, self.shift, self.stride, self.padding, self.dilation)


class _Bottleneck(nn.Module):
    """1x1 (with the stride), 3x3 (with the dilation), 1x1, added to the shortcut: branch2a, 2b, 2c
    of Caffe."""

    def __init__(
        self, inputs: int, middle: int, outputs: int, *, stride: int = 1, dilation: int = 1
    ) -> None:
        super().__init__()
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = ConvNorm(inputs, outputs, 1, stride=stride)
        self.conv1 = ConvNorm(inputs, middle, 1, stride=stride)
        self.conv2 = ConvNorm(middle, middle, 3, padding=dilation, dilation=dilation)
        self.conv3 = ConvNorm(middle, outputs, 1)
        # In a model without trained statistics each block would else double the variance.
        self.conv3.scale.fill_(0.25)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.conv1(x), inplace=True)
        y = functional.relu(self.conv2(y), inplace=True)
        return functional.relu(self.conv3(y).add_(self.shortcut(x)), inplace=True)


def make_stage(
    blocks: int, inputs: int, middle: int, outputs: int, *, stride: int, dilation: int = 1
) -> nn.Sequential:
    """Bottlenecks in a row, the stride in the first: res2a, res2b, ... of Caffe."""
    stage = nn.Sequential(_Bottleneck(inputs, middle, outputs, stride=stride, dilation=dilation))
    for _ in range(blocks - 1):
        stage.append(_Bottleneck(outputs, middle, outputs, dilation=dilation))
    return stage


def make_backbone(config: BottomUpConfig) -> nn.Sequential:
    """conv1 to res4: (B, 3, H, W) BGR less its mean -> (B, 1024 width, ~H/16, ~W/16) at stride 16.

    Convolutions of stride 2 give ceil(n / 2) rows, and Caffe's pool, which has no padding and
    rounds its size up, ceil((n - 3) / 2) + 1: 600 -> 300 -> 150 -> 75 -> 38. Source:
    models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt, bottom-up-attention (res4b22).
    """
    first = _scale_channels(64, config.width)
    conv1 = ConvNorm(3, first, 7, stride=2, padding=3)
    # A model without trained statistics needs pixels of -120..150 scaled to about 1.
    conv1.scale.fill_(1 / 64)
    pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    stem = nn.Sequential(OrderedDict(conv1=conv1, relu=nn.ReLU(inplace=True), pool=pool))
    backbone, inputs = nn.Sequential(OrderedDict(stem=stem)), first
    for number, channels, stride in ((2, 64, 1), (3, 128, 2), (4, 256, 2)):
        middle = _scale_channels(channels, config.width)
        outputs = _scale_channels(4 * channels, config.width)
        stage = make_stage(config.blocks[number - 2], inputs, middle, outputs, stride=stride)
        backbone.add_module(f"res{number}", stage)
        inputs = outputs
    return backbone


class _RegionHead(nn.Module):
    """res5 on pooled rois, whose mean over cells gives classes, box deltas and, where the model has
    them, attributes."""

    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        features, classes = config.n_features, config.n_classes + 1
        # Stride 1 and dilation 2 are those of the prototxt, of airsplay's roi_heads.py (RES5HALVE
        # False), and of MILVLG's make_stage, which takes stride 1 wherever it dilates.
        inputs, middle = _scale_channels(1024, config.width), _scale_channels(512, config.width)
        self.res5 = make_stage(config.blocks[3], inputs, middle, features, stride=1, dilation=2)
        self.cls_score = nn.Linear(features, classes)
        self.bbox_pred = nn.Linear(features, 4 * classes)
        layers = [self.cls_score, self.bbox_pred]
        if config.n_attributes:
            self.cls_embed = nn.Embedding(classes, config.embedding)
            self.attr_linear1 = nn.Linear(features + config.embedding, config.attribute_hidden)
            self.attr_linear2 = nn.Linear(config.attribute_hidden, config.n_attributes + 1)
            layers += [self.attr_linear1, self.attr_linear2]
        for layer in layers:
            nn.init.normal_(layer.weight, std=0.001 if layer is self.bbox_pred else 0.01)
            nn.init.zeros_(layer.bias)
        if config.n_attributes:
            nn.init.normal_(self.cls_embed.weight, std=0.01)

    def attribute_logits(self, features: Tensor, classes: Tensor) -> Tensor:
        """(R, D), class numbers (R,) with 0 = background -> (R, n_attributes + 1), 0 = none.

        `classes` are the true ones in training, and in inference those of the largest score,
        background included.
        """
        joined = torch.cat([features, self.cls_embed(classes)], dim=1)
        return self.attr_linear2(functional.relu(self.attr_linear1(joined)))


class BottomUp(nn.Module):
    """(B, 3, H, W) from `preprocess` and B scales -> B `DescribedProposals`.

    A batch has pictures of one size and no padding, so that features do not depend on the other
    pictures. Source: the prototxt named in `BottomUpConfig`; modules have the names of MILVLG's
    modeling/.
    """

    anchors: Tensor

    def __init__(self, config: BottomUpConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or BottomUpConfig()
        self.register_buffer("anchors", config.anchors(), persistent=False)
        self.backbone = make_backbone(config)
        self.rpn = RPNHead(
            _scale_channels(1024, config.width), config.rpn_channels, len(self.anchors)
        )
        self.head = _RegionHead(config)

    def forward(
        self, images: Tensor, scales: Sequence[float], *, deltas: bool = True
    ) -> list[DescribedProposals]:
        features = self.backbone(images)
        proposals = self.propose(features, (images.shape[2], images.shape[3]), scales)
        return self.describe(features, proposals, deltas=deltas)

    @torch.no_grad()
    def propose(
        self, features: Tensor, image: tuple[int, int], scales: Sequence[float]
    ) -> list[tuple[Tensor, Tensor]]:
        """Boxes (R, 4) and objectness (R,) of each picture, float32, without a gradient.

        Objectness is a probability, or by airsplay's conventions its logit, by which detectron2
        sorts.
        """
        logits, deltas = self.rpn.logits(features)
        caffe = self.config.conventions == "caffe"
        scores = logits.softmax(dim=-1)[..., 1] if caffe else logits.diff(dim=-1)[..., 0]
        anchors = place_anchors(self.anchors, features.shape[2], features.shape[3], STRIDE)
        return select_proposals(
            scores, deltas, anchors, image, scales, self.config.proposals, self.config.conventions
        )

    def roi_features(self, features: Tensor, rois: Tensor) -> Tensor:
        """(B, C, H, W), (R, 5) in network pixels -> float32 (R, D)."""
        config, vectors = self.config, []
        if not len(rois):
            return rois.new_zeros(0, config.n_features)
        for pooled in roi_pool(features, rois, config.pooled, 1 / STRIDE, config.rois_at_once):
            # pool5_flat of Caffe, after the last ReLU.
            vectors.append(self.head.res5(pooled).mean(dim=(2, 3), dtype=torch.float32))
        return torch.cat(vectors)

    def describe(
        self, features: Tensor, proposals: list[tuple[Tensor, Tensor]], *, deltas: bool = True
    ) -> list[DescribedProposals]:
        """Features, classes, attributes and, with `deltas`, box deltas of each picture's boxes.

        Under autocast only the features have its precision: the rest is float32, because class
        scores decide which regions are kept.
        """
        rois = [functional.pad(boxes, (1, 0), value=i) for i, (boxes, _) in enumerate(proposals)]
        vectors = self.roi_features(features, torch.cat(rois))
        columns = {"features": vectors}
        with autocast("float32", features.device):
            logits = self.head.cls_score(vectors)
            columns["classes"] = logits.softmax(dim=1)
            if deltas:
                columns["deltas"] = self.head.bbox_pred(vectors)
            if self.config.n_attributes:
                attribute_logits = self.head.attribute_logits(vectors, logits.argmax(dim=1))
                columns["attributes"] = attribute_logits.softmax(dim=1)
        described, start = [], 0
        for boxes, _ in proposals:
            end = start + len(boxes)
            rows = {name: column[start:end] for name, column in columns.items()}
            described.append(DescribedProposals(boxes, **rows))
            start = end
        return described


def load_tensors(model: BottomUp, tensors: Mapping[str, Tensor], path: Path) -> BottomUp:
    """The model, made on the device `meta`, with the tensors of a file in float32, in eval mode.

    InputError as `check_tensors`.
    """
    check_tensors({name: x.shape for name, x in model.state_dict().items()}, tensors, path)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return model.requires_grad_(False).eval()


def check_tensors(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor], path: Path
) -> None:
    """InputError that names tensors which are missing, left over, of another shape, not numbers, or
    not finite."""
    problems: dict[str, list[str]] = {
        "missing": sorted(shapes.keys() - tensors.keys()),
        "not of this model": sorted(tensors.keys() - shapes.keys()),
        "misshapen": [],
        "not of real numbers": [],
        "not finite": [],
    }
    for name, shape in shapes.items():
        tensor = tensors.get(name)
        if tensor is None:
            continue
        if tensor.shape != shape:
            problem = f"{name} is {tuple(tensor.shape)}, not {tuple(shape)}"
            problems["misshapen"].append(problem)
        elif not tensor.is_floating_point():
            problems["not of real numbers"].append(name)
        elif not torch.isfinite(tensor).all():
            problems["not finite"].append(name)
    for what, names in problems.items():
        if names:
            problem = f"{len(names)} tensors {what}: {first_names(names, _NAMED)}"
            remedy = "fetch the file again, or another published checkpoint of the model"
            raise InputError(problem, file=path, remedy=remedy)


class BottomUpDetector(ProposalDetector):
    """`BottomUp` as a detector; the model is moved to `device`.

    `precision` is as in `precision_of`: bf16 runs convolutions under autocast, while scores and
    boxes are computed in float32. Features are float32. `proposals` replaces the model's number of
    proposals; it changes which regions the rule chooses from, but no feature.
    """

    def __init__(
        self,
        model: BottomUp,
        rule: RegionRule,
        *,
        name: str = "bottom_up",
        classes: Sequence[str] | None = None,
        attributes: Sequence[str] | None = None,
        device: torch.device | str = "cpu",
        precision: Precision = "float32",
        proposals: int | None = None,
    ) -> None:
        self.name, self.classes, self.attributes, self.rule = name, classes, attributes, rule
        self.device, self.precision = torch.device(device), precision
        if proposals is not None:
            rule_of_proposals = dataclasses.replace(model.config.proposals, after_nms=proposals)
            model.config = dataclasses.replace(model.config, proposals=rule_of_proposals)
        self.model = model.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.n_features = model.config.n_features
        self.prepare = model.config.prepare

    def describe_proposals(
        self, images: Tensor, scales: Sequence[float]
    ) -> list[DescribedProposals]:
        with precision_of(self.precision, self.device), autocast(self.precision, self.device):
            images = images.to(self.device, non_blocking=True)
            images = images.contiguous(memory_format=torch.channels_last)
            return self.model(images, scales, deltas=self.rule.regresses)
