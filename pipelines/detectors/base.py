"""What every detector offers: pictures prepared one by one, then described in batches of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from capgrade.pipelines.detectors.selection import Detections

Prepare = Callable[[np.ndarray], tuple[Tensor, float]]


class Detector(Protocol):
    """A model with its weights, its selection rule and its device.

    `prepare` takes a uint8 (H, W, 3) RGB picture and gives float32 (3, h, w) and the scale h / H; it is picklable
    and holds no weights, so that worker processes can run it. `detect` takes pictures of one prepared size,
    (B, 3, h, w) on the CPU, their scales and their original (width, height), and gives their regions in order.
    """

    name: str  # goes into the manifest
    n_features: int
    classes: Sequence[str] | None  # names of the class numbers, where the weights came with them
    attributes: Sequence[str] | None
    prepare: Prepare

    def detect(self, images: Tensor, scales: Sequence[float], sizes: Sequence[tuple[int, int]]) -> list[Detections]:
        """As the class says: one `Detections` per picture."""
