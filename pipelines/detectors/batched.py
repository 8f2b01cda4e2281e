"""The bottom-up model as a detector: its weights, its selection rule, its device and how fast it may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.preprocess import preprocess, resize_scale
from capgrade.pipelines.detectors.resnet import fold_norms
from capgrade.pipelines.detectors.selection import DescribedProposals, Detections, Prepare, RegionRule, select_regions
from capgrade.schemas.devices import Precision, autocast, precision_of
from capgrade.schemas.errors import InputError


@dataclasses.dataclass(frozen=True)
class CaffePrepare:
    """`preprocess` with the sides of a model, for worker processes."""

    short: int
    long: int

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        return preprocess(rgb, short=self.short, long=self.long)

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the prepared picture."""
        scale = resize_scale(height, width, short=self.short, long=self.long)
        return max(1, round(height * scale)), max(1, round(width * scale))


class BottomUpDetector:
    """A `Detector` over `BottomUp`; the model is moved to `device` and kept.

    precision: as `precision_of` has it; bf16: convolutions by autocast, while the layers that give scores and boxes
    work in float32. Features are float32.
    proposals: fewer or more than the model was made with, which changes which regions there are to choose from,
    and no feature of those that stay. compile: the backbone and res5 by torch.compile.
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
        channels_last: bool = False,
        compile: bool = False,
        proposals: int | None = None,
    ) -> None:
        self.name, self.classes, self.attributes, self.rule = name, classes, attributes, rule
        self.device, self.precision = torch.device(device), precision
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        if proposals is not None:
            wanted = dataclasses.replace(model.config.proposals, after_nms=proposals)
            model.config = dataclasses.replace(model.config, proposals=wanted)
        fold_norms(model)
        self.model = model.eval().to(self.device).to(memory_format=self.format)  # type: ignore[call-overload]
        self.n_features = model.config.n_features
        self.prepare: Prepare = CaffePrepare(model.config.short_side, model.config.long_side)
        if compile:
            model.backbone.compile(dynamic=True)
            model.head.res5.compile(dynamic=True)

    @torch.inference_mode()
    def detect(self, images: Tensor, scales: Sequence[float], sizes: Sequence[tuple[int, int]]) -> list[Detections]:
        """Raises InputError when the device's memory does not hold the batch."""
        try:
            return select_regions(self.regions(images, scales), scales, sizes, self.rule)
        except torch.OutOfMemoryError as error:
            problem = f"{self.device} is out of memory with {len(images)} pictures of {tuple(images.shape[2:])}"
            raise InputError(problem, remedy="lower regions.batch or --proposals; run again to go on") from error

    def regions(self, images: Tensor, scales: Sequence[float]) -> list[DescribedProposals]:
        """What the model says of every proposal, before the rule."""
        images = images.to(self.device, non_blocking=True).contiguous(memory_format=self.format)
        with self.arithmetic():
            return self.model(images, scales, deltas=self.rule.regresses)

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The precision of what the model computes while the block runs."""
        with precision_of(self.precision, self.device), autocast(self.precision, self.device):
            yield
