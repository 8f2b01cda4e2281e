"""LCS of lanes against the textbook table."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from capgrade.pipelines.measures.rouge import lcs
from capgrade.schemas.lcs import LANES, lcs_of_lanes

WORDS = 6


@njit
def of_lanes(masks, words, found):
    lcs_of_lanes(masks.reshape(-1), words, words.shape[0], found.shape[0], found)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 40))
def test_equals_the_table(seed: int, registers: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    text, lanes = rng.integers(0, WORDS, length).astype(np.int32), registers * LANES
    others = [rng.integers(0, WORDS, rng.integers(0, 17)) for _ in range(lanes)]
    masks, found = np.zeros((WORDS, lanes), np.uint16), np.empty(lanes, np.uint16)
    for lane, other in enumerate(others):
        for at, word in enumerate(other):
            masks[word, lane] |= 1 << at
    of_lanes(masks, text, found)
    assert found.tolist() == [lcs(text, other) for other in others]
