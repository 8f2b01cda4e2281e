"""What a model says of a picture, which of its regions are kept, and what every detector offers."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from capgrade.pictures.decode import Prepare
from capgrade.pipelines.detectors.ops import nms_batch, nms_per_class
from capgrade.pipelines.detectors.rpn import decode_boxes, take
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions


@dataclasses.dataclass(frozen=True)
class DescribedProposals:
    """What a model says of one picture's R proposals, or of B pictures' padded to the most, with B
    in front; boxes in network pixels, everything float32.

    classes has 0 = background, attributes 0 = none, as the Caffe model and MILVLG's conversion
    number them.
    """

    boxes: Tensor  # (R, 4) x1 y1 x2 y2, by falling objectness, not regressed
    features: Tensor  # (R, D), >= 0
    classes: Tensor  # (R, n_classes + 1) probabilities
    deltas: Tensor | None = None  # (R, 4 (n_classes + 1)), where a rule regresses boxes
    # (R, n_attributes + 1) probabilities, of a model that has them
    attributes: Tensor | None = None


Chosen = tuple[Tensor, Tensor, Tensor]  # boxes (B, K, 4), rows (B, K), how many count (B,)


@dataclasses.dataclass(frozen=True)
class SelectionRule:
    """Regions with a class score >= confidence after suppression; at least min_boxes, at most
    max_boxes.

    Fewer proposals than min_boxes give fewer regions. Source: tools/generate_tsv.py,
    bottom-up-attention.
    """

    min_boxes: int
    max_boxes: int
    confidence: float = 0.2
    nms_threshold: float = 0.3
    # boxes are moved by the deltas of their class, which are not computed otherwise
    regresses: ClassVar[bool] = False

    def choose(
        self,
        batch: DescribedProposals,
        there: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
    ) -> Chosen:
        """Boxes in pixels of pictures of `sizes` (width, height) and their rows, padded; `there`
        (B, R): no padding."""
        boxes = batch.boxes / batch.boxes.new_tensor(scales)[:, None, None]
        # max_conf: the best score over the classes in which a region survives suppression, by its
        # unregressed box
        foreground = batch.classes[..., 1:]
        keep = nms_per_class(boxes, foreground, self.nms_threshold, there)
        scores = foreground.masked_fill(~keep, 0).amax(dim=2)
        # Between min_boxes and max_boxes pass: those, in proposal order. Otherwise the best
        # min_boxes or max_boxes by falling score, equal ones by row (the upstream order of equal
        # scores is arbitrary). So with 36/36 the rows are sorted unless exactly 36 pass.
        passing = (scores >= self.confidence) & there
        number = passing.sum(1)
        within = (number >= self.min_boxes) & (number <= self.max_boxes)
        in_order = (~passing).byte().argsort(dim=1, stable=True)
        by_score = scores.masked_fill(~there, -torch.inf).argsort(
            dim=1, descending=True, stable=True
        )
        rows = torch.where(within[:, None], in_order, by_score)[:, : self.max_boxes]
        count = torch.minimum(number.clamp(self.min_boxes, self.max_boxes), there.sum(1))
        return take(boxes, rows), rows, count


def select_regions(
    proposals: Sequence[DescribedProposals],
    scales: Sequence[float],
    sizes: Sequence[tuple[int, int]],
    image_ids: Sequence[str],
    rule: RegionRule,
) -> list[Regions]:
    """The rule on the regions of B pictures; scales are network pixels per picture pixel, sizes
    (width, height).

    Of each region the likeliest class and attribute, background and none left out. A picture may
    keep no region. A few copies bring everything back from the device, whatever B.
    """
    padded: dict[str, Tensor | None] = {}
    for name in (field.name for field in dataclasses.fields(DescribedProposals)):
        parts = [getattr(regions, name) for regions in proposals]
        padded[name] = (
            None if any(part is None for part in parts) else pad_sequence(parts, batch_first=True)
        )
    batch = DescribedProposals(**padded)  # type: ignore[arg-type]  # those that are never None are there
    numbers = torch.tensor([len(regions.boxes) for regions in proposals], device=batch.boxes.device)
    there = torch.arange(batch.boxes.shape[1], device=numbers.device) < numbers[:, None]
    boxes, rows, count = rule.choose(batch, there, scales, sizes)
    columns = {"boxes": boxes, "features": take(batch.features, rows)}
    columns["confidences"], classes = take(batch.classes, rows)[..., 1:].max(dim=2)
    columns["classes"] = classes.int()
    if batch.attributes is not None:
        columns["attribute_confidences"], attributes = take(batch.attributes, rows)[..., 1:].max(
            dim=2
        )
        columns["attributes"] = attributes.int()
    arrays = {name: column.cpu().numpy() for name, column in columns.items()}
    pictures = enumerate(zip(image_ids, sizes, count.tolist(), strict=True))
    return [
        Regions(
            image_id, width, height, **{name: array[b, :n].copy() for name, array in arrays.items()}
        )
        for b, (image_id, (width, height), n) in pictures
    ]


@dataclasses.dataclass(frozen=True)
class AirsplayRule:
    """`count` regions by falling score of their best class, background left out; no score is too
    low.

    Boxes are regressed for that class and suppress each other whatever their classes, at 0.3, 0.4,
    ... 0.9 until `count` stay; fewer when even 0.9 leaves fewer. Features are the proposal's, so a
    box and its feature do not match exactly. Of the kept, boxes without area are left out; upstream
    drops the box and keeps its feature. Source: demo/detectron2_mscoco_proposal_maxnms.py,
    airsplay/py-bottom-up-attention.
    """

    count: int = 36
    regresses: ClassVar[bool] = True

    def choose(
        self,
        batch: DescribedProposals,
        there: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
    ) -> Chosen:
        scores, classes = batch.classes[..., 1:].max(dim=2)
        # Moved for their class, in picture pixels; both sides end at the picture's.
        to_pixels = [
            [side / max(1, round(side * scale)) for side in size] * 2
            for size, scale in zip(sizes, scales, strict=True)
        ]
        assert batch.deltas is not None  # computed for a rule that `regresses`
        placed = batch.boxes * batch.boxes.new_tensor(to_pixels)[:, None]
        deltas = batch.deltas.unflatten(2, (batch.classes.shape[2], 4))
        deltas = deltas.gather(2, (classes + 1)[..., None, None].expand(-1, -1, 1, 4))[:, :, 0]
        moved = decode_boxes(placed.flatten(0, 1), deltas.flatten(0, 1), caffe=False).view_as(
            placed
        )
        ends = placed.new_tensor([[*size, *size] for size in sizes])[:, None]
        boxes = torch.minimum(moved, ends).clamp(min=0)
        rows, count = self.kept(boxes, scores, there)
        good = take((boxes[..., 2:] > boxes[..., :2]).all(dim=2), rows)
        good &= torch.arange(rows.shape[1], device=rows.device) < count[:, None]
        # those with an area first
        rows = rows.gather(1, (~good).byte().argsort(dim=1, stable=True))
        return take(boxes, rows), rows, good.sum(1)

    def kept(self, boxes: Tensor, scores: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of each picture, (B, K), and how many count (B,), at its first threshold that leaves
        enough."""
        rows = count = scores.new_zeros(len(scores), dtype=torch.long)
        for k, threshold in enumerate(np.arange(0.3, 1.0, 0.1)):
            looser, number = nms_batch(
                boxes, scores, float(threshold), there, self.count, caffe=False
            )
            enough = count >= self.count
            rows = looser if k == 0 else torch.where(enough[:, None], rows, looser)
            count = torch.where(enough, count, number)
            if bool((count >= self.count).all()):
                break
        return rows, count


