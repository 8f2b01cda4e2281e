"""The quality of a detector on scenes: average precision of its boxes, and accuracy of its classes
and attributes."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from torch.nn import functional

from capgrade.boxes import clip_boxes, decode_boxes, iou, nms_batch
from capgrade.pictures.picture import decode_image
from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.selection import DescribedProposals
from capgrade.schemas.arrow import metadata_of, read_arrow
from capgrade.schemas.errors import InputError

SCORE, NMS_THRESHOLD, MOST = 0.05, 0.5, 100  # detectron2's limits for detections of a picture


@dataclasses.dataclass(frozen=True)
class Truth:
    """The objects of one picture, boxes in pixels of the picture or of the network."""

    boxes: Tensor  # float32 (G, 4)
    classes: Tensor  # int64 (G,), 1 .. n_classes
    attributes: Tensor  # int64 (G,), 1 .. n_attributes

    def rescale(self, scale: float, device: torch.device | str) -> Truth:
        """The objects of the picture resized by `scale`, on a device."""
        boxes = (self.boxes * scale).to(device)
        return Truth(boxes, self.classes.to(device), self.attributes.to(device))


@dataclasses.dataclass(frozen=True)
class Annotated:
    """Pictures of one split with their objects; `classes` and `attributes` are the names of the
    numbers from 1."""

    png: Sequence[pa.Scalar]
    truths: list[Truth]  # boxes in pixels of the picture
    classes: list[str]
    attributes: list[str]

    def __len__(self) -> int:
        return len(self.truths)

    def picture(self, k: int) -> np.ndarray:
        """Picture k, uint8 (H, W, 3) RGB."""
        return decode_image(self.png[k].as_py(), "images.arrow", k)


def read_annotated(folder: Path, split: str) -> Annotated:
    """The scenes of a split: kinds are classes, colours attributes. InputError for a folder of
    other captions."""
    paths = folder / "images.arrow", folder / "scenes.arrow"
    for path in paths:
        if not path.is_file():
            remedy = "give a folder of capgrade captions --source scenes"
            raise InputError("no pictures with known objects here", file=path, remedy=remedy)
    images, scenes = (table.filter(pc.field("split") == split) for table in map(read_arrow, paths))
    if not len(images) or images["image_id"] != scenes["image_id"]:
        remedy = "make them with capgrade captions"
        raise InputError(f"no scenes of split '{split}'", file=folder, remedy=remedy)
    names = metadata_of(scenes.schema)["vocabulary"]
    classes, attributes = names["kinds"], names["colours"]
    truths = [
        Truth(
            torch.tensor([[o["x0"], o["y0"], o["x1"] - 1, o["y1"] - 1] for o in objects]).float(),
            torch.tensor([classes.index(o["kind"]) + 1 for o in objects]),
            torch.tensor([attributes.index(o["colour"]) + 1 for o in objects]),
        )
        for objects in scenes["objects"].to_pylist()
    ]
    return Annotated(images["png"].combine_chunks(), truths, classes, attributes)


@dataclasses.dataclass(frozen=True)
class Precision:
    """AP as COCO defines it, 0..1; recall of 100 proposals at IoU 0.5; and on the true boxes the
    accuracy of classes, and of attributes given the predicted or the true class."""

    pictures: int
    objects: int
    ap: float  # mean over IoU 0.5:0.95
    ap50: float
    ap75: float
    proposal_recall: float
    class_accuracy: float
    attribute_accuracy: float
    attribute_accuracy_true_class: float


@torch.inference_mode()
def measure(model: BottomUp, data: Annotated) -> Precision:
    """The figures of a detector on a split of scenes; COCOeval of pycocotools computes AP."""
    results: list[dict[str, Any]] = []
    n_right = np.zeros(4)
    for k, objects in enumerate(data.truths):
        image, scale = model.config.prepare(data.picture(k))
        truth = objects.rescale(scale, model.anchors.device)
        features = model.backbone(image[None].to(model.anchors.device))
        proposals = model.propose(features, (image.shape[1], image.shape[2]), [scale])
        columns = detections(model.describe(features, proposals)[0], image)
        for box, score, label in zip(*columns, strict=True):
            ids = {"image_id": k + 1, "category_id": label}
            results.append({**ids, "score": score, "bbox": _xywh(box / scale)})
        # In the order of `Precision`: objects with a proposal, and on the true boxes right classes
        # and right attributes by the predicted and by the true class.
        vectors = model.roi_features(features, functional.pad(truth.boxes, (1, 0)))
        predicted = model.head.cls_score(vectors).argmax(dim=1)
        right = [iou(proposals[0][0], truth.boxes).amax(dim=0) >= 0.5, predicted == truth.classes]
        for classes in (predicted, truth.classes):
            attributes = model.head.attribute_logits(vectors, classes)[:, 1:].argmax(dim=1) + 1
            right.append(attributes == truth.attributes)
        n_right += [int(mask.sum()) for mask in right]
    count = sum(len(objects.boxes) for objects in data.truths)
    return Precision(len(data), count, *_coco_ap(data, results), *(n_right / count).tolist())


def detections(
    regions: DescribedProposals, image: Tensor
) -> tuple[np.ndarray, list[float], list[int]]:
    """Regressed boxes (K, 4) in network pixels, scores and classes (from 1), after suppression
    class by class."""
    assert regions.deltas is not None  # `describe` computes them by default.
    boxes = clip_boxes(decode_boxes(regions.boxes, regions.deltas), image.shape[1], image.shape[2])
    # The first axis is the class, so that a batch of suppressions is one for each class.
    boxes = boxes.unflatten(1, (-1, 4))[:, 1:].transpose(0, 1)
    scores = regions.classes[:, 1:].T
    kept, count = nms_batch(boxes, scores, NMS_THRESHOLD, scores > SCORE, MOST)
    is_kept = torch.arange(kept.shape[1], device=kept.device) < count[:, None]
    labels, places = is_kept.nonzero(as_tuple=True)
    rows = kept[labels, places]
    best = scores[labels, rows].argsort(descending=True, stable=True)[:MOST]
    labels, rows = labels[best], rows[best]
    return boxes[labels, rows].cpu().numpy(), scores[labels, rows].tolist(), (labels + 1).tolist()


def _coco_ap(data: Annotated, results: list[dict[str, Any]]) -> tuple[float, float, float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    boxes = [
        (k, int(c), _xywh(box))
        for k, objects in enumerate(data.truths)
        for box, c in zip(objects.boxes, objects.classes, strict=True)
    ]
    truth = [
        {
            "id": i,
            "image_id": k + 1,
            "category_id": c,
            "bbox": box,
            "area": box[2] * box[3],
            "iscrowd": 0,
        }
        for i, (k, c, box) in enumerate(boxes, start=1)
    ]
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress.
        gold = COCO()
        gold.dataset = {
            "images": [{"id": k + 1} for k in range(len(data))],
            "annotations": truth,
            "categories": [{"id": c + 1, "name": name} for c, name in enumerate(data.classes)],
        }
        gold.createIndex()
        if not results:
            return 0.0, 0.0, 0.0
        run = COCOeval(gold, gold.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run.stats[0].item(), run.stats[1].item(), run.stats[2].item()


def _xywh(box: np.ndarray | Tensor) -> list[float]:
    """x, y, width, height of a box that includes both border pixels."""
    x1, y1, x2, y2 = (float(v) for v in box)
    return [x1, y1, x2 - x1 + 1, y2 - y1 + 1]
