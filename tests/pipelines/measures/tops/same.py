"""Tops compared with those of all pairs."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.tops.every import every_pair
from capgrade.pipelines.measures.tops.find import Finder


def assert_same(find: Finder, n_captions: int, images: np.ndarray, k: int) -> np.ndarray:
    """The same captions and bits; how many pairs of each image were scored."""
    found, full = find.tops(images, k), every_pair(find.fitted, images, n_captions, k)
    np.testing.assert_array_equal(found.rows, full.rows)
    assert found.values.tobytes() == full.values.tobytes()
    return found.pairs
