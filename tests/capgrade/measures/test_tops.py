"""The best captions of all pairs, against a sort of whole rows."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.measures import base, tops
from tests.capgrade.measures.same import ties


@dataclass(frozen=True)
class Given(base.ArrayState):
    """Values as they are given."""

    values: np.ndarray

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.values[images, captions]


@pytest.mark.parametrize("chunk", [7, 64, 1000])
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(0, 40), st.integers(1, 5))
def test_the_best_of_all_pairs(chunk: int, seed: int, captions: int, k: int, levels: int) -> None:
    """With few different values, so that equal ones rank by their hashes, and with fewer captions than wanted."""
    values = np.random.default_rng(seed).integers(levels, size=(3, captions)).astype(np.float32)
    same, images = ties(captions), np.array([2, 0, 1])
    with patch.multiple(base, CHUNK=chunk), patch.multiple(tops, CHUNK=chunk):
        found = tops.find_tops(Given(values), images, k, same)
    for b, image in enumerate(images):
        hashes = same.of(np.array([image]), np.arange(captions)[None])[0]
        order = sorted(range(captions), key=lambda c: (-values[image, c], hashes[c]))[:k]
        assert found.rows[b].tolist() == order
        assert found.values[b].tolist() == values[image, order].tolist()
    assert (found.pairs == captions * (k > 0)).all()
