"""Our model beside detectron2's Faster R-CNN C4: the same random weights, the same pictures, every stage compared.

    python -m capgrade.benchmarks.detectron_parity --images DIR [--limit 5] [--depth 50 101] [--proposals 300] [--json]

Needs detectron2. Each side runs on its own results from the picture on; float32, the same threads, the best of
three runs after one that warms up, the two sides in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.benchmarks.detectron_weights import BLOCKS, detectron_model, random_model
from capgrade.pipelines.detectors import library
from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.detectron import box_vectors
from capgrade.pipelines.detectors.detectron_zoo import need_detectron2
from capgrade.pipelines.detectors.ops import iou
from capgrade.pipelines.detectors.preprocess import preprocess
from capgrade.pipelines.detectors.resnet import fold_norms
from capgrade.pipelines.detectors.rpn import clip_boxes, decode_boxes
from capgrade.schemas.console import console
from capgrade.schemas.errors import InputError
from capgrade.schemas.pictures import read_image

SIDES = 600, 1000
TOLERANCE = 1e-3
ROUNDS = 3


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


def differences(ours: Stages, theirs: Stages) -> dict[str, dict[str, float]]:
    """Largest absolute and relative difference of each stage; regions are paired by their proposals.

    Relative to the larger of the value and the mean size of its stage: values near zero have no scale of their own.
    """
    rows = iou(ours.proposals, theirs.proposals).argmax(dim=1)
    if len(rows) != len(theirs.proposals) or len(rows.unique()) != len(rows):
        raise InputError(f"{len(rows)} proposals of ours do not pair with {len(theirs.proposals)} of detectron2")
    found = {}
    for field in dataclasses.fields(Stages):
        a, b = getattr(ours, field.name), getattr(theirs, field.name)
        b = b if field.name in ("backbone", "rpn_logits", "rpn_deltas") else b[rows]
        apart = (a - b).abs()
        relative = apart / b.abs().clamp(min=b.abs().mean())
        found[field.name] = {"abs": apart.max().item(), "rel": relative.max().item()}
    found["proposals"]["moved_rows"] = float((rows != torch.arange(len(rows))).sum())
    return found


def timed_in_turn(*works: Callable[[], Any]) -> list[float]:
    """Seconds of each, the best of `ROUNDS`, one after the other so that both meet the same machine."""
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for k, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def ours_alone(model: BottomUp, image: Tensor) -> Any:
    """Picture to proposals, features, scores and deltas: what is timed."""
    with torch.inference_mode():
        return model(image[None], [1.0])


def detectron_alone(model: Any, image: Tensor) -> Any:
    """The same of detectron2, without its suppression of detections."""
    with torch.inference_mode():
        images = model.preprocess_image([{"image": image}])
        maps = model.backbone(images.tensor)
        proposals, _ = model.proposal_generator(images, maps, None)
        vectors = box_vectors(model.roi_heads, maps, [proposals[0].proposal_boxes])
        return vectors, model.roi_heads.box_predictor(vectors)


def compare(images: Sequence[np.ndarray], *, depth: int = 50, proposals: int = 300, seed: int = 0) -> dict[str, Any]:
    """Pictures uint8 (H, W, 3) RGB -> largest differences over them, seconds per picture of both sides, their ratio."""
    need_detectron2()
    ours = random_model(depth, proposals, seed)
    theirs = detectron_model(ours, depth)
    fold_norms(ours)
    worst: dict[str, dict[str, float]] = {}
    seconds = np.zeros(2)
    for rgb in images:
        image, _ = preprocess(rgb, short=SIDES[0], long=SIDES[1])
        for stage, values in differences(run_ours(ours, image), run_detectron(theirs, image)).items():
            known = worst.setdefault(stage, values)
            worst[stage] = {key: max(known[key], value) for key, value in values.items()}
        seconds += timed_in_turn(partial(ours_alone, ours, image), partial(detectron_alone, theirs, image))
    mine, peer = seconds / len(images)
    return {
        "depth": depth,
        "images": len(images),
        "proposals": proposals,
        "threads": torch.get_num_threads(),
        "operators": library.in_use(),
        "differences": worst,
        "seconds": mine,
        "peer": "detectron2",
        "peer_seconds": peer,
        "ratio": peer / mine,
        "equal": all(values["rel"] <= TOLERANCE for values in worst.values()),
    }


def show(found: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"R-{found['depth']} C4, {found['images']} pictures, {found['proposals']} proposals each"
    table = Table("stage", "largest difference", "relative", title=title)
    for stage, values in found["differences"].items():
        table.add_row(stage, f"{values['abs']:.1e}", f"{values['rel']:.1e}")
    on = console()
    on.print(table)
    times = f"ours {found['seconds']:.2f} s a picture, detectron2 {found['peer_seconds']:.2f} s"
    equal = "equal" if found["equal"] else "NOT equal"
    on.print(f"{times}, ratio {found['ratio']:.2f}, {found['threads']} threads", highlight=False)
    on.print(f"{equal} within {TOLERANCE:g} relative", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Our C4 model beside detectron2's, stage by stage.")
    parser.add_argument("--images", type=Path, required=True, help="folder of pictures")
    parser.add_argument("--limit", type=int, default=5, help="so many pictures, by name")
    parser.add_argument("--depth", type=int, nargs="+", choices=sorted(BLOCKS), default=sorted(BLOCKS))
    parser.add_argument("--proposals", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        need_detectron2()
        files = sorted(path for path in args.images.glob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
        if not files:
            raise InputError("no .jpg or .png in this folder", file=args.images)
        images = [read_image(path) for path in files[: args.limit]]
        found = [compare(images, depth=depth, proposals=args.proposals) for depth in args.depth]
    except InputError as error:
        sys.exit(str(error))
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        for each in found:
            show(each)
    sys.exit(0 if all(each["equal"] for each in found) else 1)


if __name__ == "__main__":
    main()
