"""Patches of a vision transformer in place of a detector's regions: pooled over a grid, or over
given boxes."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.devices import autocast, precision_of
from capgrade.pictures.picture import Picture
from capgrade.pipelines.detectors.selection import Detector
from capgrade.pretrained import from_pretrained, load_weights
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import Precision
from capgrade.schemas.regions import Regions, RegionStore

_LEAST = 1e-3  # patches: the side of a box without area, so that it is pooled over its own patch
_REMEDY = (
    "name a vision transformer of transformers, such as DINOv2, CLIP or SigLIP 2 of one resolution"
)


@dataclasses.dataclass(frozen=True)
class PatchPrepare:
    """uint8 (H, W, 3) RGB -> float32 (3, side, side) by the model's image processor, and the scale
    side / H.

    The picture is resized to a square and not cropped, because the model must see every box.
    """

    processor: Any
    side: int

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        square = {"height": self.side, "width": self.side}
        batch = self.processor(
            rgb,
            size=square,
            do_center_crop=False,
            input_data_format="channels_last",
            return_tensors="np",
        )
        pixels = torch.from_numpy(batch["pixel_values"][0].astype(np.float32))
        return pixels, self.side / rgb.shape[0]

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the prepared picture."""
        return self.side, self.side


class PatchDetector(Detector):
    """A vision transformer of transformers: a region is the area-weighted mean of the patches (last
    hidden states without CLS and registers) that its box covers.

    Boxes are the n x n cells of a grid over the picture, or those of the same image in a regions
    folder. `model` is a folder or a hub id. Raises InputError for a model that cannot be loaded or
    has no square of patches, a number of boxes that is no square, and an image without boxes.
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
        loaded = load_weights("vision transformer", model)
        self.model = getattr(loaded, "vision_model", loaded).eval().to(device)
        self.device, self.precision = torch.device(device), precision
        kind = "AutoImageProcessor"
        processor = from_pretrained(kind, "image processor of", model, backend="pil")
        black = np.zeros((64, 64, 3), np.uint8)
        batch = processor(black, input_data_format="channels_last", return_tensors="np")
        channels, *sides = batch["pixel_values"][0].shape
        if channels != 3 or len(sides) != 2 or sides[0] != sides[1]:
            shape = [channels, *sides]
            problem = f"the image processor of '{model}' gives {shape} of a square picture"
            raise InputError(problem, remedy=_REMEDY)
        self.prepare = PatchPrepare(processor, sides[0])
        self.store = RegionStore(boxes) if isinstance(boxes, Path) else None
        self.rows: dict[str, int] = {}  # image id -> its row in the store
        self.grid = 0 if isinstance(boxes, Path) else math.isqrt(boxes)
        if not isinstance(boxes, Path) and self.grid**2 != boxes:
            remedy = "give --boxes 36 or another square number"
            raise InputError(f"{boxes} boxes are no square grid", remedy=remedy)
        patch = getattr(self.model.config, "patch_size", None)
        if not isinstance(patch, int) or not hasattr(self.model.config, "hidden_size"):
            raise InputError(f"model '{model}' has no square patches", remedy=_REMEDY)
        self.per_side = self.prepare.side // patch
        self.n_features = self.model.config.hidden_size

    def patch_states(self, images: Tensor) -> Tensor:
        """Hidden states of the patches, row by row: (B, 3, side, side) -> float32 (B, rows,
        columns, D)."""
        images = images.to(self.device, non_blocking=True)
        with precision_of(self.precision, self.device), autocast(self.precision, self.device):
            hidden = self.model(pixel_values=images).last_hidden_state
        n_patches = self.per_side**2
        first = hidden.shape[1] - n_patches
        if first < 0:
            problem = f"{hidden.shape[1]} hidden states, {n_patches} patches"
            raise InputError(problem, remedy=_REMEDY)
        return hidden[:, first:].float().unflatten(1, (self.per_side, self.per_side))

    def find_regions(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        regions = []
        for image_id, patches, size in zip(
            image_ids, self.patch_states(images), sizes, strict=True
        ):
            if self.store is None:
                boxes = grid_boxes(self.grid, size)
            else:
                boxes = self._read_boxes(self.store, image_id, size)
            features = pool_patches(patches, torch.from_numpy(boxes).to(self.device), size)
            regions.append(Regions(image_id, *size, boxes, features.cpu().numpy()))
        return regions

    def expect(self, pictures: Sequence[Picture]) -> None:
        """InputError where the folder of boxes lacks an image."""
        if self.store is not None:
            match = self.store.match({picture.image_id: picture.path for picture in pictures})
            if match.missing:
                remedy = "extract the boxes of these pictures"
                raise InputError(match.lines("boxes")[0], file=self.store.folder, remedy=remedy)
            self.rows = match.numbers

    def _read_boxes(self, store: RegionStore, image_id: str, size: tuple[int, int]) -> np.ndarray:
        regions = store[self.rows[image_id]]
        if regions.boxes is None:
            problem, remedy = f"image {image_id!r} has no boxes", "give regions that have boxes"
            raise InputError(problem, file=store.folder, remedy=remedy)
        if regions.width is not None and (regions.width, regions.height) != size:
            problem = (
                f"boxes of image {image_id!r} are of {regions.width} x {regions.height} pixels, the"
                f" picture has {size[0]} x {size[1]}"
            )
            remedy = "give the pictures that the boxes are of"
            raise InputError(problem, file=store.folder, remedy=remedy)
        return np.array(regions.boxes)


def grid_boxes(n: int, size: tuple[int, int]) -> np.ndarray:
    """The n x n equal cells of a picture of `size` (width, height), row by row: float32 (n^2, 4) x1
    y1 x2 y2."""
    x, y = (np.linspace(0, side, n + 1) for side in size)
    rows, columns = (part.ravel() for part in np.indices((n, n)))
    return np.stack([x[columns], y[rows], x[columns + 1], y[rows + 1]], axis=1).astype(np.float32)


def pool_patches(patches: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
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
    shared = torch.minimum(high[:, None], cells + 1) - torch.maximum(low[:, None], cells)
    shared = shared.clamp(min=0)
    return shared / shared.sum(dim=1, keepdim=True)
