"""Our model beside detectron2's Faster R-CNN C4 with the same random weights, stage by stage, where detectron2 is.

Each side goes on with its own results from the picture on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import CONFIGS, BottomUp
from capgrade.pipelines.detectors.detectron import box_vectors, need_detectron2
from capgrade.pipelines.detectors.ops import iou
from capgrade.pipelines.detectors.preprocess import CaffePrepare
from capgrade.pipelines.detectors.resnet import ConvNorm, fold_norms
from capgrade.pipelines.detectors.rpn import clip_boxes, decode_boxes
from capgrade.schemas.errors import InputError

TOLERANCE = 1e-3  # relative to the larger of a value and its stage's mean: values near zero have no scale of their own
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
PARTS = {"backbone": "backbone", "rpn": "proposal_generator.rpn_head", "head.res5": "roi_heads.res5"}
NORM_EPSILON = 1e-5
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)  # MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS: its deltas are ours times these


def random_model(depth: int, proposals: int, seed: int = 0) -> BottomUp:
    """Seeded weights under which proposals, features and scores vary from region to region."""
    torch.manual_seed(seed)
    config = CONFIGS["detectron2"]
    rule = dataclasses.replace(config.proposals, after_nms=proposals)
    model = BottomUp(dataclasses.replace(config, blocks=BLOCKS[depth], proposals=rule)).eval()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, ConvNorm):
                layer.shift.normal_(std=0.05)
        rpn, head = model.rpn, model.head
        rpn.conv.weight.normal_(std=0.02)
        rpn.objectness_logits.weight.normal_(std=0.2)[: len(model.anchors)] = 0  # of background: detectron2 has none
        rpn.anchor_deltas.weight.normal_(std=0.03)
        head.cls_score.weight.normal_(std=0.5)
        head.bbox_pred.weight.normal_(std=0.02)[:4] = 0
    return model


def to_detectron(model: BottomUp, seed: int = 1) -> dict[str, Tensor]:
    """Our weights under detectron2's names, its frozen norms with random statistics of the same scale and shift."""
    state, generator = model.state_dict(), torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for ours, name in _renamed(state).items():
        if ours.endswith(".weight") and f"{ours[:-7]}.scale" in state:
            found |= _norm(f"{name[:-7]}.norm", state[f"{ours[:-7]}.scale"], state[f"{ours[:-7]}.shift"], generator)
        found[name] = state[ours]
    A = len(model.anchors)
    for kind in ("weight", "bias"):
        found[f"proposal_generator.rpn_head.objectness_logits.{kind}"] = state[f"rpn.objectness_logits.{kind}"][A:]
        scores, moves = state[f"head.cls_score.{kind}"], state[f"head.bbox_pred.{kind}"][4:].unflatten(0, (-1, 4))
        found[f"roi_heads.box_predictor.cls_score.{kind}"] = scores.roll(-1, dims=0)
        factors = moves.new_tensor(BOX_WEIGHTS).reshape(1, 4, *[1] * (moves.ndim - 2))
        found[f"roi_heads.box_predictor.bbox_pred.{kind}"] = (moves * factors).flatten(0, 1)
    return found


def _renamed(state: dict[str, Tensor]) -> dict[str, str]:
    """Names of what both have as it is, by our names: kernels, and biases of the RPN."""
    return {
        ours: theirs + ours.removeprefix(part)
        for ours in state
        for part, theirs in PARTS.items()
        if ours.startswith(f"{part}.") and not ours.endswith((".scale", ".shift"))
    }


