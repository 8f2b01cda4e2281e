"""Cells of 64 values at once are those that comparing with every edge says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.sampling.ladder import climb, scale_of
from capgrade.pipelines.sampling.plan import Plan, windows_of
from capgrade.schemas.compiled import njit


@njit
def cells_of_values(values, scale, least, most, first):
    out = np.empty(values.shape[0], np.uint8)
    for at in range(0, values.shape[0], 64):
        climb(values, at, scale, least, most, first, out, at)
    return out


def edges_of(low: float, high: float, width: float, stride: float) -> np.ndarray:
    """The finite ones."""
    windows = windows_of(Plan((low,), (high,), 1, width, stride, 1, 1, 0).windows(0)[None])
    edges = np.unique(np.concatenate([windows.lower.ravel(), windows.upper.ravel()]))
    return edges[np.isfinite(edges)]


RANGES = [(0.0, 1.0), (0.0, 10.0), (-1.0, 1.0)]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(RANGES), st.sampled_from([0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01]), st.booleans(),
    st.integers(0, 10_000),
)  # fmt: skip
def test_cells_are_those_of_all_edges(bounds: tuple[float, float], stride: float, wide: bool, seed: int) -> None:
    """Values at edges and beside them, at random, and beyond the range: their cells between any two edges."""
    edges, rng = edges_of(*bounds, 2 * stride if wide else stride, stride), np.random.default_rng(seed)
    scale = np.float32(scale_of(edges))
    width = stride * (bounds[1] - bounds[0])
    if len(edges) < 2 or abs(bounds[0] / width - round(bounds[0] / width)) > 0.01:
        assert scale == 0  # not multiples
        return
    assert scale == pytest.approx(1 / width)
    near = np.concatenate([np.nextafter(edges, np.float32(side)) for side in (-99, 99)])
    values = np.concatenate([rng.choice(np.concatenate([edges, near]), 160), rng.uniform(-1.5, 11, 89)])
    values = np.append(values, [np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, np.nan]).astype(np.float32)
    begin, end = np.sort(rng.choice(len(edges), 2, replace=False))
    first = int(np.floor(float(edges[begin]) * float(scale))) - 1
    least = np.nextafter(edges[begin], np.float32(-np.inf))
    found = cells_of_values(values, scale, least, edges[end], np.uint8(first % 256))
    expected = (values[:, None] >= edges[begin : end + 1]).sum(axis=1)
    expected[-1] = end - begin + 1  # the NaN
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "edges",
    [
        [], [0.5], [0.1, 0.2, 0.35], [0.07, 0.14, 0.21], [1e7, 1e7 + 1, 1e7 + 2], [0.25, 0.5, 0.75000006],
        np.arange(1, 9) / 3,
    ],
)  # fmt: skip
def test_other_edges_have_no_scale(edges: list[float]) -> None:
    assert scale_of(np.array([-np.inf, *edges, np.inf, np.inf], np.float32)) == 0


@pytest.mark.parametrize(("bounds", "scale"), zip(RANGES, (20, 2, 10), strict=True))
def test_the_default_windows_have_one(bounds: tuple[float, float], scale: float) -> None:
    assert scale_of(edges_of(*bounds, 0.1, 0.05)) == scale
