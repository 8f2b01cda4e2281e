"""Predictions for proposals, the rules by which some become regions, and the base of detectors."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from capgrade.boxes import decode_boxes, nms_batch, nms_per_class, take_rows
from capgrade.pictures.decode import Prepare
from capgrade.pictures.picture import Picture
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions


@dataclasses.dataclass(frozen=True)
class DescribedProposals:
    """A model's predictions for the R proposals of a picture, float32; or of B pictures, padded to
    the largest R, with B as the first axis. Boxes are in network pixels.

    Class 0 is background and attribute 0 is none, as in the Caffe model and MILVLG's conversion.
    """

    boxes: Tensor  # (R, 4) x1 y1 x2 y2, by falling objectness, not regressed
    features: Tensor  # (R, D), >= 0
    classes: Tensor  # (R, n_classes + 1) probabilities
    deltas: Tensor | None = None  # (R, 4 (n_classes + 1)), for a rule that regresses boxes
    attributes: Tensor | None = None  # (R, n_attributes + 1) probabilities


Selection = tuple[Tensor, Tensor, Tensor]  # boxes (B, K, 4), rows (B, K), how many count (B,)


@dataclasses.dataclass(frozen=True)
class SelectionRule:
    """Regions with a class score >= confidence after suppression, at least min_boxes where there
    are as many proposals, at most max_boxes. Source: tools/generate_tsv.py, bottom-up-attention."""

    min_boxes: int
    max_boxes: int
    confidence: float = 0.2
    nms_threshold: float = 0.3
    # A rule that regresses moves boxes by the deltas of their class; else none are computed.
    regresses: ClassVar[bool] = False

    def choose(
        self,
        batch: DescribedProposals,
        valid: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
    ) -> Selection:
        """Boxes in pixels of pictures of `sizes` (width, height), their rows and their numbers;
        `valid` (B, R) is False for padding."""
        boxes = batch.boxes / batch.boxes.new_tensor(scales)[:, None, None]
        # This is max_conf upstream: a region's best score over the classes in which its box, not
        # regressed, survives suppression.
        foreground = batch.classes[..., 1:]
        keep = nms_per_class(boxes, foreground, self.nms_threshold, valid)
        scores = foreground.masked_fill(~keep, 0).amax(dim=2)
        # If min_boxes to max_boxes regions pass, those are kept in the order of proposals. Else the
        # best min_boxes or max_boxes are kept by falling score, and of equal scores the earlier row
        # (upstream their order is arbitrary). So with 36/36 rows are sorted unless just 36 pass.
        passing = (scores >= self.confidence) & valid
        number = passing.sum(1)
        within = (number >= self.min_boxes) & (number <= self.max_boxes)
        in_order = (~passing).byte().argsort(dim=1, stable=True)
        by_score = scores.masked_fill(~valid, -torch.inf)
        by_score = by_score.argsort(dim=1, descending=True, stable=True)
        rows = torch.where(within[:, None], in_order, by_score)[:, : self.max_boxes]
        count = torch.minimum(number.clamp(self.min_boxes, self.max_boxes), valid.sum(1))
        return take_rows(boxes, rows), rows, count


def select_regions(
    proposals: Sequence[DescribedProposals],
    scales: Sequence[float],
    sizes: Sequence[tuple[int, int]],
    image_ids: Sequence[str],
    rule: RegionRule,
) -> list[Regions]:
    """The regions that the rule keeps of B pictures, perhaps none of one; scales are network pixels
    per picture pixel, sizes (width, height).

    A region has its likeliest class and attribute, other than background and none. The number of
    copies from the device does not depend on B.
    """
    padded: dict[str, Tensor] = {}
    for field in dataclasses.fields(DescribedProposals):
        parts = [getattr(picture, field.name) for picture in proposals]
        if parts[0] is not None:
            padded[field.name] = pad_sequence(parts, batch_first=True)
    batch = DescribedProposals(**padded)
    numbers = torch.tensor([len(picture.boxes) for picture in proposals], device=batch.boxes.device)
    valid = torch.arange(batch.boxes.shape[1], device=numbers.device) < numbers[:, None]
    boxes, rows, count = rule.choose(batch, valid, scales, sizes)
    columns = {"boxes": boxes, "features": take_rows(batch.features, rows)}
    columns["confidences"], classes = take_rows(batch.classes, rows)[..., 1:].max(dim=2)
    columns["classes"] = classes.int()
    if batch.attributes is not None:
        confidences, attributes = take_rows(batch.attributes, rows)[..., 1:].max(dim=2)
        columns["attribute_confidences"] = confidences
        columns["attributes"] = attributes.int()
    arrays = {name: column.cpu().numpy() for name, column in columns.items()}
    regions = []
    for b, n in enumerate(count.tolist()):
        kept = {name: array[b, :n].copy() for name, array in arrays.items()}
        width, height = sizes[b]
        regions.append(Regions(image_ids[b], width, height, **kept))
    return regions


@dataclasses.dataclass(frozen=True)
class AirsplayRule:
    """`count` regions by falling score of their best class other than background, however low.

    Boxes are regressed for that class and suppress each other across classes at threshold 0.3, 0.4,
    ... 0.9 until `count` are left, or at 0.9 fewer. Features are those of the proposal, not of the
    regressed box. Source: demo/detectron2_mscoco_proposal_maxnms.py,
    airsplay/py-bottom-up-attention, which drops boxes without area but keeps their features.
    """

    count: int = 36
    regresses: ClassVar[bool] = True

    def choose(
        self,
        batch: DescribedProposals,
        valid: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
    ) -> Selection:
        scores, classes = batch.classes[..., 1:].max(dim=2)
        # Boxes are moved in picture pixels. Each axis has its own factor, because the resized
        # picture is rounded to pixels.
        to_pixels = [
            [side / max(1, round(side * scale)) for side in size] * 2
            for size, scale in zip(sizes, scales, strict=True)
        ]
        assert batch.deltas is not None  # computed for a rule that `regresses`
        in_pixels = batch.boxes * batch.boxes.new_tensor(to_pixels)[:, None]
        deltas = batch.deltas.unflatten(2, (batch.classes.shape[2], 4))
        deltas = deltas.gather(2, (classes + 1)[..., None, None].expand(-1, -1, 1, 4))[:, :, 0]
        moved = decode_boxes(in_pixels.flatten(0, 1), deltas.flatten(0, 1), caffe=False)
        ends = in_pixels.new_tensor([[*size, *size] for size in sizes])[:, None]
        boxes = torch.minimum(moved.view_as(in_pixels), ends).clamp(min=0)
        rows, count = self.suppress(boxes, scores, valid)
        has_area = take_rows((boxes[..., 2:] > boxes[..., :2]).all(dim=2), rows)
        has_area &= torch.arange(rows.shape[1], device=rows.device) < count[:, None]
        # Rows of boxes with an area come first, and only these are counted.
        rows = rows.gather(1, (~has_area).byte().argsort(dim=1, stable=True))
        return take_rows(boxes, rows), rows, has_area.sum(1)

    def suppress(self, boxes: Tensor, scores: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of each picture (B, K), of which the first `count` (B,) are kept, at the picture's
        first threshold that leaves enough."""
        rows = count = scores.new_zeros(len(scores), dtype=torch.long)
        for k, threshold in enumerate(np.arange(0.3, 1.0, 0.1)):
            more_rows, number = nms_batch(
                boxes, scores, float(threshold), valid, self.count, caffe=False
            )
            enough = count >= self.count
            rows = more_rows if k == 0 else torch.where(enough[:, None], rows, more_rows)
            count = torch.where(enough, count, number)
            if bool((count >= self.count).all()):
                break
        return rows, count