def _norm(name: str, scale: Tensor, shift: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    mean = 0.1 * torch.randn(scale.shape, generator=generator)
    var = 0.5 + torch.rand(scale.shape, generator=generator)
    weight = scale * (var + NORM_EPSILON).sqrt()
    values = {"weight": weight, "bias": shift + mean * scale, "running_mean": mean, "running_var": var}
    return {f"{name}.{key}": value for key, value in values.items()}


def detectron_model(ours: BottomUp, depth: int) -> Any:
    """detectron2's model of configs/COCO-Detection/faster_rcnn_R_*_C4_3x.yaml with our weights."""
    from detectron2 import model_zoo
    from detectron2.modeling import build_model

    cfg = model_zoo.get_config(f"COCO-Detection/faster_rcnn_R_{depth}_C4_3x.yaml")
    cfg.MODEL.DEVICE, cfg.MODEL.WEIGHTS = "cpu", ""
    cfg.MODEL.PIXEL_MEAN = [0.0, 0.0, 0.0]  # already taken
    cfg.MODEL.RPN.POST_NMS_TOPK_TEST = ours.config.proposals.after_nms
    model = build_model(cfg).eval()
    missing, unexpected = model.load_state_dict(to_detectron(ours), strict=False)
    missing = [key for key in missing if not key.startswith(("pixel_", "proposal_generator.anchor_generator"))]
    if missing or unexpected:
        raise InputError(f"detectron2 names its weights otherwise: {[*missing, *unexpected][:3]}")
    return model


@dataclasses.dataclass(frozen=True)
class Stages:
    """What a model computes of one picture, stage by stage."""

    backbone: Tensor  # (C, H, W)
    rpn_logits: Tensor  # (A, H, W)
    rpn_deltas: Tensor  # (4 A, H, W)
    proposals: Tensor  # (R, 4), network pixels, by falling score
    roi_features: Tensor  # (R, D)
    class_scores: Tensor  # (R, C + 1), background last
    boxes: Tensor  # (R, 4 C), regressed for every class


@torch.inference_mode()
def run_ours(model: BottomUp, image: Tensor) -> Stages:
    """One prepared picture (3, h, w) through our model."""
    size = image.shape[1], image.shape[2]
    features = model.backbone(image[None])
    proposals = model.propose(features, size, [1.0])
    found = model.describe(features, proposals)[0]
    assert found.deltas is not None
    boxes = clip_boxes(decode_boxes(found.boxes, found.deltas, one_pixel=False), *size, one_pixel=False)
    hidden = model.rpn.conv(features).relu()
    logits = model.rpn.objectness_logits(hidden)[0, len(model.anchors) :]
    deltas = model.rpn.anchor_deltas(hidden)[0]
    scores = found.classes.roll(-1, dims=1)
    return Stages(features[0], logits, deltas, found.boxes, found.features, scores, boxes[:, 4:])


@torch.inference_mode()
def run_detectron(model: Any, image: Tensor) -> Stages:
    """The same through detectron2's, by the calls of GeneralizedRCNN.inference and Res5ROIHeads.forward."""
    images = model.preprocess_image([{"image": image}])
    maps = model.backbone(images.tensor)
    proposals, _ = model.proposal_generator(images, maps, None)
    predictor = model.roi_heads.box_predictor
    vectors = box_vectors(model.roi_heads, maps, [proposals[0].proposal_boxes])
    predictions = predictor(vectors)
    scores = predictor.predict_probs(predictions, proposals)[0]
    boxes = predictor.predict_boxes(predictions, proposals)[0]
    logits, deltas = model.proposal_generator.rpn_head([maps["res4"]])
    boxes = clip_boxes(boxes, *images.image_sizes[0], one_pixel=False)
    rows = proposals[0].proposal_boxes.tensor
    return Stages(maps["res4"][0], logits[0][0], deltas[0][0], rows, vectors, scores, boxes)


@pytest.mark.parametrize("depth", sorted(BLOCKS))
def test_every_stage_equals_detectron2(depth: int) -> None:
    try:
        need_detectron2()
    except InputError as absent:
        pytest.skip(absent.problem)
    ours = random_model(depth, 20)
    peer = detectron_model(ours, depth)
    fold_norms(ours)
    rgb = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    image, _ = CaffePrepare(160, 240)(rgb)
    mine, theirs = run_ours(ours, image), run_detectron(peer, image)
    rows = iou(mine.proposals, theirs.proposals).argmax(dim=1)  # regions are paired by their proposals
    assert len(rows) == len(theirs.proposals) == len(rows.unique())
    for field in dataclasses.fields(Stages):
        a, b = getattr(mine, field.name), getattr(theirs, field.name)
        b = b if field.name in ("backbone", "rpn_logits", "rpn_deltas") else b[rows]
        relative = (a - b).abs() / b.abs().clamp(min=b.abs().mean())
        assert relative.max().item() <= TOLERANCE, field.name
