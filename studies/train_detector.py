"""Trains the small detector that is shipped with capgrade, on scenes, whose objects are known.

    python -m studies.train_detector --captions DIR --out FILE.safetensors [--bf16]

The defaults made `pipelines/detectors/scenes.safetensors`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capgrade.pipelines.detectors.bottom_up import STRIDE, BottomUp, BottomUpConfig
from capgrade.pipelines.detectors.checkpoint import refuse_weights, save_bottom_up
from capgrade.pipelines.detectors.ops import iou
from capgrade.pipelines.detectors.resnet import ConvNorm
from capgrade.pipelines.detectors.rpn import ProposalRule, encode_boxes, place_anchors, select_proposals
from capgrade.pipelines.detectors.weights import NORM, folded
from capgrade.schemas.devices import device_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import progress
from studies.scene_objects import Annotated, Truth, measure, read_annotated

IGNORE = -1  # the label of what is not learnt from
DELTA_DEVIATIONS = (0.1, 0.1, 0.2, 0.2)  # lib/fast_rcnn/config.py (TRAIN.BBOX_NORMALIZE_STDS), bottom-up-attention
ATTRIBUTE_WEIGHT = 0.5  # models/vg/ResNet-101/faster_rcnn_end2end_final/train.prototxt


@dataclasses.dataclass(frozen=True)
class Training:
    """How long and how fast; the defaults made the checkpoint of the package."""

    epochs: int = 5
    batch: int = 8
    lr: float = 1e-3
    weight_decay: float = 0.05
    bf16: bool = False  # autocast: half the time where the processor has it
    seed: int = 0


def small_config(n_classes: int, n_attributes: int) -> BottomUpConfig:
    """The bottom-up model at a quarter of the width with 12 instead of 33 blocks: 4.7 MB, 512-d features.

    Anchors of 32 to 160 px, for scenes shown at 320 px; 100 proposals.
    """
    return BottomUpConfig(
        n_classes=n_classes, n_attributes=n_attributes, width=0.25, blocks=(2, 2, 3, 1), rpn_channels=128,
        anchor_scales=(2, 4, 6, 10), proposals=ProposalRule(before_nms=600, after_nms=100, min_side=8.0),
        pooled=7, embedding=32, attribute_hidden=128, short_side=320, long_side=640,
    )  # fmt: skip


def train(
    data: Annotated, params: Training, *, device: torch.device | str = "cpu"
) -> tuple[BottomUp, list[dict[str, float]]]:
    """A detector in eval mode with its norms folded, and the mean losses of each epoch.

    AdamW, one cosine cycle with a linear start, flips by chance; everything random follows from the seed.
    Raises InputError when the loss is no longer a number.
    """
    torch.manual_seed(params.seed)
    model = BottomUp(small_config(len(data.classes), len(data.attributes))).train()
    unfreeze(model)
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    matrices, vectors = ([p for p in model.parameters() if (p.ndim > 1) == wide] for wide in (True, False))
    decayed: dict[str, Any] = {"params": matrices, "weight_decay": params.weight_decay}  # kernels and matrices only
    optimiser = torch.optim.AdamW([decayed, {"params": vectors, "weight_decay": 0.0}], lr=params.lr)
    steps = params.epochs * (len(data) // params.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _cosine(steps, warm=min(200, steps // 10 + 1)))
    history = []
    with progress(f"training on {len(data):,} pictures", params.epochs * len(data)) as advance:
        for epoch in range(params.epochs):
            sums: dict[str, float] = {}
            for images, scales, truths in batches(data, params, device):
                with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=params.bf16):
                    losses = losses_of(model, images, scales, truths, SampleRule())
                total = torch.stack(list(losses.values())).sum()
                if not torch.isfinite(total):
                    raise InputError(f"the loss is {total.item()} in epoch {epoch}", remedy="lower the learning rate")
                optimiser.zero_grad(set_to_none=True)
                total.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimiser.step()
                schedule.step()
                for name, loss in losses.items():
                    sums[name] = sums.get(name, 0.0) + loss.item()
                advance(len(images))
            history.append({name: value / (len(data) // params.batch) for name, value in sums.items()})
    freeze(model)
    return model.eval().to(memory_format=torch.contiguous_format), history  # type: ignore[call-overload]


def train_and_measure(captions_dir: Path, out: Path, params: Training, device: str = "cpu") -> dict[str, Any]:
    """Train on the split `train` of a scenes folder, write the checkpoint with its names and figures on `test`, and
    return the figures. InputError for a device that is not there, a folder without pictures or either split, and a
    file at `out` that is something else."""
    chosen = device_of(device)
    refuse_weights(out)
    data, held_out = read_annotated(captions_dir, "train"), read_annotated(captions_dir, "test")
    model, history = train(data, params, device=chosen)
    found = {**dataclasses.asdict(measure(model, held_out)), "losses": history}
    facts = {"training": dataclasses.asdict(params), "pictures": len(data), "test": found}
    metadata = {key: json.dumps(value) for key, value in facts.items()}
    save_bottom_up(model.cpu(), out, classes=data.classes, attributes=data.attributes, metadata=metadata)
    return found


def _cosine(steps: int, warm: int) -> Callable[[int], float]:
    return lambda step: min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))


def batches(
    data: Annotated, params: Training, device: torch.device | str
) -> Iterator[tuple[Tensor, list[float], list[Truth]]]:
    """One epoch in random order, whole batches only: images (B, 3, h, w), their scales and objects."""
    order = torch.randperm(len(data)).tolist()
    for at in range(0, len(data) - params.batch + 1, params.batch):
        shown = [_shown(data, k) for k in order[at : at + params.batch]]
        images, scales, truths = zip(*shown, strict=True)
        on_device = [Truth(t.boxes.to(device), t.classes.to(device), t.attributes.to(device)) for t in truths]
        yield torch.stack(images).to(device), list(scales), on_device


def _shown(data: Annotated, k: int) -> tuple[Tensor, float, Truth]:
    """A picture as the network sees it, every second one mirrored."""
    config = small_config(1, 1)
    image, scale = config.prepare(data.picture(k))
    truth = data.truth(k, scale)
    if torch.rand(()) < 0.5:
        return image, scale, truth
    x1, y1, x2, y2 = truth.boxes.unbind(dim=1)
    last = image.shape[2] - 1
    mirrored = torch.stack([last - x2, y1, last - x1, y2], dim=1)
    return image.flip(2), scale, Truth(mirrored, truth.classes, truth.attributes)


def losses_of(
    model: BottomUp, images: Tensor, scales: list[float], truths: list[Truth], rule: SampleRule
) -> dict[str, Tensor]:
    """The five losses of Faster R-CNN with attributes (train.prototxt, bottom-up-attention), each a scalar."""
    features = model.backbone(images)
    logits, deltas = model.rpn.logits(features)
    anchors = place_anchors(model.anchors, features.shape[2], features.shape[3], STRIDE)
    size = images.shape[2], images.shape[3]
    losses = _rpn_losses(logits, deltas, anchors, size, truths, rule)
    scores = logits.detach().softmax(dim=2)[..., 1]
    sampled = []
    proposed = select_proposals(scores, deltas.detach(), anchors, size, scales, model.config.proposals)
    for (found, _), truth in zip(proposed, truths, strict=True):
        sampled.append(sample_regions(found, truth, rule))
    return losses | _head_losses(model, features, sampled, truths)


def _rpn_losses(
    logits: Tensor, deltas: Tensor, anchors: Tensor, size: tuple[int, int], truths: list[Truth], rule: SampleRule
) -> dict[str, Tensor]:
    inside = (anchors[:, :2] >= 0).all(1) & (anchors[:, 2] < size[1]) & (anchors[:, 3] < size[0])
    labels, boxes = [], []
    for truth in truths:
        label, nearest = label_anchors(anchors, truth, inside, rule)
        labels.append(label)
        boxes.append(truth.boxes[nearest])
    label = torch.cat(labels)
    objects = (label == 1).nonzero()[:, 0]
    targets = encode_boxes(anchors.repeat(len(truths), 1)[objects], torch.cat(boxes)[objects])
    box_loss = functional.smooth_l1_loss(deltas.flatten(0, 1)[objects], targets, beta=1 / 9, reduction="sum")
    return {
        "objectness": functional.cross_entropy(logits.flatten(0, 1), label, ignore_index=IGNORE),
        "anchor_deltas": box_loss / (label >= 0).sum(),
    }


def _head_losses(
    model: BottomUp, features: Tensor, sampled: list[tuple[Tensor, Tensor, Tensor]], truths: list[Truth]
) -> dict[str, Tensor]:
    rois = torch.cat([functional.pad(boxes, (1, 0), value=i) for i, (boxes, _, _) in enumerate(sampled)])
    classes = torch.cat([c for _, c, _ in sampled])
    found = model.roi_features(features, rois)
    objects = (classes > 0).nonzero()[:, 0]
    true_boxes = torch.cat([t.boxes[nearest] for t, (_, _, nearest) in zip(truths, sampled, strict=True)])[objects]
    attributes = torch.cat([t.attributes[nearest] for t, (_, _, nearest) in zip(truths, sampled, strict=True)])[objects]
    deviations = torch.tensor(DELTA_DEVIATIONS, device=rois.device)
    deltas = model.head.bbox_pred(found[objects]).unflatten(1, (-1, 4))
    deltas = deltas[torch.arange(len(objects), device=rois.device), classes[objects]]
    targets = encode_boxes(rois[objects, 1:], true_boxes)
    box_loss = functional.smooth_l1_loss(deltas / deviations, targets / deviations, reduction="sum")
    named = functional.cross_entropy(
        model.head.attribute_logits(found[objects], classes[objects]), attributes, ignore_index=IGNORE, reduction="sum"
    )
    return {
        "classes": functional.cross_entropy(model.head.cls_score(found), classes),
        "box_deltas": box_loss / len(rois),
        "attributes": ATTRIBUTE_WEIGHT * named / (attributes != IGNORE).sum().clamp(min=1),
    }


@dataclasses.dataclass(frozen=True)
class SampleRule:
    """How many anchors and regions of a picture are learnt from. Source: lib/fast_rcnn/config.py (TRAIN.*),
    bottom-up-attention, with fewer regions: 32 instead of 128 per picture, half of them objects."""

    anchors: int = 256
    anchor_share: float = 0.5  # of objects, at most
    anchor_above: float = 0.7
    anchor_below: float = 0.3
    regions: int = 32
    region_share: float = 0.5
    region_above: float = 0.5


def label_anchors(anchors: Tensor, truth: Truth, inside: Tensor, rule: SampleRule) -> tuple[Tensor, Tensor]:
    """1 object, 0 background, IGNORE: int64 (N,); and the object nearest to each anchor: int64 (N,).

    Objects: IoU >= anchor_above with one, and the best anchors of each. Anchors that leave the picture are
    ignored; a random choice keeps at most `anchors`. Source: lib/rpn/anchor_target_layer.py.
    """
    overlap = iou(anchors, truth.boxes)
    overlap[~inside] = 0
    best, nearest = overlap.max(dim=1)
    labels = torch.full((len(anchors),), IGNORE, device=anchors.device)
    labels[inside & (best < rule.anchor_below)] = 0
    of_object = overlap.amax(dim=0)
    labels[((overlap == of_object) & (of_object > 0)).any(dim=1)] = 1
    labels[best >= rule.anchor_above] = 1
    _keep(labels, 1, int(rule.anchors * rule.anchor_share))
    _keep(labels, 0, rule.anchors - int((labels == 1).sum()))
    return labels, nearest


def _keep(labels: Tensor, value: int, most: int) -> None:
    rows = (labels == value).nonzero()[:, 0]
    if len(rows) > most:
        labels[rows[torch.randperm(len(rows), device=rows.device)[most:]]] = IGNORE


def sample_regions(proposals: Tensor, truth: Truth, rule: SampleRule) -> tuple[Tensor, Tensor, Tensor]:
    """Regions to learn from: boxes (R, 4), classes int64 (R,) with 0 = background, objects int64 (R,).

    The proposals and the true boxes; objects have IoU >= region_above and are at most region_share of them.
    Source: lib/rpn/proposal_target_layer.py.
    """
    boxes = torch.cat([proposals, truth.boxes])
    best, nearest = iou(boxes, truth.boxes).max(dim=1)
    objects = _some((best >= rule.region_above).nonzero()[:, 0], int(rule.regions * rule.region_share))
    others = _some((best < rule.region_above).nonzero()[:, 0], rule.regions - len(objects))
    rows = torch.cat([objects, others])
    classes = truth.classes[nearest[rows]]
    classes[len(objects) :] = 0
    return boxes[rows], classes, nearest[rows]


def _some(rows: Tensor, most: int) -> Tensor:
    return rows[torch.randperm(len(rows), device=rows.device)[:most]]


class TrainedConvNorm(nn.Module):
    """A `ConvNorm` whose norm still learns: conv, then BatchNorm2d with the batch's statistics (eval: running ones)."""

    def __init__(self, frozen: ConvNorm) -> None:
        super().__init__()
        self.frozen = frozen
        self.norm = nn.BatchNorm2d(len(frozen.scale))
        with torch.no_grad():
            self.norm.weight.copy_(frozen.scale.clamp(min=0.25))  # the stem's 1/64 is for pixels without statistics

    def forward(self, x: Tensor) -> Tensor:
        conv = self.frozen
        return self.norm(functional.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation))

    def fold(self) -> ConvNorm:
        """The frozen layer with the same output as this one in eval mode."""
        norm = self.norm.state_dict()
        scale, shift = folded(*(norm[name].double() for name in NORM))
        self.frozen.scale.copy_(scale)
        self.frozen.shift.copy_(shift)
        return self.frozen


def unfreeze(model: nn.Module) -> None:
    """Give every `ConvNorm` of the model a norm that learns."""
    for name, child in list(model.named_modules()):
        if isinstance(child, ConvNorm):
            model.set_submodule(name, TrainedConvNorm(child))


def freeze(model: nn.Module) -> None:
    """Fold what `unfreeze` added: the outputs in eval mode stay the same."""
    for name, child in list(model.named_modules()):
        if isinstance(child, TrainedConvNorm):
            model.set_submodule(name, child.fold())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=Path, required=True, help="scenes that `capgrade captions` made")
    parser.add_argument("--out", type=Path, required=True, help="FILE.safetensors to write")
    parser.add_argument("--bf16", action="store_true", help="half the time if the processor has bf16")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    try:
        found = train_and_measure(given.captions, given.out, Training(bf16=given.bf16), given.device)
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
