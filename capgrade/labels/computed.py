"""Labels of every pair, computed from the captions as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from capgrade.labels.stored import RelevanceBlock, Whole
from capgrade.measures import Fitted, choose
from capgrade.measures.sbert import FittedSbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.devices import require_device
from capgrade.schemas.extras import needs
from capgrade.schemas.params import MeasuresParams

if TYPE_CHECKING:
    import torch

    from capgrade.measures.on_device import SbertOnDevice


@dataclass
class Computed(Whole):
    """One measure, fitted on all captions of the split."""

    measures: Sequence[str]
    fitted: Fitted
    n_images: int
    n_captions: int
    low: float
    high: float
    device: str = "cpu"

    @classmethod
    def of(cls, measure: str, params: MeasuresParams, captions: Captions, device: str) -> Computed:
        """Fit the measure with these parameters. InputError for one that they do not have."""
        require_device(device)
        made = choose([measure], params)[measure]
        return cls([measure], made.fit(captions), captions.n_images, captions.n_captions, made.low, made.high, device)

    @cached_property
    def _there(self) -> SbertOnDevice | None:
        """Sentence-BERT where the model is; other measures have no form for single captions there."""
        if self.device == "cpu" or not isinstance(self.fitted, FittedSbert) or self.fitted.leave_out:
            return None
        with needs("encoder"):
            import torch

            from capgrade.measures.on_device import SbertOnDevice

        return SbertOnDevice(self.fitted, torch.device(self.device))

    def cells(self, images: np.ndarray, captions: np.ndarray, measure: str) -> np.ndarray:
        there = self._there
        values = self.fitted.score(images, captions) if there is None else there.cells(images, captions).cpu().numpy()
        return np.asarray(values, np.float32)

    def on_device(self, device: str | torch.device, images: np.ndarray, captions: np.ndarray) -> RelevanceBlock | None:
        """Tensors that never leave the device; None where that is not possible."""
        if self._there is None or not len(images) or not len(captions):
            return None
        import torch  # what is on a device has imported it

        values = self._there.cells(images, captions).to(device)
        return RelevanceBlock(values, torch.ones_like(values, dtype=torch.bool), torch.ones_like(values))

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:  # of all captions, the fast road
        return np.arange(self.n_captions), self.fitted.score(np.array([image]))[0]

    def span(self, measure: str) -> tuple[float, float]:
        return self.low, self.high
