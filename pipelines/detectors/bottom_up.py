"""The bottom-up-attention detector: Faster R-CNN on ResNet-101 C4 with an attribute head, in plain
torch."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from capgrade.devices import autocast, precision_of
from capgrade.pipelines.detectors.pooling import roi_pool
from capgrade.pipelines.detectors.preprocess import LONG_SIDE, SHORT_SIDE, CaffePrepare
from capgrade.pipelines.detectors.resnet import ResNetC4, fold_norms, make_stage, scale_channels
from capgrade.pipelines.detectors.rpn import (
    Conventions,
    ProposalRule,
    RPNHead,
    make_anchors,
    place_anchors,
    select_proposals,
)
from capgrade.pipelines.detectors.selection import DescribedProposals, ProposalDetector, RegionRule
from capgrade.schemas.params import Precision

STRIDE = 16


@dataclasses.dataclass(frozen=True)
class BottomUpConfig:
    """The published model by default; smaller ones have other widths, blocks and counts.

    `rois_at_once` bounds memory: a roi takes 1.6 MB for each activation at full width. Source:
    models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt, bottom-up-attention.
    """

    n_classes: int = 1600  # without background
    n_attributes: int = 400  # without "none"; 0 for a model without an attribute head
    width: float = 1.0  # factor of the channels of every ResNet layer
    blocks: tuple[int, int, int, int] = (3, 4, 23, 3)
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
        return scale_channels(2048, self.width)

    @property
    def prepare(self) -> CaffePrepare:
        """The function that turns a picture into the model's input."""
        return CaffePrepare(self.short_side, self.long_side)

    def anchors(self) -> Tensor:
        """The anchors of one cell: float32 (A, 4)."""
        shapes = self.anchor_base, self.anchor_scales, self.anchor_ratios
        return torch.from_numpy(make_anchors(self.conventions, *shapes))


class RegionHead(nn.Module):
    """res5 on pooled rois, mean over cells, then classes, box deltas and, where the model has them,
    attributes."""

    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        features, classes = config.n_features, config.n_classes + 1
        # Stride 1 and dilation 2 are those of the prototxt, of airsplay's roi_heads.py (RES5HALVE
        # False), and of MILVLG's make_stage, which takes stride 1 wherever it dilates.
        inputs, middle = scale_channels(1024, config.width), scale_channels(512, config.width)
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

    def features(self, pooled: Tensor) -> Tensor:
        """pool5_flat, after the last ReLU: (R, 1024 width, 14, 14) -> float32 (R, 2048 width)."""
        return self.res5(pooled).mean(dim=(2, 3), dtype=torch.float32)

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
        self.backbone = ResNetC4(config.blocks[:3], config.width)
        self.rpn = RPNHead(
            scale_channels(1024, config.width), config.rpn_channels, len(self.anchors)
        )
        self.head = RegionHead(config)

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
        if not len(rois):
            return rois.new_zeros(0, self.config.n_features)
        pool = roi_pool(features, rois, self.config.pooled, 1 / STRIDE)
        step = self.config.rois_at_once
        parts = (slice(start, start + step) for start in range(0, len(rois), step))
        return torch.cat([self.head.features(pool(part)) for part in parts])

    def describe(
        self, features: Tensor, proposals: list[tuple[Tensor, Tensor]], *, deltas: bool = True
    ) -> list[DescribedProposals]:
        """Features, classes, attributes and, with `deltas`, box deltas of each picture's boxes.

        Under autocast only the features have its precision: the rest is float32, because class
        scores decide which regions are kept.
        """
        counts = [len(boxes) for boxes, _ in proposals]
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
        rows = zip(*(column.split(counts) for column in columns.values()), strict=True)
        return [
            DescribedProposals(boxes, **dict(zip(columns, row, strict=True)))
            for (boxes, _), row in zip(proposals, rows, strict=True)
        ]


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
        fold_norms(model)
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
