"""Values of some captions of each image, another list for each: no dense block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capgrade.pipelines.measures.base import Fitted
from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.scene_graph import FittedSceneGraph
from capgrade.pipelines.measures.spice import FittedSpice
from capgrade.pipelines.measures.tops.cider import CiderTops
from capgrade.pipelines.measures.tops.meteor import MeteorTops
from capgrade.pipelines.measures.tops.of_parts import OfParts
from capgrade.pipelines.measures.tops.rouge import RougeTops

if TYPE_CHECKING:
    from capgrade.pipelines.measures.tops.find import Finder


def listed_values(find: Finder, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float32 [len(rows)]: captions rows[ptr[b] : ptr[b + 1]] to image images[b].

    Those of measures with a way of their own here are those of all pairs to the last bit; others' differ by what their
    `score` differs from `chunks`.
    """
    fitted = find.fitted
    if isinstance(find, OfParts):
        return find.fitted.summed(listed_values(part, images, ptr, rows) for part in find.finders)
    if isinstance(find, CiderTops | RougeTops):
        return _with_own(fitted, images, ptr, rows, find.listed(images, ptr, rows))
    if isinstance(fitted, FittedBleu | FittedSbert | FittedSceneGraph):
        return _with_own(fitted, images, ptr, rows, fitted.listed(images, ptr, rows))
    if isinstance(find, MeteorTops):
        return find.listed(images, ptr, rows)
    if isinstance(fitted, FittedSpice):
        return fitted.pairs(np.repeat(images, np.diff(ptr)), rows)
    return np.concatenate([fitted.score(images[b : b + 1], rows[ptr[b] : ptr[b + 1]])[0] for b in range(len(images))])


def _with_own(fitted: Fitted, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """With the values of own captions without themselves, where the measure leaves them out."""
    if fitted.leave_out:  # type: ignore[attr-defined]
        for b in range(len(images)):
            some = slice(ptr[b], ptr[b + 1])
            fitted.leave_out_self(images[b : b + 1], rows[some], values[None, some])  # type: ignore[attr-defined]
    return values
