"""Trains the small detector that is shipped with capgrade, on scenes, whose objects are known.

    python -m studies.train_detector --captions DIR --out FILE.safetensors [--bf16]

The defaults made `pipelines/detectors/scenes.safetensors`, when anchors and regions were drawn in
another order.
"""

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

from capgrade.boxes import iou
from capgrade.devices import device_of
from capgrade.pipelines.detectors.bottom_up import STRIDE, BottomUp, BottomUpConfig
from capgrade.pipelines.detectors.checkpoint import refuse_weights, save_bottom_up
from capgrade.pipelines.detectors.resnet import ConvNorm
from capgrade.pipelines.detectors.rpn import ProposalRule, encode_boxes, place_anchors
from capgrade.pipelines.detectors.weights import NORM, fold_norm
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import progress
from studies.scene_objects import Annotated, Truth, measure, read_annotated

IGNORE = -1  # the label of what is not learnt from
# lib/fast_rcnn/config.py (TRAIN.BBOX_NORMALIZE_STDS), bottom-up-attention
DELTA_DEVIATIONS = (
    0.1,
    0.1,
    0.2,
    0.2,
)
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
    """The bottom-up model at a quarter of the width with 12 instead of 33 blocks: 4.7 MB, 512-d
    features.

    Anchors of 32 to 160 px, for scenes shown at 320 px; 100 proposals.
    """
    return BottomUpConfig(
        n_classes=n_classes,
        n_attributes=n_attributes,
        width=0.25,
        blocks=(2, 2, 3, 1),
        rpn_channels=128,
        anchor_scales=(2, 4, 6, 10),
        proposals=ProposalRule(before_nms=600, after_nms=100, min_side=8.0),
        pooled=7,
        embedding=32,
        attribute_hidden=128,
        short_side=320,
        long_side=640,
    )


def train(
    data: Annotated, params: Training, *, device: torch.device | str = "cpu"
) -> tuple[BottomUp, list[dict[str, float]]]:
    """A detector in eval mode with its norms folded, and the mean losses of each epoch.

    AdamW, one cosine cycle with a linear start, flips by chance; everything random follows from the
    seed. Raises InputError when the loss is no longer a number.
    """
    torch.manual_seed(params.seed)
    model = BottomUp(small_config(len(data.classes), len(data.attributes))).train()
    unfreeze(model)
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    matrices, vectors = (
        [p for p in model.parameters() if (p.ndim > 1) == wide] for wide in (True, False)
    )
    # kernels and matrices only
    decayed: dict[str, Any] = {
        "params": matrices,
        "weight_decay": params.weight_decay,
    }
    optimiser = torch.optim.AdamW([decayed, {"params": vectors, "weight_decay": 0.0}], lr=params.lr)
    steps = params.epochs * (len(data) // params.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, _cosine(steps, warm=min(200, steps // 10 + 1))
    )
    history = []
    with progress(f"training on {len(data):,} pictures", params.epochs * len(data)) as advance:
        for epoch in range(params.epochs):
            sums: dict[str, float] = {}
            for images, scales, truths in batches(data, params.batch, device):
                with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=params.bf16):
                    losses = losses_of(model, images, scales, truths)
                total = torch.stack(list(losses.values())).sum()
                if not torch.isfinite(total):
                    raise InputError(
                        f"the loss is {total.item()} in epoch {epoch}",
                        remedy="lower the learning rate",
                    )
                optimiser.zero_grad(set_to_none=True)
                total.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimiser.step()
                schedule.step()
                for name, loss in losses.items():
                    sums[name] = sums.get(name, 0.0) + loss.item()
                advance(len(images))
            history.append(
                {name: value / (len(data) // params.batch) for name, value in sums.items()}
            )
    freeze(model)
    return model.eval().to(memory_format=torch.contiguous_format), history  # type: ignore[call-overload]


def train_and_measure(
    captions_dir: Path, out: Path, params: Training, device: str = "cpu"
) -> dict[str, Any]:
    """Train on the split `train` of a scenes folder, write the checkpoint with its names and
    figures on `test`, and return the figures. InputError for a device that is not there, a folder
    without pictures or either split, and a file at `out` that is something else."""
    chosen = device_of(device)
    refuse_weights(out)
    data, held_out = read_annotated(captions_dir, "train"), read_annotated(captions_dir, "test")
    model, history = train(data, params, device=chosen)
    found = {**dataclasses.asdict(measure(model, held_out)), "losses": history}
    facts = {"training": dataclasses.asdict(params), "pictures": len(data), "test": found}
    metadata = {key: json.dumps(value) for key, value in facts.items()}
    save_bottom_up(
        model.cpu(), out, classes=data.classes, attributes=data.attributes, metadata=metadata
    )
    return found


def _cosine(steps: int, warm: int) -> Callable[[int], float]:
    return lambda step: min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))


