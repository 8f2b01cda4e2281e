"""Comparisons of 64 numbers at once are those of numpy, one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from capgrade.pipelines.sampling.lanes import LANES, at_least, lowest_bit


@njit
def places(values, first, least):
    bits, found = at_least(values, first, least), [0]
    while bits:
        found.append(lowest_bit(bits))
        bits &= bits - np.uint64(1)
    return found[1:]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(0, 6), st.sampled_from([np.uint8, np.uint16, np.uint32]))
def test_places_are_those_that_reach(seed: int, first: int, which: int, kind: type) -> None:
    rng, most = np.random.default_rng(seed), int(np.iinfo(kind).max)
    least = [0, 1, 2, most // 2, most // 2 + 1, most - 1, most][which]
    near = np.array([0, 1, least - 1, least, least + 1, most]) % (most + 1)
    values = np.where(rng.random(110) < 0.5, rng.integers(0, most + 1, 110), rng.choice(near, 110)).astype(kind)
    expected = np.flatnonzero(values[first : first + LANES] >= least)
    assert places(values, first, kind(least)) == expected.tolist()


def test_floats() -> None:
    rng = np.random.default_rng(0)
    values = rng.choice(
        np.array([-np.inf, -1, -0.0, 0, 0.3, 0.5, np.nextafter(0.5, 0), np.inf, np.nan], np.float32), 70
    )
    for least in (-np.inf, -0.0, 0.0, 0.5, np.inf):
        assert places(values, 5, np.float32(least)) == np.flatnonzero(values[5:69] >= np.float32(least)).tolist()
