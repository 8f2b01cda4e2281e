"""Measures on single pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.pipelines.measures.judged import FittedJudged
from capgrade.pipelines.measures.spice import FittedSpice
from capgrade.schemas.progress import progress

BLOCK = 64


def pair_values(fitted: Any, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
    """A fitted measure on single pairs, a block of images at a time: float32 [n] from int64 numbers [n]."""
    if isinstance(fitted, FittedSpice | FittedJudged):  # no blocks: a pair costs too much, or others were not judged
        return fitted.pairs(image, caption)
    values = np.empty(len(image), np.float32)
    images, row = np.unique(image, return_inverse=True)
    order = np.argsort(row, kind="stable")
    ends = np.searchsorted(row[order], np.arange(len(images) + 1))
    with progress("scoring pairs", len(images)) as advance:
        for at in range(0, len(images), BLOCK):
            block = images[at : at + BLOCK]
            pairs = order[ends[at] : ends[at + len(block)]]
            captions, column = np.unique(caption[pairs], return_inverse=True)
            values[pairs] = fitted.score(block, captions)[row[pairs] - at, column]
            advance(len(block))
    return values