def batches(
    data: Annotated, batch: int, device: torch.device | str
) -> Iterator[tuple[Tensor, list[float], list[Truth]]]:
    """One epoch in random order, whole batches only: images (B, 3, h, w), their scales and objects,
    every second picture mirrored."""
    prepare = small_config(1, 1).prepare
    for rows in torch.randperm(len(data)).split(batch)[: len(data) // batch]:
        images, scales, truths = [], [], []
        for k in rows.tolist():
            image, scale = prepare(data.picture(k))
            truth = data.truths[k].shown(scale, device)
            if torch.rand(()) < 0.5:
                image, (x1, y1, x2, y2) = image.flip(2), truth.boxes.unbind(dim=1)
                last = image.shape[2] - 1
                truth = dataclasses.replace(
                    truth, boxes=torch.stack([last - x2, y1, last - x1, y2], dim=1)
                )
            images.append(image)
            scales.append(scale)
            truths.append(truth)
        yield torch.stack(images).to(device), scales, truths


# How many anchors and regions of a picture are learnt from. Source: lib/fast_rcnn/config.py
# (TRAIN.*), bottom-up-attention, with fewer regions: 32 instead of 128 per picture.
ANCHORS, REGIONS = 256, 32
OBJECT_SHARE = 0.5  # of either, at most
ABOVE, BELOW = 0.7, 0.3  # IoU of an anchor with an object: learnt as one, as background
REGION_ABOVE = 0.5


def losses_of(
    model: BottomUp, images: Tensor, scales: list[float], truths: list[Truth]
) -> dict[str, Tensor]:
    """The five losses of Faster R-CNN with attributes (train.prototxt, bottom-up-attention), each a
    scalar."""
    features = model.backbone(images)
    size = images.shape[2], images.shape[3]
    logits, moves = model.rpn.logits(features)
    anchors = place_anchors(model.anchors, features.shape[2], features.shape[3], STRIDE)
    labels, boxes = map(
        torch.cat, zip(*(label_anchors(anchors, truth, size) for truth in truths), strict=True)
    )
    objects = (labels == 1).nonzero()[:, 0]
    targets = encode_boxes(anchors.repeat(len(truths), 1)[objects], boxes[objects])
    move_loss = functional.smooth_l1_loss(
        moves.flatten(0, 1)[objects], targets, beta=1 / 9, reduction="sum"
    )
    losses = {
        "objectness": functional.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORE),
        "anchor_deltas": move_loss / (labels >= 0).sum(),
    }
    proposed = zip(model.propose(features, size, scales), truths, strict=True)
    sampled = [sample_regions(found, truth) for (found, _), truth in proposed]
    rois = torch.cat(
        [functional.pad(regions, (1, 0), value=i) for i, (regions, _) in enumerate(sampled)]
    )
    boxes, classes, attributes = (
        torch.cat([getattr(truth, name) for _, truth in sampled])
        for name in ("boxes", "classes", "attributes")
    )
    vectors = model.roi_features(features, rois)
    objects = (classes > 0).nonzero()[:, 0]
    deviations = torch.tensor(DELTA_DEVIATIONS, device=rois.device)
    deltas = model.head.bbox_pred(vectors[objects]).unflatten(1, (-1, 4))
    deltas = deltas[torch.arange(len(objects), device=rois.device), classes[objects]]
    targets = encode_boxes(rois[objects, 1:], boxes[objects])
    box_loss = functional.smooth_l1_loss(deltas / deviations, targets / deviations, reduction="sum")
    named = model.head.attribute_logits(vectors[objects], classes[objects])
    attribute_loss = functional.cross_entropy(named, attributes[objects], reduction="sum") / max(
        len(objects), 1
    )
    return losses | {
        "classes": functional.cross_entropy(model.head.cls_score(vectors), classes),
        "box_deltas": box_loss / len(rois),
        "attributes": ATTRIBUTE_WEIGHT * attribute_loss,
    }


