"""Trains the small detector of the package on scenes, whose objects are known.

    python -m research.studies.train_detector --captions DIR --out FILE.safetensors [--bf16]

The defaults made `pipelines/detectors/scenes.safetensors`. They do not make the same file again,
because anchors and regions are now drawn in another order.
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

from capgrade.boxes import encode_boxes, iou
from capgrade.devices import device_of
from capgrade.pipelines.detectors.bottom_up import STRIDE, BottomUp, BottomUpConfig, ConvNorm
from capgrade.pipelines.detectors.checkpoint import save_bottom_up
from capgrade.pipelines.detectors.faster_rcnn import ProposalRule, place_anchors
from capgrade.pipelines.detectors.layouts import NORM, fold_norm
from capgrade.schemas.errors import InputError
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.progress import progress
from research.studies.scene_objects import Annotated, Truth, measure, read_annotated

IGNORE = -1  # the label of an anchor without a loss
# BBOX_NORMALIZE_STDS of lib/fast_rcnn/config.py, bottom-up-attention.
DELTA_DEVIATIONS = (0.1, 0.1, 0.2, 0.2)
ATTRIBUTE_WEIGHT = 0.5  # models/vg/ResNet-101/faster_rcnn_end2end_final/train.prototxt


@dataclasses.dataclass(frozen=True)
class Training:
    """The parameters of a training; the defaults made the checkpoint of the package."""

    epochs: int = 5
    batch: int = 8
    lr: float = 1e-3
    weight_decay: float = 0.05
    bf16: bool = False  # autocast, which takes half the time on a processor with bf16
    seed: int = 0


def small_config(n_classes: int, n_attributes: int) -> BottomUpConfig:
    """The bottom-up model with a quarter of the width and 8 instead of 33 blocks (4.7 MB), 512
    features, anchors of 32 to 160 pixels for scenes at 320 pixels, and 100 proposals."""
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

    It has AdamW, one cosine cycle with a linear start, and random flips; the seed decides all that
    is random. Raises InputError where the loss is no longer a number.
    """
    torch.manual_seed(params.seed)
    model = BottomUp(small_config(len(data.classes), len(data.attributes))).train()
    unfreeze(model)
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    # Only kernels and matrices have weight decay.
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    decayed: dict[str, Any] = {"params": matrices, "weight_decay": params.weight_decay}
    optimiser = torch.optim.AdamW([decayed, {"params": vectors, "weight_decay": 0.0}], lr=params.lr)
    batches_an_epoch = len(data) // params.batch
    steps = params.epochs * batches_an_epoch
    factor = _cosine(steps, warm=min(200, steps // 10 + 1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    history = []
    with progress(f"training on {len(data):,} pictures", params.epochs * len(data)) as advance:
        for epoch in range(params.epochs):
            sums: dict[str, float] = {}
            for images, scales, truths in batches(data, params.batch, device):
                with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=params.bf16):
                    losses = losses_of(model, images, scales, truths)
                total = torch.stack(list(losses.values())).sum()
                if not torch.isfinite(total):
                    problem = f"the loss is {total.item()} in epoch {epoch}"
                    raise InputError(problem, remedy="lower the learning rate")
                optimiser.zero_grad(set_to_none=True)
                total.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimiser.step()
                schedule.step()
                for name, loss in losses.items():
                    sums[name] = sums.get(name, 0.0) + loss.item()
                advance(len(images))
            history.append({name: value / batches_an_epoch for name, value in sums.items()})
    freeze(model)
    return model.eval().to(memory_format=torch.contiguous_format), history  # type: ignore[call-overload]


def train_and_measure(
    captions_dir: Path, out: Path, params: Training, device: str = "cpu", force: bool = False
) -> dict[str, Any]:
    """Train on the split `train` of a scenes folder, write the checkpoint with its names and its
    figures on `test`, and return the figures. InputError for a missing device, a folder without
    pictures or one of the splits, and a file at `out`, but with `force`."""
    torch_device = device_of(device)
    refuse_file(out, force)
    data, held_out = read_annotated(captions_dir, "train"), read_annotated(captions_dir, "test")
    model, history = train(data, params, device=torch_device)
    figures = {**dataclasses.asdict(measure(model, held_out)), "losses": history}
    metadata = {"training": dataclasses.asdict(params), "pictures": len(data), "test": figures}
    names = {"classes": data.classes, "attributes": data.attributes}
    save_bottom_up(model.cpu(), out, **names, metadata=metadata)
    return figures


def _cosine(steps: int, warm: int) -> Callable[[int], float]:
    return lambda step: min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))


