"""Blocks of Sentence-BERT on a GPU, as `measures.on_device` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from capgrade.measures.on_device import OnDevice, product
from capgrade.measures.products import ONE

if TYPE_CHECKING:
    from capgrade.measures.sbert.fitted import FittedSbert


class SbertOnDevice(OnDevice["FittedSbert"]):
    """A product in float32, folded over an image's references."""

    def __init__(self, fitted: FittedSbert, device: torch.device) -> None:
        super().__init__(fitted, device)
        self.embeddings = self._to_device(np.asarray(fitted.embeddings))

    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        cosines_of = self._cosines(images)
        return lambda first, last: cosines_of(self.embeddings[first:last])

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.tensor(images, captions).cpu().numpy()

    def tensor(self, images: np.ndarray, captions: np.ndarray) -> Tensor:
        """Cosines of any caption rows, float32 [len(images), len(captions)], on the device."""
        return self._cosines(images)(self.embeddings[self._to_device(captions)])

    def _cosines(self, images: np.ndarray) -> Callable[[Tensor], Tensor]:
        """A function from vectors of captions to their cosines with these images."""
        vectors, start = self.fitted.queries(images)
        queries = self._to_device(vectors)
        owner = self._to_device(np.repeat(np.arange(len(images)), np.diff(start)))

        def cosines_of(targets: Tensor) -> Tensor:
            cosines = product(queries, targets)
            folded = cosines.new_full((len(images), len(targets)), -1.0)
            folded.scatter_reduce_(0, owner[:, None].expand(cosines.shape), cosines, "amax")
            return torch.where(folded > float(ONE), 1.0, folded)

        return cosines_of
