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
from capgrade.pipelines.detectors.resnet import ResNetC4, fold_norms, make_stage, scaled
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
    """The published model by default; smaller ones by width, blocks and counts.

    Source: models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt, bottom-up-attention.
    rois_at_once bounds memory: 1.6 MB a roi and activation at full width.
    """

    n_classes: int = 1600  # without background
    n_attributes: int = 400  # without none; 0: no attribute head
    width: float = 1.0  # of every ResNet channel
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
        """Numbers of a region feature: 2,048 at full width."""
        return scaled(2048, self.width)

    @property
    def prepare(self) -> CaffePrepare:
        """What makes a picture an input of the model."""
        return CaffePrepare(self.short_side, self.long_side)

    def anchors(self) -> Tensor:
        """float32 (A, 4), about one cell."""
        sides = self.anchor_base, self.anchor_scales, self.anchor_ratios
        return torch.from_numpy(make_anchors(self.conventions, *sides))


class RegionHead(nn.Module):
    """res5 on pooled rois, mean over cells, then classes, box deltas and, where the model has them,
    attributes."""

    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        features, classes = config.n_features, config.n_classes + 1
        # Stride 1 and dilation 2 as in the prototxt, in airsplay's roi_heads.py (RES5HALVE False),
        # and in MILVLG's, whose make_stage takes stride 1 wherever it dilates.
        inputs, middle = scaled(1024, config.width), scaled(512, config.width)
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

        Inference gives it the arg max of the class scores, background included; training the true
        classes.
        """
        joined = torch.cat([features, self.cls_embed(classes)], dim=1)
        return self.attr_linear2(functional.relu(self.attr_linear1(joined)))


class BottomUp(nn.Module):
    """Pictures of one size -> their regions: (B, 3, H, W) from `preprocess` and B scales -> B
    `DescribedProposals`.

    No padding, so that a picture's features do not depend on its neighbours; a batch holds equal
    sizes only. Source: the prototxt named in `BottomUpConfig`; parts of MILVLG's modeling/ carry
    the same names.
    """

    anchors: Tensor

    def __init__(self, config: BottomUpConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or BottomUpConfig()
        self.register_buffer("anchors", config.anchors(), persistent=False)
        self.backbone = ResNetC4(config.blocks[:3], config.width)
        self.rpn = RPNHead(scaled(1024, config.width), config.rpn_channels, len(self.anchors))
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
        """Boxes (R, 4) and objectness (R,) of each picture, float32; no gradient goes through
        proposals.

        Objectness is a probability; by airsplay's conventions its logit, as detectron2 sorts and
        stores it.
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
        starts, step = range(0, len(rois), self.config.rois_at_once), self.config.rois_at_once
        return torch.cat([self.head.features(pool(slice(at, at + step))) for at in starts])

    def describe(
        self, features: Tensor, proposals: list[tuple[Tensor, Tensor]], *, deltas: bool = True
    ) -> list[DescribedProposals]:
        """Feature, class, attribute and, with `deltas`, box predictions of given boxes, picture by
        picture.

        Under autocast all but the feature is computed in float32: a class score decides which
        regions are kept.
        """
        counts = [len(boxes) for boxes, _ in proposals]
        numbered = [
            functional.pad(boxes, (1, 0), value=i) for i, (boxes, _) in enumerate(proposals)
        ]
        vectors = self.roi_features(features, torch.cat(numbered))
        columns = {"features": vectors}
        with autocast("float32", features.device):
            logits = self.head.cls_score(vectors)
            columns["classes"] = logits.softmax(dim=1)
            if deltas:
                columns["deltas"] = self.head.bbox_pred(vectors)
            if self.config.n_attributes:
                columns["attributes"] = self.head.attribute_logits(
                    vectors, logits.argmax(dim=1)
                ).softmax(dim=1)
        rows = zip(*(column.split(counts) for column in columns.values()), strict=True)
        return [
            DescribedProposals(boxes, **dict(zip(columns, row, strict=True)))
            for (boxes, _), row in zip(proposals, rows, strict=True)
        ]


class BottomUpDetector(ProposalDetector):
    """`BottomUp` as a detector; the model is moved to `device` and kept.

    precision: as `precision_of` has it; bf16: convolutions by autocast, while the layers that give
    scores and boxes work in float32. Features are float32. proposals: fewer or more than the model
    was made with, which changes which regions there are to choose from, and no feature of those
    that stay.
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
            wanted = dataclasses.replace(model.config.proposals, after_nms=proposals)
            model.config = dataclasses.replace(model.config, proposals=wanted)
        fold_norms(model)
        self.model = model.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.n_features = model.config.n_features
        self.prepare = model.config.prepare

    def regions(self, images: Tensor, scales: Sequence[float]) -> list[DescribedProposals]:
        with precision_of(self.precision, self.device), autocast(self.precision, self.device):
            images = images.to(self.device, non_blocking=True).contiguous(
                memory_format=torch.channels_last
            )
            return self.model(images, scales, deltas=self.rule.regresses)