def batches(
    data: Annotated, batch: int, device: torch.device | str
) -> Iterator[tuple[Tensor, list[float], list[Truth]]]:
    """The full batches of an epoch in random order: images (B, 3, h, w), a random half of them
    mirrored, their scales and objects."""
    prepare = small_config(1, 1).prepare
    for rows in torch.randperm(len(data)).split(batch)[: len(data) // batch]:
        images, scales, truths = [], [], []
        for k in rows.tolist():
            image, scale = prepare(data.picture(k))
            truth = data.truths[k].rescale(scale, device)
            if torch.rand(()) < 0.5:
                image, (x1, y1, x2, y2) = image.flip(2), truth.boxes.unbind(dim=1)
                last = image.shape[2] - 1
                boxes = torch.stack([last - x2, y1, last - x1, y2], dim=1)
                truth = dataclasses.replace(truth, boxes=boxes)
            images.append(image)
            scales.append(scale)
            truths.append(truth)
        yield torch.stack(images).to(device), scales, truths


# The anchors and regions of a picture that have a loss. Source: lib/fast_rcnn/config.py (TRAIN.*),
# bottom-up-attention, but 32 instead of 128 regions.
ANCHORS, REGIONS = 256, 32
OBJECT_SHARE = 0.5  # the largest share of objects among either
ABOVE, BELOW = 0.7, 0.3  # IoU from which an anchor is an object, and below which background
REGION_ABOVE = 0.5  # IoU from which a region is an object


def losses_of(
    model: BottomUp, images: Tensor, scales: list[float], truths: list[Truth]
) -> dict[str, Tensor]:
    """The five losses of Faster R-CNN with attributes (train.prototxt, bottom-up-attention), each a
    scalar."""
    features = model.backbone(images)
    size = images.shape[2], images.shape[3]
    logits, moves = model.rpn.logits(features)
    anchors = place_anchors(model.anchors, features.shape[2], features.shape[3], STRIDE)
    labelled = (label_anchors(anchors, truth, size) for truth in truths)
    labels, boxes = map(torch.cat, zip(*labelled, strict=True))
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
    sampled = [sample_regions(regions, truth) for (regions, _), truth in proposed]
    numbered = [functional.pad(regions, (1, 0), value=i) for i, (regions, _) in enumerate(sampled)]
    rois = torch.cat(numbered)
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
    logits = model.head.attribute_logits(vectors[objects], classes[objects])
    attribute_loss = functional.cross_entropy(logits, attributes[objects], reduction="sum")
    attribute_loss = attribute_loss / max(len(objects), 1)
    return losses | {
        "classes": functional.cross_entropy(model.head.cls_score(vectors), classes),
        "box_deltas": box_loss / len(rois),
        "attributes": ATTRIBUTE_WEIGHT * attribute_loss,
    }


def label_anchors(anchors: Tensor, truth: Truth, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Labels int64 (N,): 1 object, 0 background, IGNORE; and for each anchor the box of the object
    that overlaps it most: float32 (N, 4).

    An anchor is an object if its IoU with one is >= ABOVE, or if it is the best anchor of one.
    Anchors that leave the picture of `size` (height, width) are ignored; of the others at most
    ANCHORS are drawn. Source: lib/rpn/anchor_target_layer.py.
    """
    inside = (anchors[:, :2] >= 0).all(1) & (anchors[:, 2] < size[1]) & (anchors[:, 3] < size[0])
    overlap = iou(anchors, truth.boxes)
    overlap[~inside] = 0
    best, nearest = overlap.max(dim=1)
    of_object = overlap.amax(dim=0)
    objects = (best >= ABOVE) | ((overlap == of_object) & (of_object > 0)).any(dim=1)
    object_rows = _draw_rows(objects, int(ANCHORS * OBJECT_SHARE))
    is_background = inside & (best < BELOW) & ~objects
    background_rows = _draw_rows(is_background, ANCHORS - len(object_rows))
    labels = torch.full((len(anchors),), IGNORE, device=anchors.device)
    labels[object_rows] = 1
    labels[background_rows] = 0
    return labels, truth.boxes[nearest]


def sample_regions(proposals: Tensor, truth: Truth) -> tuple[Tensor, Truth]:
    """Regions with a loss, float32 (R, 4), and for each the object that overlaps it most, with
    class 0 for background.

    They are drawn from the proposals and the true boxes. Objects have IoU >= REGION_ABOVE and are
    at most OBJECT_SHARE of REGIONS. Source: lib/rpn/proposal_target_layer.py.
    """
    regions = torch.cat([proposals, truth.boxes])
    best, nearest = iou(regions, truth.boxes).max(dim=1)
    objects = _draw_rows(best >= REGION_ABOVE, int(REGIONS * OBJECT_SHARE))
    rows = torch.cat([objects, _draw_rows(best < REGION_ABOVE, REGIONS - len(objects))])
    of_row = nearest[rows]
    classes = truth.classes[of_row]
    classes[len(objects) :] = 0
    return regions[rows], Truth(truth.boxes[of_row], classes, truth.attributes[of_row])


def _draw_rows(mask: Tensor, most: int) -> Tensor:
    """At most so many random rows of those where a mask bool (N,) is True."""
    rows = mask.nonzero()[:, 0]
    return rows[torch.randperm(len(rows), device=rows.device)[:most]]


class _TrainedConvNorm(nn.Module):
    """A `ConvNorm` with a norm that learns: the convolution, then BatchNorm2d."""

    def __init__(self, frozen: ConvNorm) -> None:
        super().__init__()
        self.frozen = frozen
        self.norm = nn.BatchNorm2d(len(frozen.scale))
        with torch.no_grad():
            # The stem's scale of 1/64 is for a model without statistics, and too small here.
            self.norm.weight.copy_(frozen.scale.clamp(min=0.25))

    def forward(self, x: Tensor) -> Tensor:
        conv = self.frozen
        sizes = conv.stride, conv.padding, conv.dilation
        return self.norm(functional.conv2d(x, conv.weight, None, *sizes))

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
            model.set_submodule(name, _TrainedConvNorm(child))


def freeze(model: nn.Module) -> None:
    """Fold the norms that `unfreeze` added, which changes no output in eval mode."""
    for name, child in list(model.named_modules()):
        if isinstance(child, _TrainedConvNorm):
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
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    args = parser.parse_args()
    try:
        figures = train_and_measure(
            args.captions, args.out, Training(bf16=args.bf16), args.device, args.force
        )
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
