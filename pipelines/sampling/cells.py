"""The range of each measure cut at every edge of a window: which windows hold a value, and counts of values.

A value reaches an edge when it does so rounded to five places, as a share of the measure's range. So hardly any pair
is so near to an edge that the error of a fast value leaves open whether it has reached it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import Error
from capgrade.pipelines.sampling.plan import Plan

HALF_PLACE = 5e-6
BUCKETS = 2048  # of equal width: of most, all values have reached the same edges
UNSURE = -1
TILE = 256  # values looked at together


class Cells(NamedTuple):
    """A value of measure m is in cell c if it has reached c edges; behind the edges of a measure stand NaNs."""

    edges: np.ndarray  # float32 [measures, edges], ascending
    near: np.ndarray  # float32 [measures, edges, 2]: values from the first on, below the second, may reach the edge
    first: np.ndarray  # int64 [measures, cells]: the first window that holds the cell
    behind: np.ndarray  # int64 [measures, cells]: the first of those behind that do not; `first` if none does
    table: (
        np.ndarray
    )  # int16 [measures, BUCKETS]: the cell of a bucket's values; -1 - the lowest where they have several
    begin: np.ndarray  # float32 [measures]: of the first bucket
    scale: np.ndarray  # float32 [measures]: 1 / width of a bucket

    @property
    def together(self) -> int:
        """How many windows hold a value, at most."""
        return max(1, int((self.behind - self.first).max()))

    def members(self, counts: np.ndarray, windows: int) -> np.ndarray:
        """int64 [images, measures, windows]: values in each window, from those in each cell, int64 [..., cells]."""
        out = np.zeros((*counts.shape[:2], windows), np.int64)
        for m in range(counts.shape[1]):
            for c in range(counts.shape[2]):
                out[:, m, self.first[m, c] : self.behind[m, c]] += counts[:, m, c, None]
        return out

    def of(self, m: int, values: np.ndarray) -> np.ndarray:
        """int16, as float32 values of measure m: the cell of each."""
        return np.searchsorted(self.edges[m][~np.isnan(self.edges[m])], values, "right").astype(np.int16)

    def place(self, m: int, values: np.ndarray, cells: np.ndarray, counts: np.ndarray) -> None:
        """Put the cells of a measure's values, float32 [images, captions], into int16 `cells`; UNSURE where the error
        leaves them open. The others are counted, int64 [images, cells]."""
        args = self.near[m], self.table[m], self.begin[m], self.scale[m], cells, counts
        in_threads(_place, len(values), values, *args)


def cells_of(plan: Plan, errors: Sequence[Error]) -> Cells:
    """Of a plan's windows, where a measure's fast values have this error."""
    measures, cut = len(errors), []
    for m in range(measures):
        windows = plan.windows(m)
        cut.append((windows, np.unique(windows[np.isfinite(windows)])))
    most = max(len(bounds) for _, bounds in cut)
    edges, near = np.full((measures, most), np.nan, np.float32), np.full((measures, most, 2), np.nan, np.float32)
    first, behind = np.zeros((2, measures, most + 1), np.int64)
    table, begin, scale = np.zeros((measures, BUCKETS), np.int16), np.zeros(measures, np.float32), np.zeros(measures)
    for m, (windows, bounds) in enumerate(cut):
        for c, start in enumerate(np.append(-np.inf, bounds)):
            holds = np.flatnonzero((windows[:, 0] <= start) & (start < windows[:, 1]))
            if len(holds):
                first[m, c], behind[m, c] = holds[0], holds[-1] + 1
        span = plan.high[m] - plan.low[m]
        mine = edges[m, : len(bounds)] = _at_or_above(bounds - HALF_PLACE * span)
        near[m, : len(bounds)] = _open(mine, errors[m])
        if len(bounds):
            width = max(float(mine[-1]) - float(mine[0]), 1e-3 * span) / (BUCKETS - 8)
            begin[m], scale[m] = mine[0] - 4 * width, 1 / width
            at = [_buckets(ends, begin[m], np.float32(scale[m])) for ends in near[m, : len(bounds)].T.copy()]
            table[m] = np.searchsorted(at[1], np.arange(BUCKETS))
            for low, high in zip(*at, strict=True):
                table[m, low : high + 1] = -1 - np.searchsorted(at[1], np.arange(low, high + 1))
    return Cells(edges, near, first, behind, table, begin, scale.astype(np.float32))


def _at_or_above(bounds: np.ndarray) -> np.ndarray:
    """A float32 reaches a bound when it reaches the float32 at or above."""
    near: np.ndarray = bounds.astype(np.float32)
    return np.where(near < bounds, np.nextafter(near, np.float32(np.inf)), near)


def _open(edges: np.ndarray, error: Error) -> np.ndarray:
    """float32 [edges, 2]: from where to where a value may or may not reach each edge; without error nowhere."""
    if not any(error):
        return np.stack([edges, edges], axis=1)
    lowest, sure = error.lowest(edges.astype(np.float64)), error.sure(edges.astype(np.float64))
    infinity = np.float32(np.inf)
    ends = [np.nextafter(lowest.astype(np.float32), -infinity), np.nextafter(sure.astype(np.float32), infinity)]
    return np.stack(ends, axis=1)


@njit(cache=True)
def _bucket(value, begin, scale):
    at = (value - begin) * scale
    at = at if at > np.float32(0) else np.float32(0)  # NaN too
    return np.int32(at if at < np.float32(BUCKETS - 1) else np.float32(BUCKETS - 1))


@njit(cache=True)
def _buckets(values, begin, scale):
    """int32 [values]: the bucket of each float32, rising with it."""
    out = np.empty(values.shape[0], np.int32)
    for j in range(values.shape[0]):
        out[j] = _bucket(values[j], begin, scale)
    return out


@njit(cache=True)
def _cell(value, near, reached):
    """The cell of a value that has surely `reached` so many edges or more; UNSURE if its error leaves that open."""
    while reached < near.shape[0] and value >= near[reached, 1]:
        reached += 1
    return np.int16(UNSURE if reached < near.shape[0] and value >= near[reached, 0] else reached)


@njit(nogil=True, cache=True)
def _place(begin, end, values, near, table, first, scale, cells, counts):
    at, count = np.empty(TILE, np.int32), np.empty((2, counts.shape[1] + 1), np.int64)
    for b in range(begin, end):
        count[:] = 0
        for start in range(0, values.shape[1], TILE):
            some, out = values[b, start : start + TILE], cells[b, start : start + TILE]
            for j in range(some.shape[0]):
                at[j] = _bucket(some[j], first, scale)
            open_ = np.int16(0)
            for j in range(some.shape[0]):
                out[j] = table[np.uint32(at[j])]
                open_ |= out[j]
            if open_ < 0:
                for j in range(some.shape[0]):
                    if out[j] < 0:
                        out[j] = _cell(some[j], near, -1 - out[j])
            for j in range(some.shape[0]):  # by turns, as neighbours are often of one cell
                count[j & 1, np.uint16(out[j] + 1)] += 1
        for c in range(counts.shape[1]):
            counts[b, c] += count[0, c + 1] + count[1, c + 1]
