"""detectron2's own models as a detector: a config of its model zoo or a file, with a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capgrade.pipelines.detectors.base import Prepare
from capgrade.pipelines.detectors.detectron_zoo import load_model, need_detectron2, read_config
from capgrade.pipelines.detectors.output import Regions
from capgrade.pipelines.detectors.selection import Detections, Rule, select_regions
from capgrade.schemas.errors import InputError


@dataclasses.dataclass(frozen=True)
class DetectronPrepare:
    """DefaultPredictor's: 8-bit pixels resized by Pillow, in the model's channel order; the model takes its mean."""

    short: int
    long: int
    channels: str  # RGB or BGR

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        from detectron2.data.transforms import ResizeShortestEdge

        image = np.ascontiguousarray(rgb[:, :, ::-1]) if self.channels == "BGR" else rgb
        resize = ResizeShortestEdge([self.short, self.short], self.long).get_transform(image)
        shown = resize.apply_image(image).transpose(2, 0, 1)
        return torch.from_numpy(shown.astype(np.float32)), shown.shape[1] / rgb.shape[0]


class DetectronDetector:
    """A `Detector` over a Faster or Mask R-CNN of detectron2 with one box head: C4, DC5 or FPN; float32.

    A region is a proposal with the vector its box head predicts from: res5 averaged (C4), the last fully connected
    layer (others). There are no attributes. Raises InputError for what detectron2 cannot build or load whole.
    """

    name = "detectron2"
    attributes: Sequence[str] | None = None

    def __init__(
        self,
        config: str,
        weights: str | Path,
        rule: Rule,
        *,
        device: torch.device | str = "cpu",
        proposals: int | None = None,
    ) -> None:
        need_detectron2()
        self.rule, self.device = rule, torch.device(device)
        self.config = read_config(config, weights, str(self.device), proposals)
        self.model = load_model(self.config)
        self.n_features = _n_features(self.model.roi_heads)
        self.classes = _class_names(self.config)
        sides = self.config.INPUT
        self.prepare: Prepare = DetectronPrepare(sides.MIN_SIZE_TEST, sides.MAX_SIZE_TEST, sides.FORMAT)

    @torch.inference_mode()
    def detect(self, images: Tensor, scales: Sequence[float], sizes: Sequence[tuple[int, int]]) -> list[Detections]:
        """Raises InputError when the device's memory does not hold the batch."""
        try:
            return select_regions(self.regions(images), scales, sizes, self.rule)
        except torch.OutOfMemoryError as error:
            problem = f"{self.device} is out of memory with {len(images)} pictures of {tuple(images.shape[2:])}"
            raise InputError(problem, remedy="lower regions.batch or --proposals; run again to go on") from error

    def regions(self, images: Tensor) -> list[Regions]:
        """What the model says of every proposal, before the rule."""
        batch = self.model.preprocess_image([{"image": image} for image in images])
        features = self.model.backbone(batch.tensor)
        proposals = self.model.proposal_generator(batch, features, None)[0]
        vectors = box_vectors(self.model.roi_heads, features, [each.proposal_boxes for each in proposals])
        return as_regions(self.model.roi_heads.box_predictor, vectors, proposals)


def box_vectors(heads: Any, features: dict[str, Tensor], boxes: list[Any]) -> Tensor:
    """What the box predictor gets: (R, D) for all pictures, in order."""
    if hasattr(heads, "res5"):
        shared = heads._shared_roi_transform([features[name] for name in heads.in_features], boxes)
        return shared.mean(dim=(2, 3))
    return heads.box_head(heads.box_pooler([features[name] for name in heads.box_in_features], boxes))


def as_regions(predictor: Any, vectors: Tensor, proposals: list[Any]) -> list[Regions]:
    """detectron2's predictions as ours: background first instead of last, deltas without their weights."""
    logits, deltas = predictor(vectors)
    counts = [len(each) for each in proposals]
    classes = logits.softmax(dim=1).roll(1, dims=1)
    moves = deltas.unflatten(1, (-1, 4)) / deltas.new_tensor(predictor.box2box_transform.weights)
    moves = moves.expand(-1, classes.shape[1] - 1, -1).flatten(1)  # of one box for all classes too
    columns = (vectors, classes, functional.pad(moves, (4, 0)))
    rows = zip(proposals, *(column.split(counts) for column in columns), strict=True)
    return [
        Regions(each.proposal_boxes.tensor, each.objectness_logits, vector, scores, delta, None)
        for each, vector, scores, delta in rows
    ]


def _n_features(heads: Any) -> int:
    return heads.res5[-1].out_channels if hasattr(heads, "res5") else heads.box_head.output_shape.channels


def _class_names(cfg: Any) -> Sequence[str] | None:
    from detectron2.data import MetadataCatalog

    name = cfg.DATASETS.TEST[0] if cfg.DATASETS.TEST else ""
    names = MetadataCatalog.get(name).get("thing_classes") if name else None
    return names if names and len(names) == cfg.MODEL.ROI_HEADS.NUM_CLASSES else None