RegionRule = SelectionRule | AirsplayRule  # which regions of each picture are kept


class Detector(ABC):
    """A model with its weights and its device.

    `prepare` takes a uint8 (H, W, 3) RGB picture and gives float32 (3, h, w) and the scale h / H;
    it is picklable and holds no weights, so that worker processes can run it.
    """

    name: str  # goes into the manifest
    device: torch.device
    n_features: int
    classes: Sequence[str] | None  # names of the class numbers, where the weights came with them
    attributes: Sequence[str] | None
    prepare: Prepare

    def expect(self, images: Mapping[str, str | None]) -> None:  # noqa: B027  # most need not know
        """Told once which images will come, each with its file where it is known."""

    @abstractmethod
    def found(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        """As `detect`, where memory suffices."""

    @torch.inference_mode()
    def detect(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        """The regions, not yet checked, of each picture of one prepared size: (B, 3, h, w) on the
        CPU, with their scales, original (width, height) and ids, which given boxes go by.
        InputError when the device's memory does not hold the batch."""
        try:
            return self.found(images, scales, sizes, image_ids)
        except torch.OutOfMemoryError as error:
            problem = (
                f"{self.device} is out of memory with {len(images)} pictures of"
                f" {tuple(images.shape[2:])}"
            )
            raise InputError(
                problem, remedy="lower regions.batch or regions.proposals; run again to go on"
            ) from error


class ProposalDetector(Detector):
    """A detector that describes proposals, of which its rule keeps some."""

    rule: RegionRule

    @abstractmethod
    def regions(self, images: Tensor, scales: Sequence[float]) -> list[DescribedProposals]:
        """What the model says of every proposal, before the rule."""

    def found(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        return select_regions(self.regions(images, scales), scales, sizes, image_ids, self.rule)