def label_anchors(anchors: Tensor, truth: Truth, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """1 object, 0 background, IGNORE: int64 (N,); and the box of the object nearest to each anchor:
    float32 (N, 4).

    Objects: IoU >= ABOVE with one, and the best anchors of each. Anchors that leave the picture of
    `size` (height, width) are ignored; a random choice keeps at most ANCHORS. Source:
    lib/rpn/anchor_target_layer.py.
    """
    inside = (anchors[:, :2] >= 0).all(1) & (anchors[:, 2] < size[1]) & (anchors[:, 3] < size[0])
    overlap = iou(anchors, truth.boxes)
    overlap[~inside] = 0
    best, nearest = overlap.max(dim=1)
    of_object = overlap.amax(dim=0)
    objects = (best >= ABOVE) | ((overlap == of_object) & (of_object > 0)).any(dim=1)
    learnt = _some(objects, int(ANCHORS * OBJECT_SHARE))
    others = _some(inside & (best < BELOW) & ~objects, ANCHORS - len(learnt))
    labels = torch.full((len(anchors),), IGNORE, device=anchors.device)
    labels[learnt], labels[others] = 1, 0
    return labels, truth.boxes[nearest]


def sample_regions(proposals: Tensor, truth: Truth) -> tuple[Tensor, Truth]:
    """Regions to learn from, float32 (R, 4), and the object nearest to each, of class 0 where it is
    background.

    The proposals and the true boxes; objects have IoU >= REGION_ABOVE and are at most OBJECT_SHARE
    of REGIONS. Source: lib/rpn/proposal_target_layer.py.
    """
    regions = torch.cat([proposals, truth.boxes])
    best, nearest = iou(regions, truth.boxes).max(dim=1)
    objects = _some(best >= REGION_ABOVE, int(REGIONS * OBJECT_SHARE))
    rows = torch.cat([objects, _some(best < REGION_ABOVE, REGIONS - len(objects))])
    classes = truth.classes[nearest[rows]]
    classes[len(objects) :] = 0
    return regions[rows], Truth(
        truth.boxes[nearest[rows]], classes, truth.attributes[nearest[rows]]
    )


def _some(chosen: Tensor, most: int) -> Tensor:
    """Rows of a bool (N,) that are true, at most so many, by chance."""
    rows = chosen.nonzero()[:, 0]
    return rows[torch.randperm(len(rows), device=rows.device)[:most]]


class TrainedConvNorm(nn.Module):
    """A `ConvNorm` whose norm still learns: conv, then BatchNorm2d with the batch's statistics
    (eval: running ones)."""

    def __init__(self, frozen: ConvNorm) -> None:
        super().__init__()
        self.frozen = frozen
        self.norm = nn.BatchNorm2d(len(frozen.scale))
        with torch.no_grad():
            # the stem's 1/64 is for pixels without statistics
            self.norm.weight.copy_(frozen.scale.clamp(min=0.25))

    def forward(self, x: Tensor) -> Tensor:
        conv = self.frozen
        return self.norm(
            functional.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation)
        )

    def fold(self) -> ConvNorm:
        """The frozen layer with the same output as this one in eval mode."""
        norm = self.norm.state_dict()
        scale, shift = fold_norm(*(norm[name].double() for name in NORM))
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--captions", type=Path, required=True, help="scenes that `capgrade captions` made"
    )
    parser.add_argument("--out", type=Path, required=True, help="FILE.safetensors to write")
    parser.add_argument(
        "--bf16", action="store_true", help="half the time if the processor has bf16"
    )
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    try:
        found = train_and_measure(
            given.captions, given.out, Training(bf16=given.bf16), given.device
        )
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
