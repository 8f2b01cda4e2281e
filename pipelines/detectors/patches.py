"""Patches of a vision transformer in place of a detector's regions: pooled over a grid, or over
given boxes."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.devices import autocast, precision_of
from capgrade.pipelines.detectors.selection import Detector
from capgrade.pretrained import from_pretrained, load_weights
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import Precision
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions

_LEAST = 1e-3  # of a patch: a box without an area is pooled over the patch that it lies in
_REMEDY = (
    "name a vision transformer of transformers, such as DINOv2, CLIP or SigLIP 2 of one resolution"
)


@dataclasses.dataclass(frozen=True)
class PatchPrepare:
    """uint8 (H, W, 3) RGB -> float32 (3, side, side) as the model's image processor has it, and the
    scale side / H.

    The whole picture is resized to the square: nothing is cut off, as every box must lie in what
    the model sees.
    """

    processor: Any
    side: int

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        square = {"height": self.side, "width": self.side}
        made = self.processor(
            rgb,
            size=square,
            do_center_crop=False,
            input_data_format="channels_last",
            return_tensors="np",
        )
        return (
            torch.from_numpy(made["pixel_values"][0].astype(np.float32)),
            self.side / rgb.shape[0],
        )

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the prepared picture."""
        return self.side, self.side


class PatchDetector(Detector):
    """A vision transformer of transformers: a region is the mean of the patches that its box
    covers, weighted by area.

    Patches are the last hidden states [patches, D], less what stands before them (CLS, registers).
    Boxes are the n x n cells of a grid over the picture, or those that a regions folder has for the
    same image id. `model` is a folder or a hub id. Raises InputError for a model that cannot be
    loaded or has no square of patches, a number of boxes that is no square, and, while detecting,
    for an image that the folder lacks.
    """

    name = "patches"
    classes: Sequence[str] | None = None
    attributes: Sequence[str] | None = None

    def __init__(
        self,
        model: str,
        boxes: int | Path,
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "float32",
    ) -> None:
        whole = load_weights("vision transformer", model)
        self.model = getattr(whole, "vision_model", whole).eval().to(device)
        self.device, self.precision = torch.device(device), precision
        processor = from_pretrained(
            "AutoImageProcessor", "image processor of", model, backend="pil"
        )
        square = processor(
            np.zeros((64, 64, 3), np.uint8), input_data_format="channels_last", return_tensors="np"
        )
        channels, *sides = square["pixel_values"][0].shape
        if channels != 3 or len(sides) != 2 or sides[0] != sides[1]:
            problem = (
                f"the image processor of '{model}' gives {[channels, *sides]} of a square picture"
            )
            raise InputError(problem, remedy=_REMEDY)
        self.prepare = PatchPrepare(processor, sides[0])
        self.store = RegionStore(boxes) if isinstance(boxes, Path) else None
        self.rows: dict[str, int] = {}  # of the store, by image id
        self.grid = 0 if isinstance(boxes, Path) else math.isqrt(boxes)
        if not isinstance(boxes, Path) and self.grid**2 != boxes:
            raise InputError(
                f"{boxes} boxes are no square grid",
                remedy="give --boxes 36 or another square number",
            )
        patch = getattr(self.model.config, "patch_size", None)
        if not isinstance(patch, int) or not hasattr(self.model.config, "hidden_size"):
            raise InputError(f"model '{model}' has no square patches", remedy=_REMEDY)
        self.per_side = self.prepare.side // patch
        self.n_features = self.model.config.hidden_size

    def patches(self, images: Tensor) -> Tensor:
        """Hidden states of the patches, row by row: (B, 3, side, side) -> float32 (B, rows,
        columns, D)."""
        with precision_of(self.precision, self.device), autocast(self.precision, self.device):
            hidden = self.model(
                pixel_values=images.to(self.device, non_blocking=True)
            ).last_hidden_state
        before = hidden.shape[1] - self.per_side**2
        if before < 0:
            raise InputError(
                f"{hidden.shape[1]} hidden states, {self.per_side**2} patches", remedy=_REMEDY
            )
        return hidden[:, before:].float().unflatten(1, (self.per_side, self.per_side))

    def found(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        out = []
        for k, (patches, size) in enumerate(zip(self.patches(images), sizes, strict=True)):
            boxes = (
                grid_boxes(self.grid, size)
                if self.store is None
                else self._given(image_ids[k], size)
            )
            features = pooled(patches, torch.from_numpy(boxes).to(self.device), size).cpu().numpy()
            out.append(Regions(image_ids[k], *size, boxes, features))
        return out

    def expect(self, images: Mapping[str, str | None]) -> None:
        """InputError where given boxes lack an image."""
        if self.store is not None:
            match = self.store.match(images)
            if match.missing:
                remedy = "extract the boxes of these pictures"
                raise InputError(match.lines("boxes")[0], file=self.store.folder, remedy=remedy)
            self.rows = match.numbers

    def _given(self, image_id: str, size: tuple[int, int]) -> np.ndarray:
        assert self.store is not None  # where there is no grid
        found = self.store[self.rows[image_id]]
        if found.boxes is None:
            problem, remedy = f"image {image_id!r} has no boxes", "give regions that have boxes"
            raise InputError(problem, file=self.store.folder, remedy=remedy)
        if found.width is not None and (found.width, found.height) != size:
            problem = (
                f"boxes of image {image_id!r} are of {found.width} x {found.height} pixels, the"
                " picture has "
            )
            problem += f"{size[0]} x {size[1]}"
            raise InputError(
                problem, file=self.store.folder, remedy="give the pictures that the boxes are of"
            )
        return np.array(found.boxes)


def grid_boxes(n: int, size: tuple[int, int]) -> np.ndarray:
    """The n x n equal cells of a picture of `size` (width, height), row by row: float32 (n^2, 4) x1
    y1 x2 y2."""
    x, y = (np.linspace(0, side, n + 1) for side in size)
    rows, columns = (part.ravel() for part in np.indices((n, n)))
    return np.stack([x[columns], y[rows], x[columns + 1], y[rows + 1]], axis=1).astype(np.float32)


def pooled(patches: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The mean of the patches under each box, weighted by the area that lies in it: (rows, columns,
    D), (K, 4) in pixels of a picture of `size` (width, height) -> float32 (K, D)."""
    rows, columns = patches.shape[:2]
    width, height = size
    across = _overlaps(boxes[:, 0] * columns / width, boxes[:, 2] * columns / width, columns)
    down = _overlaps(boxes[:, 1] * rows / height, boxes[:, 3] * rows / height, rows)
    return torch.einsum("kr,kc,rcd->kd", down, across, patches)


def _overlaps(low: Tensor, high: Tensor, n: int) -> Tensor:
    """The share of each interval that lies in each of n unit cells: (K,), (K,) -> (K, n), rows sum
    to 1."""
    low = low.clamp(0, n - _LEAST)
    high = torch.maximum(high.clamp(max=n), low + _LEAST)
    cells = torch.arange(n, device=low.device)
    shared = (torch.minimum(high[:, None], cells + 1) - torch.maximum(low[:, None], cells)).clamp(
        min=0
    )
    return shared / shared.sum(dim=1, keepdim=True)
