"""Captions against the other references of their own image: what `self_reference: left_out` says of own pairs alone."""

from __future__ import annotations

import dataclasses

import numpy as np

from capgrade.pipelines.measures.base import Fitted, Measure
from capgrade.pipelines.measures.imported import FittedImported
from capgrade.pipelines.measures.judged import FittedJudged
from capgrade.pipelines.measures.mixture import FittedMixture
from capgrade.schemas.captions import Captions


def own_left_out(measure: Measure, captions: Captions) -> np.ndarray | None:
    """Relevance of each caption to its own image as `self_reference: left_out` gives it, whatever the measure's own
    setting: float32 [n_captions], in the captions' order.

    NaN where the image has no other caption. None where the values cannot be had: an imported matrix, or a mixture
    with one. Everything but the references (document frequencies, parameters) stays as the measure says.
    """
    fitted = _leaving_out(measure.fit(captions))
    if fitted is None:
        return None
    values = np.full(captions.n_captions, np.nan, np.float32)
    others = np.flatnonzero(np.diff(captions.ref_ptr)[captions.owner] > 1)
    values[others] = fitted.pairs(captions.owner[others], others)
    return values


def _leaving_out(fitted: Fitted) -> Fitted | None:
    """The same measure with `self_reference: left_out`."""
    if isinstance(fitted, FittedImported | FittedJudged):
        return None
    if not isinstance(fitted, FittedMixture):
        return dataclasses.replace(fitted, leave_out=True)  # type: ignore[type-var]
    parts = {name: _leaving_out(part) for name, part in fitted.parts.items()}
    known = {name: part for name, part in parts.items() if part is not None}
    return FittedMixture(known, fitted.weights) if len(known) == len(parts) else None