RegionRule = SelectionRule | AirsplayRule


class Detector(ABC):
    """A model with its weights and its device.

    `prepare` takes a uint8 (H, W, 3) RGB picture and gives float32 (3, h, w) and the scale h / H;
    it is picklable and holds no weights, so that worker processes can run it.
    """

    name: str  # goes into the manifest
    device: torch.device
    n_features: int
    classes: Sequence[str] | None  # names of the class numbers, where the weights have them
    attributes: Sequence[str] | None
    prepare: Prepare

    def expect(self, pictures: Sequence[Picture]) -> None:  # noqa: B027  # few detectors use it
        """Called once before the first batch with all pictures."""

    @abstractmethod
    def find_regions(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        """The regions of `detect`, which calls it and reports a lack of memory."""

    @torch.inference_mode()
    def detect(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        """The regions, not yet checked, of B prepared pictures of one size, (B, 3, h, w) on the
        CPU. `sizes` are the original (width, height). InputError where the device's memory does not
        hold the batch."""
        try:
            return self.find_regions(images, scales, sizes, image_ids)
        except torch.OutOfMemoryError as error:
            shape = tuple(images.shape[2:])
            problem = f"{self.device} is out of memory with {len(images)} pictures of {shape}"
            remedy = "lower regions.batch or regions.proposals; run again to go on"
            raise InputError(problem, remedy=remedy) from error


class ProposalDetector(Detector):
    """A detector that describes proposals, some of which its rule keeps."""

    rule: RegionRule

    @abstractmethod
    def describe_proposals(
        self, images: Tensor, scales: Sequence[float]
    ) -> list[DescribedProposals]:
        """The model's predictions for every proposal of each picture."""

    def find_regions(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        proposals = self.describe_proposals(images, scales)
        return select_regions(proposals, scales, sizes, image_ids, self.rule)
