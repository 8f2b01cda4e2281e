"""The range of each measure cut at every bound of a window: which windows hold a value, and counts of values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling.ladder import scale_of
from capgrade.schemas.compiled import njit


class Cells(NamedTuple):
    """A value is in cell c if it has reached c edges. Cell 0 is that of NaNs."""

    edges: np.ndarray  # float32 [measures, cells - 1], ascending: the first -inf, behind the finite ones infinite ones
    first: np.ndarray  # int64 [measures, cells]: the first window that holds the cell
    behind: np.ndarray  # int64 [measures, cells]: the first of those behind that do not; at most `first` if none does
    scale: np.ndarray  # float32 [measures]: of `ladder`, 0 if edges are not so


def cells_of(lower: np.ndarray, upper: np.ndarray) -> Cells:
    """Of windows in order, float32 [measures, windows] each, the first from -inf and the last to inf."""
    bounds = [np.unique(one) for one in np.hstack([lower, upper])]
    edges = np.full((len(lower), max(map(len, bounds))), np.inf, np.float32)
    for row, one in zip(edges, bounds, strict=True):
        row[: len(one)] = one
    first, behind = (
        np.stack([np.append(0, np.searchsorted(side, row, "right")) for side, row in zip(sides, edges, strict=True)])
        for sides in (upper, lower)
    )
    return Cells(edges, first, behind, np.array([scale_of(row) for row in edges], np.float32))


def held(cells: Cells, counts: np.ndarray) -> np.ndarray:
    """int64 [images, measures, windows]: values in each window, from those in each cell, int64 [..., cells]."""
    n_windows = cells.behind[0, -1]
    sums = np.concatenate([np.zeros_like(counts[:, :, :1]), np.cumsum(counts, axis=2)], axis=2)
    out = np.empty((*counts.shape[:2], n_windows), np.int64)
    for m, (first, behind) in enumerate(zip(cells.first, cells.behind, strict=True)):
        begins, ends = (np.searchsorted(side, np.arange(n_windows), "right") for side in (behind, first))
        out[:, m] = sums[:, m, ends] - sums[:, m, begins]
    return out


@njit(cache=True)
def cell_of(edges, m, value):
    """The cell of a value of measure m."""
    cell = np.int32(0)
    for k in range(edges.shape[1]):  # without branches: a search by halves guesses wrong half of the time
        cell = np.int32(cell + np.int32(value >= edges[m, k]))
    return np.int64(cell)
