"""What marks the captions of a slice that a sample may take.

Nearly every caption is beaten by all samples. What costs is to see that. So the passes over a slice compare 64 captions
at once, without branches or tables. Most values are in a few cells, in windows that hold many and have low limits: the
core. Around it, values are fewer and limits higher; beyond that they are rare. A caption is marked if

- a key is below the highest limit of a core, or
- a key is below the highest limit of all but the rare cells, and a value is in no core, or
- a value is rare, or may enter the top.

A few captions too many are marked, never one too few. Marked captions are looked at one by one. Limits only fall, so
gates may be older than the samples they are of: they mark more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling.kernel import SLOT
from capgrade.pipelines.sampling.keys import ANY, LANES, pack
from capgrade.schemas.compiled import njit

CORE, RUN = 0, 1  # of the gates
WORDS = 2.0**64
EDGE = 0.001  # what it takes to count the values that have reached an edge, as a share of looking at them all
SOME = ANY // np.uint64(8)  # the limit of a window in the rare cells is at least this
INFINITE = np.float32(np.inf)
MOST = 250  # cells of a run, counted in bytes


class Gates(NamedTuple):
    """Of an image; [2]: of the core, and of the run of cells that are not rare."""

    limits: np.ndarray  # uint64 [2, keys]: the highest of the samples of each key
    bounds: np.ndarray  # uint64 [2, words]: the same, packed
    runs: np.ndarray  # int64 [2, measures, 2]: the first cell, and the one behind the last
    top: np.ndarray  # float32 [measures]: the least value that may enter the top


@njit(cache=True)
def room_for_gates(measures, keys):
    """Gates with nothing in them."""
    limits, bounds = np.empty((2, keys), np.uint64), np.empty((2, (keys + LANES - 1) // LANES), np.uint64)
    return Gates(limits, bounds, np.empty((2, measures, 2), np.int64), np.empty(measures, np.float32))


@njit(cache=True)
def set_gates(gates, cells, layout, state):
    """As the samples are now."""
    n_measures, n_windows = state.counts.shape[0], cells.behind[0, -1]
    gates.limits[:] = 0
    gates.limits[:, 0] = state.limit[0]
    for m in range(n_measures):
        x, highest = 1 + n_measures + m * n_windows, np.zeros(state.counts.shape[1], np.uint64)
        for c in range(highest.shape[0]):
            for y in range(x + cells.first[m, c], x + cells.behind[m, c]):
                highest[c] = max(highest[c], state.limit[y])
        gates.top[m] = _least_top(state, layout.start, m)
        runs = _runs(state.counts[m], highest, cells.behind[m] - cells.first[m])
        for k in range(2):
            a, b = gates.runs[k, m, 0], gates.runs[k, m, 1] = runs[k]
            for c in range(a, b):
                for y in range(x + cells.first[m, c], x + cells.behind[m, c]):
                    gates.limits[k, layout.key[y]] = max(gates.limits[k, layout.key[y]], state.limit[y])
    for k in range(2):
        pack(gates.limits[k], gates.bounds[k])


@njit(cache=True)
def _least_top(state, start, m):
    """The least value of measure m that may enter its top: that of the worst there, which ties with it."""
    room = start[2 + m] - start[1 + m]
    if state.size[1 + m] < room:
        return -INFINITE
    return state.payload[state.heap[start[1 + m], SLOT], m] if room else INFINITE


@njit(cache=True)
def _runs(counts, highest, together):
    """Two runs of cells, each from a cell to the one behind its last, the same if there are none: the core, and with
    what is around it. `highest`: limits of the cells' windows; `together`: how many these are."""
    last = counts.shape[0] - 1  # the cell of infinite values, which are rare
    seen, peak = counts.sum(), 1 + np.argmax(counts[1:last])
    a, b = peak, peak
    while b < last and b - a < MOST and counts[b] > EDGE * seen and highest[b] < SOME:
        b += 1
    while b > peak and b - a < MOST and a > 1 and counts[a - 1] > EDGE * seen and highest[a - 1] < SOME:
        a -= 1
    outer, first, behind = highest[a:b].max() if a < b else ANY, peak, min(peak + 1, b)
    core, best, most, inside = (peak, peak), np.inf, highest[peak], counts[peak]
    while first < behind:
        cost = together[peak] * (seen * (most / WORDS) + (seen - inside) * (outer / WORDS))
        if cost < best:
            core, best = (first, behind), cost
        left, right = counts[first - 1] if first > a else -1, counts[behind] if behind < b else -1
        if left < 0 and right < 0:
            break
        more = first - 1 if left >= right else behind
        first, behind = min(first, more), max(behind, more + 1)
        inside, most = inside + counts[more], max(most, highest[more])
    return core, (a, b)
