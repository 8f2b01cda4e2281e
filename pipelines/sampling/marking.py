"""Marks of the captions of a slice that a sample may take, by the gates, and counts of values by cell: 64 at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling.gates import CORE, INFINITE, RUN
from capgrade.pipelines.sampling.ladder import climb
from capgrade.pipelines.sampling.lanes import LANES, at_least
from capgrade.pipelines.sampling.prefetch import prefetch
from capgrade.pipelines.sampling.words import low_words
from capgrade.schemas.bits import GOLDEN, ones
from capgrade.schemas.compiled import njit

SLICE = 16384
LINE = 16  # values that memory gives at a time
SHORT = 3  # cells of a run whose edges are compared with the values themselves
RUNGS = np.arange(1, 256, dtype=np.uint8)
NONE, EVERY = np.uint64(0), np.uint64(2**64 - 1)  # of the bits of a number


class Scratch(NamedTuple):
    """Room for a slice of captions. The first six have a bit for each caption, LANES in a number, of those"""

    there: np.ndarray  # that there are
    lower: np.ndarray  # of which a key may be below the limits of the core
    low: np.ndarray  # or of the run
    around: np.ndarray  # with a value in no core
    rare: np.ndarray  # or in no run, or that may enter the top
    found: np.ndarray  # that reach an edge
    cells: np.ndarray  # uint8 [SLICE]: of values, counted from below the run
    reached: np.ndarray  # int64 [measures, edges]: values that have reached each edge of the run
    drawn: np.ndarray  # uint64 [words]: those of a pair
    outside: np.ndarray  # int64 [measures, 2]: values below the run, NaNs too, and those behind it


@njit(cache=True)
def room_for_marks(n_measures, n_edges, n_words):
    """Scratch with nothing in it."""
    bits, reached = np.empty((6, SLICE // LANES), np.uint64), np.empty((n_measures, n_edges), np.int64)
    drawn, outside, cells = np.empty(n_words, np.uint64), np.empty((n_measures, 2), np.int64), np.empty(SLICE, np.uint8)
    return Scratch(bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], cells, reached, drawn, outside)


@njit(cache=True)
def mark(base, caption_keys, b, at, n, values, gates, cells, scratch):
    """Mark the n captions of image b from `at` on that a sample may take; count those that have reached each edge of
    the runs."""
    groups = (n + LANES - 1) // LANES
    there, found = scratch.there[:groups], scratch.found[:groups]
    around, rare = scratch.around[:groups], scratch.rare[:groups]
    there[:], around[:], rare[:] = EVERY, 0, 0
    if n % LANES:
        there[groups - 1] >>= np.uint64(LANES - n % LANES)
    _mark_keys(base, caption_keys, b, at, groups, values, gates.bounds, scratch.lower, scratch.low)
    for m in range(values.shape[0]):
        row = values[m, b]
        core, run = gates.runs[CORE, m], gates.runs[RUN, m]
        top, end = gates.top[m], cells.edges[m, run[1] - 1]
        if run[0] == run[1]:
            rare[:] = EVERY
        elif cells.scale[m] == 0 or run[1] - run[0] <= SHORT:
            _mark_run(row, at, cells.edges[m], 0, core, run, there, found, around, rare, scratch.reached[m])
        else:
            _fill_cells(row, at, n, cells.edges[m], cells.scale[m], run, scratch.cells)
            _mark_run(scratch.cells, 0, RUNGS, run[0] - 1, core, run, there, found, around, rare, scratch.reached[m])
            if end == INFINITE:  # NaNs and infinite values may be in the run
                _reach(row, at, -INFINITE, there, found)
                _add(found, EVERY, rare)
                _reach(row, at, INFINITE, there, found)
                _add(found, NONE, rare)
        if run[0] < run[1] and top < end:
            _reach(row, at, top, there, found)
            _add(found, NONE, rare)


@njit(cache=True)
def _mark_keys(base, caption_keys, b, at, groups, values, bounds, lower, low):
    """Mark the captions from `at` on that have a key below a limit, and a few more; meanwhile, ask for their values."""
    flat, n_words = values.reshape(-1), bounds.shape[1]
    for g in range(groups):
        first = at + LANES * g
        lower[g], low[g] = 0, 0
        for k in range(0, n_words - 1, 2):  # two words together, compared once
            seeds = (base + np.uint64(k + 1) * GOLDEN, base + np.uint64(k + 2) * GOLDEN)
            both = ((bounds[CORE, k], bounds[CORE, k + 1]), (bounds[RUN, k], bounds[RUN, k + 1]))
            one, other = low_words(seeds, caption_keys, first, both)
            lower[g] |= one
            low[g] |= other
        if n_words % 2:
            last = ((bounds[CORE, n_words - 1],), (bounds[RUN, n_words - 1],))
            one, other = low_words((base + np.uint64(n_words) * GOLDEN,), caption_keys, first, last)
            lower[g] |= one
            low[g] |= other
        for m in range(values.shape[0]):
            place = (m * values.shape[1] + b) * values.shape[2] + first
            for c in range(0, LANES, LINE):
                prefetch(flat, place + c)


@njit(cache=True)
def _fill_cells(values, at, n, edges, scale, run, cells):
    """The cells of the values from `at` on: 0 below the run, 1 its first, and so on to one behind it. A NaN is behind
    the run, or in its last cell if nothing is behind."""
    low, high = max(1, run[0] - 1), run[1] - 1 if edges[run[1] - 1] < INFINITE else run[1] - 2
    least, most = np.nextafter(edges[low], -INFINITE), edges[high]
    first = np.uint8(np.int64(np.floor(np.float64(edges[low]) * scale)) - (2 if run[0] == 1 else 1))
    for c in range(0, n, LANES):
        climb(values, at + c, scale, least, most, first, cells, c)


@njit(cache=True)
def _mark_run(values, at, edges, begin, core, run, there, found, around, rare, reached):
    """Mark values outside the core, and the rare ones; count those that have reached edges of the run, the first of
    which is edges[run[0] - 1 - begin]."""
    if core[0] == core[1]:
        around[:] = EVERY
    for k in range(run[0] - 1, run[1]):
        reached[k] = _reach(values, at, edges[k - begin], there, found)
        if k == run[0] - 1:
            _add(found, EVERY, rare)
        elif k == run[1] - 1:
            _add(found, NONE, rare)
        if k == core[0] - 1:
            _add(found, EVERY, around)
        elif k == core[1] - 1:
            _add(found, NONE, around)


@njit(cache=True)
def _reach(values, at, edge, there, found):
    """Mark the values from `at` on that have reached an edge; how many."""
    n = np.uint64(0)
    for g in range(there.shape[0]):
        found[g] = at_least(values, at + LANES * g, edge) & there[g]
        n += ones(found[g])
    return np.int64(n)


@njit(cache=True)
def _add(found, other, marks):
    """Add marks of the captions that were found, or of those that were not if `other` has every bit."""
    for g in range(found.shape[0]):
        marks[g] |= found[g] ^ other
