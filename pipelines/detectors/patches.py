"""The map of a backbone, such as the patches of a vision transformer, in place of a detector's
regions: pooled over a grid, or over given boxes."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capgrade.devices import autocast, precision_of
from capgrade.pictures.picture import Picture
from capgrade.pipelines.detectors.backbones import load_backbone
from capgrade.pipelines.detectors.selection import Detector
from capgrade.schemas.block import Precision
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions, RegionStore

_LEAST = 1e-3  # patches: the side of a box without area, so that it is pooled over its own patch


@dataclasses.dataclass(frozen=True)
class _PatchPrepare:
    """uint8 (H, W, 3) RGB -> float32 (3, side, side), and the scale side / H."""

    backbone_prepare: Callable[[np.ndarray], Tensor]
    side: int

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        return self.backbone_prepare(rgb), self.side / rgb.shape[0]

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the prepared picture."""
        return self.side, self.side


class PatchDetector(Detector):
    """The last map of a backbone: a region is the area-weighted mean of the cells of the map, or
    patches of a vision transformer, that its box covers.

    Boxes are the n x n cells of a grid over the picture, or those of the same image in a regions
    folder. `model` is as `load_backbone` takes it. Raises InputError for a model that cannot be
    loaded or has no square map, a number of boxes that is no square, and an image without boxes.
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
        self.backbone = load_backbone(model)
        self.backbone.network.to(device)
        self.device, self.precision = torch.device(device), precision
        self.prepare = _PatchPrepare(self.backbone.prepare, self.backbone.side)
        self.store = RegionStore(boxes) if isinstance(boxes, Path) else None
        self.rows: dict[str, int] = {}  # image id -> its row in the store
        self.grid = 0 if isinstance(boxes, Path) else math.isqrt(boxes)
        if not isinstance(boxes, Path) and self.grid**2 != boxes:
            remedy = "give --boxes 36 or another square number"
            raise InputError(f"{boxes} boxes are no square grid", remedy=remedy)
        self.n_features = self.backbone.n_features

    def make_map(self, images: Tensor) -> Tensor:
        """The backbone's map: (B, 3, side, side) -> float32 (B, rows, columns, D)."""
        images = images.to(self.device, non_blocking=True)
        with precision_of(self.precision, self.device), autocast(self.precision, self.device):
            return self.backbone.make_map(images).float()

    def find_regions(
        self,
        images: Tensor,
        scales: Sequence[float],
        sizes: Sequence[tuple[int, int]],
        image_ids: Sequence[str],
    ) -> list[Regions]:
        regions = []
        for image_id, patches, size in zip(image_ids, self.make_map(images), sizes, strict=True):
            if self.store is None:
                boxes = _grid_boxes(self.grid, size)
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


def _grid_boxes(n: int, size: tuple[int, int]) -> np.ndarray:
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
