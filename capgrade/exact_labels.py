"""`capgrade.exact`: labels in which every pair is known, as what was not sampled is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.devices import require_device
from capgrade.labels import GIVE_CAPTIONS, Labels
from capgrade.labels.stored import Complete
from capgrade.measures import choose, require_same_files
from capgrade.measures.params import OWNERS, MeasuresParams
from capgrade.measures.refit import EXACT, params_of, params_to_refit
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.natures import Place, keys_of

if TYPE_CHECKING:
    import torch


def exact(
    labels: Labels,
    measure: str | None = None,
    *,
    device: str = "cpu",
    model: str | None = None,
    document_frequency: str | None = None,
    images: str | None = None,
) -> Labels:
    """Labels of one measure in which every pair is known: what was not sampled is computed from
    the captions.

    With the tokenizer and parameters that the labels were made with; Sentence-BERT as one
    product on `device`, from embeddings that are computed once and kept in the cache of
    capgrade. Dense labels know everything already. Labels of another encoder than the default
    one name it, and so does `model` (a hub id or folder): no other is opened.
    `document_frequency` is where CIDEr's file lies, `images` where the pictures are, of a
    measure that looks at them. Of a measure of some pairs, such as `reranker`, each block is
    computed pair by pair. Raises InputError for an imported measure, without the captions, and
    for an encoder, file or pictures that are not named or have another content.

    >>> labels = exact(Labels.load("dataset"), "rouge_l")
    >>> bool(labels.block(range(4), range(60)).known.all())
    True
    """
    name = labels.choose_measure(measure)
    if not labels.stored.sampled:
        return labels
    if labels.captions is None or labels.made_with is None:
        problem = "the rest is computed from the captions, which are not here"
        raise InputError(problem, file=labels.file, remedy=GIVE_CAPTIONS)
    labels.captions.require_texts(labels.file)
    if name in labels.calibrated:
        remedy = f"ask for {labels.calibrated[name]}, and publish with the pairs that you need"
        raise InputError(
            f"{name} is known of published pairs alone", file=labels.file, remedy=remedy
        )
    places = {"model": model, "document_frequency": document_frequency, "images": images}
    computed = _compute(labels, name, labels.made_with[name], labels.captions, device, places)
    again = partial(
        exact,
        measure=name,
        device=device,
        model=model,
        document_frequency=document_frequency,
        images=images,
    )
    return replace(labels, stored=Complete({name: computed}), completed=again)


class _Computed:
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


def _compute(
    labels: Labels,
    name: str,
    made_with: Mapping[str, Any],
    captions: Captions,
    device: str,
    places: Mapping[str, str | None],
) -> _Computed:
    """The measure `name` with the parameters that the labels were made with, of all pairs of
    `captions`; `places` has where its files lie, by the parameter. InputError as of `exact`."""
    given = {
        block: {
            key: places[key]
            for key in keys_of(kind.parameters, Place)
            if places.get(key) is not None
        }
        for block, kind in OWNERS.items()
    }
    file = Path(labels.file)
    made = params_of({name: made_with}, file)
    params = params_to_refit(made, MeasuresParams.model_validate(given), file, EXACT)
    require_same_files([name], params, labels.inputs, file)
    return _Computed(name, params, captions, device)
