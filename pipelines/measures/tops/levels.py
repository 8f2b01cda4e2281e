"""Levels of bounds: captions are taken from the highest level down, until the worst of the best is above the next."""

from __future__ import annotations

import numpy as np

from capgrade.schemas.compiled import njit

STEP = np.float32(0.9)  # from one level of bounds to the next
LOWEST = np.float32(0.01)  # the last level but 0


@njit(cache=True)
def lower(level, heap, size):
    """The next level, float32: no lower than the worst of a heap that is full."""
    level = level * STEP if level > LOWEST else np.float32(0)
    return max(level, heap[0]) if size == heap.shape[0] else level
