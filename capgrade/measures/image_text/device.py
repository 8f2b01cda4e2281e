"""Blocks of a dual encoder on a GPU, as `measures.on_device` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from capgrade.measures.image_text.forms import REFCLIPSCORE, combine_cosines
from capgrade.measures.on_device import OnDevice
from capgrade.measures.sbert.device import SbertOnDevice

if TYPE_CHECKING:
    from capgrade.measures.image_text.fitted import FittedImageText


class ImageTextOnDevice(OnDevice["FittedImageText"]):
    """The product with pictures, and that with the references of RefCLIPScore."""

    def __init__(self, fitted: FittedImageText, device: torch.device) -> None:
        super().__init__(fitted, device)
        self.embeddings = self._to_device(np.asarray(fitted.embeddings))
        self.of_pictures = SbertOnDevice(fitted.of_pictures, device)
        self.of_references = (
            SbertOnDevice(fitted.of_references, device) if fitted.form == REFCLIPSCORE else None
        )

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        picture_cosines = self.of_pictures._cosines(images)
        reference_cosines = (
            None if self.of_references is None else self.of_references._values(images)
        )

        def values(first: int, last: int) -> Tensor:
            references = None if reference_cosines is None else reference_cosines(first, last)
            pictures = picture_cosines(self.embeddings[first:last])
            combined: Tensor = combine_cosines(self.fitted.form, pictures, references)
            return combined

        return values
