"""Tops compared with those of all pairs; hashes that rank equal ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.bits import Ties
from capgrade.measures import Fitted
from capgrade.measures.tops import every_pair, find_tops

MOST = 6000  # images


def ties(of: Any) -> Ties:
    """Hashes of no ids, of as many captions, or those of captions or a fitted measure; the same for the same number."""
    n = of if isinstance(of, int | np.integer) else len(of.refs)
    random = np.random.default_rng(n)
    return Ties(*(random.integers(2**64, size=size, dtype=np.uint64) for size in (MOST, n)))


def assert_same(fitted: Fitted, n_captions: int, images: np.ndarray, k: int) -> np.ndarray:
    """The same captions and bits; how many pairs of each image were scored."""
    found, full = (way(fitted, images, k, ties(n_captions)) for way in (find_tops, every_pair))
    np.testing.assert_array_equal(found.rows, full.rows)
    assert found.values.tobytes() == full.values.tobytes()
    return found.pairs
