"""Values of every pair that are computed when they are asked for, as `Labels.exact` says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.devices import require_device
from capgrade.measures import choose, require_same_files
from capgrade.measures.params import OWNERS, MeasuresParams
from capgrade.measures.refit import EXACT, params_of, params_to_refit
from capgrade.schemas.captions import Captions
from capgrade.schemas.extras import needs
from capgrade.schemas.natures import Place, keys_of

if TYPE_CHECKING:
    import torch


class Computed:
    """One measure, fitted on all captions of the split. InputError for one that the parameters do
    not have."""

    step = 1

    def __init__(
        self, measure: str, params: MeasuresParams, captions: Captions, device: str
    ) -> None:
        require_device(device)
        self._made = choose([measure], params)[measure]
        self.fitted, self.device = self._made.fit(captions), device
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

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """float32 [n, m] of images [n] and captions [m]."""
        values: np.ndarray = self._scorer.score(images, captions)
        return values

    def rows(self, images: np.ndarray) -> np.ndarray:
        """float32 [n, n_captions] of images [n]: faster than captions one by one."""
        values: np.ndarray = self._scorer.score(images)
        return values

    def span(self) -> tuple[float, float]:
        """What bounds its values."""
        return self._made.low, self._made.high

    def tensor(self, images: np.ndarray, captions: np.ndarray) -> torch.Tensor | None:
        """`cells` on the device; None for the processor."""
        if self.on_its_device is None:
            return None
        values: torch.Tensor = self.on_its_device.tensor(images, captions)
        return values


def compute(
    made_with: Mapping[str, Any],
    inputs: Mapping[str, Any],
    file: Path,
    captions: Captions,
    device: str,
    places: Mapping[str, str | None],
) -> Computed:
    """A measure with the parameters that the labels in `file` were made with, of all pairs of
    `captions`.

    `made_with` has its parameters by its name, `inputs` the digests of what the labels are from,
    and `places` where its files lie, by the parameter. InputError as of `Labels.exact`.
    """
    given = {
        block: {
            key: places[key]
            for key in keys_of(kind.parameters, Place)
            if places.get(key) is not None
        }
        for block, kind in OWNERS.items()
    }
    made = params_of(dict(made_with), file)
    params = params_to_refit(made, MeasuresParams.model_validate(given), file, EXACT)
    require_same_files(list(made_with), params, inputs, file)
    (name,) = made_with
    return Computed(name, params, captions, device)
