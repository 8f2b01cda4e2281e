"""Labels that are computed from the captions when they are asked for, as `Labels.exact` says.

Of labels this file alone knows measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.devices import require_device
from capgrade.labels.stored import CompleteLabels, RelevanceBlock
from capgrade.measures import choose, require_same_files
from capgrade.measures.params import OWNERS, MeasuresParams
from capgrade.measures.refit import EXACT, params_of, params_to_refit
from capgrade.schemas.captions import Captions
from capgrade.schemas.extras import needs
from capgrade.schemas.natures import Place, keys_of

if TYPE_CHECKING:
    import torch

    from capgrade.labels.opened import Opened


class Computed(CompleteLabels):
    """One measure, fitted on all captions of the split. InputError for one that the parameters do
    not have."""

    step = 1

    def __init__(
        self, measure: str, params: MeasuresParams, captions: Captions, device: str
    ) -> None:
        require_device(device)
        self._made = choose([measure], params)[measure]
        self.measures, self.fitted, self.device = [measure], self._made.fit(captions), device
        self.n_images, self.n_captions = captions.n_images, captions.n_captions

    @cached_property
    def on_its_device(self) -> Any:
        """The measure where `device` says; None for the processor, and for a measure that has no
        form for single captions there."""
        if self.device == "cpu" or not self.fitted.cells_on_device:
            return None
        with needs("encoder"):
            import torch

        return self.fitted.on_device(torch.device(self.device))

    @property
    def _scorer(self) -> Any:
        return self.fitted if self.on_its_device is None else self.on_its_device

    def cells(self, images: np.ndarray, captions: np.ndarray, measure: str) -> np.ndarray:
        values: np.ndarray = self._scorer.score(images, captions)
        return values

    def on_device(
        self, device: str | torch.device, images: np.ndarray, captions: np.ndarray
    ) -> RelevanceBlock | None:
        """As `CompleteLabels.on_device`: tensors that never leave the device."""
        if self.on_its_device is None or not len(images) or not len(captions):
            return None
        import torch  # what is on a device has imported it

        values = self.on_its_device.tensor(images, captions).to(device)
        return RelevanceBlock(
            values, torch.ones_like(values, dtype=torch.bool), torch.ones_like(values)
        )

    def rows(self, images: np.ndarray, measure: str) -> np.ndarray:
        values: np.ndarray = self._scorer.score(images)  # faster than captions one by one
        return values

    def span(self, measure: str) -> tuple[float, float]:
        return self._made.low, self._made.high


def compute(
    labels: Opened, captions: Captions, name: str, device: str, places: Mapping[str, str | None]
) -> Computed:
    """A measure with the parameters that `labels` were made with, of all pairs of `captions`.

    `places` are where its files lie, by the parameter. InputError as of `Labels.exact`.
    """
    given = {
        block: {
            key: places[key]
            for key in keys_of(kind.parameters, Place)
            if places.get(key) is not None
        }
        for block, kind in OWNERS.items()
    }
    assert labels.made_with is not None
    file, made = Path(labels.file), {name: labels.made_with[name]}
    params = params_to_refit(
        params_of(made, file), MeasuresParams.model_validate(given), file, EXACT
    )
    require_same_files([name], params, labels.inputs, file)
    return Computed(name, params, captions, device)
