"""Kernel of the samplers: captions offered to every sample of every image.

`gates` mark the captions that may enter a sample, a slice of them at a time, and only these are looked at one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.sampling.cells import TOGETHER, Cells, cell_of, count_reached
from capgrade.pipelines.sampling.gates import LOW, LOWER, mark_values, marked, room_for_gates, set_gates
from capgrade.pipelines.sampling.kernel import Layout, State, descending, take
from capgrade.pipelines.sampling.keys import ANY, LANES, key_below, mark_low, word
from capgrade.schemas.bits import ones
from capgrade.schemas.compiled import njit
from capgrade.schemas.prefetch import prefetch
from capgrade.schemas.threads import in_threads

SLICE = 1024
LINE = 16  # values that memory gives at a time
FEW = 128  # captions of the first slice of all, when there are no limits to go by
TOGETHER_MARKED = 8  # captions, whose marks are bytes of a number
STALE = 8  # gates are set again when this share of the captions seen has come since


class Scratch(NamedTuple):
    """Room for a slice of captions."""

    hit: np.ndarray  # uint8 [SLICE]: marks
    hits: np.ndarray  # uint64 [SLICE / 8]: the same memory
    reached: np.ndarray  # int64 [measures, edges + TOGETHER]: values that have reached each edge of the run
    drawn: np.ndarray  # uint64 [words]: those of a pair
    outside: np.ndarray  # int64 [measures, 2]: values below the run, NaNs too, and those behind it


@njit(cache=True)
def _scratch(n_measures, n_edges, n_words):
    hits = np.empty(SLICE // TOGETHER_MARKED, np.uint64)
    reached = np.empty((n_measures, n_edges + TOGETHER), np.int64)
    return Scratch(
        hits.view(np.uint8), hits, reached, np.empty(n_words, np.uint64), np.empty((n_measures, 2), np.int64)
    )


@njit(cache=True)
def _mark(base, caption_keys, b, at, values, gates, cells, scratch):
    """Mark the captions from `at` on that a sample may take, and count the values that have reached edges of the
    runs."""
    n = caption_keys.shape[0]
    hit = scratch.hit[:n]
    scratch.hit[:] = 0
    for number in range(0, gates.bounds.shape[1], 2):
        mark_low(base, caption_keys, number, gates.bounds[1], gates.bounds[0], LOW, LOWER, hit)
    for m in range(values.shape[0]):
        row, ahead = values[m, b, at : at + n], values[m, b, at + n : at + n + SLICE]
        for c in range(0, ahead.shape[0], LINE):
            prefetch(ahead, c)
        mark_values(row, gates.low[1, m], gates.high[1, m], gates.low[0, m], gates.high[0, m], gates.top[m], hit)
        for k in range(gates.run[m, 0], gates.run[m, 1] - 1, TOGETHER):
            count_reached(row, cells.edges[m], k, scratch.reached[m])


@njit(cache=True)
def _take_marked(
    b, at, first_row, base, caption_keys, values, bits, hit, hits, drawn, low, high, top, run, outside, edges, first,
    behind, start, keys, heap, payload, size, limit, counts,
):  # fmt: skip
    """Offer the marked captions from `at` on to the samples; count those of their values that are in no run."""
    n_measures, n_windows = values.shape[0], behind[0, -1]
    outside[:] = 0
    for group in range(hits.shape[0]):
        some = marked(hits[group])
        while some:
            within = ones((some & (~some + np.uint64(1))) - np.uint64(1)) >> np.uint64(3)
            some &= some - np.uint64(1)
            c = at + TOGETHER_MARKED * group + np.int64(within)
            marks, row = hit[c - at], first_row + c
            for number in range(drawn.shape[0]):
                drawn[number] = word(base + caption_keys[c], number)
            if marks & LOWER:
                key = key_below(drawn[0], 0, limit[0])
                if key < ANY:
                    _keep(take(0, key, row, start, heap, size, limit), values, b, c, payload)
            for m in range(n_measures):
                value = values[m, b, c]
                if value >= top[m]:
                    key = descending(bits[m, b, c], row)
                    if key < limit[1 + m]:
                        _keep(take(1 + m, key, row, start, heap, size, limit), values, b, c, payload)
                common = low[1, m] <= value < high[1, m]
                if common and not marks & (LOWER if low[0, m] <= value < high[0, m] else LOW):
                    continue
                cell = cell_of(edges, m, value)
                if not common:
                    counts[m, cell] += 1
                    outside[m, np.int64(cell >= run[m, 0])] += 1
                x = 1 + n_measures + m * n_windows
                for y in range(x + first[m, cell], x + behind[m, cell]):
                    key = key_below(drawn[keys[y] // LANES], keys[y], limit[y])
                    if key < ANY:
                        _keep(take(y, key, row, start, heap, size, limit), values, b, c, payload)


@njit(cache=True)
def _keep(slot, values, b, c, payload):
    """Copy a caption's values to its slot."""
    for m in range(values.shape[0]):
        payload[slot, m] = values[m, b, c]


@njit(cache=True)
def _count(n, run, reached, outside, counts):
    """Count n values of a slice by cell of the run, beside those outside."""
    before = n - outside[0]
    for c in range(run[0], run[1] - 1):
        counts[c] += before - reached[c]
        before = reached[c]
    if run[0] < run[1]:
        counts[run[1] - 1] += before - outside[1]


@njit(cache=True)
def _offer_image(base, caption_keys, first_row, b, values, bits, cells, layout, mine):
    """`offer` of image b."""
    n_measures = values.shape[0]
    gates = room_for_gates(n_measures, layout.key.max() + 1)
    scratch = _scratch(n_measures, cells.edges.shape[1], gates.bounds.shape[1])
    seen, due = mine.counts[0].sum(), 0
    at, n_captions = 0, values.shape[2]
    while at < n_captions:
        n = min(SLICE, max(FEW, seen), n_captions - at)
        if seen >= due:
            set_gates(gates, cells, layout, mine)
            due = seen + seen // STALE
        _mark(base, caption_keys[at : at + n], b, at, values, gates, cells, scratch)
        _take_marked(
            b, at, first_row, base, caption_keys, values, bits, scratch.hit, scratch.hits, scratch.drawn, gates.low,
            gates.high, gates.top, gates.run, scratch.outside, cells.edges, cells.first, cells.behind, layout.start,
            layout.key, mine.heap, mine.payload, mine.size, mine.limit, mine.counts,
        )  # fmt: skip
        for m in range(n_measures):
            _count(n, gates.run[m], scratch.reached[m], scratch.outside[m], mine.counts[m])
        seen, at = seen + n, at + n


@njit(nogil=True, cache=True)
def _offer_images(begin, end, base, caption_keys, first_row, values, bits, cells, layout, state):
    heap, payload, size, limit, counts = state
    for b in range(begin, end):
        mine = State(heap[b], payload[b], size[b], limit[b], counts[b])
        _offer_image(base[b], caption_keys, first_row, b, values, bits, cells, layout, mine)


def offer(
    base: np.ndarray, caption_keys: np.ndarray, first_row: int, values: np.ndarray, cells: Cells, layout: Layout,
    state: State,
) -> None:  # fmt: skip
    """Offer captions first_row.. to every sample of every image: values float32 [measures, images, captions], hashes of
    the images `base` and of the captions."""
    bits = values.view(np.int32)
    in_threads(_offer_images, len(base), base, caption_keys, first_row, values, bits, cells, layout, state)
