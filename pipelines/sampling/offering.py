"""Kernel of the samplers: captions offered to every sample of every image.

`gates` mark the captions that may enter a sample, 64 at a time, and only these are looked at one by one.
"""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.sampling.cells import Cells, cell_of
from capgrade.pipelines.sampling.gates import RUN, room_for_gates, set_gates
from capgrade.pipelines.sampling.kernel import Layout, State, descending, lets_in, take, tied
from capgrade.pipelines.sampling.keys import ANY, key_below, word
from capgrade.pipelines.sampling.keys import LANES as KEYS
from capgrade.pipelines.sampling.lanes import LANES, lowest_bit
from capgrade.pipelines.sampling.marking import SLICE, mark, room_for_marks
from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import in_threads

FEW = 128  # captions of the first slice of all, when there are no limits to go by
STALE = 8  # gates are set again when this share of the captions seen has come since


@njit(cache=True)
def _take_marked(
    b, at, groups, first_row, base, caption_keys, values, bits, there, lower, low, around, rare, drawn, run,
    outside, edges, first, behind, start, keys, heap, payload, size, limit, counts,
):  # fmt: skip
    """Offer the marked captions from `at` on to the samples; count those of their values that are in no run."""
    n_measures, n_windows = values.shape[0], behind[0, -1]
    outside[:] = 0
    for group in range(groups):
        some = (rare[group] | lower[group] | (low[group] & around[group])) & there[group]
        while some:
            place = lowest_bit(some)
            some &= some - np.uint64(1)
            c = at + LANES * group + place
            row, seed = first_row + c, base + caption_keys[c]
            for number in range(drawn.shape[0]):
                drawn[number] = word(seed, number)
            key = key_below(drawn[0], 0, limit[0])
            if key < ANY:
                _keep(take(0, key, row, start, heap, size, limit), values, b, c, payload)
            for m in range(n_measures):
                high = descending(bits[m, b, c])
                most = limit[1 + m]
                if high <= most:
                    key, tied_row = tied(high, seed, row)
                    if key < most or (key == most and lets_in(1 + m, key, tied_row, start, heap, limit)):
                        _keep(take(1 + m, key, tied_row, start, heap, size, limit), values, b, c, payload)
                cell = cell_of(edges, m, values[m, b, c])
                if not run[m, 0] <= cell < run[m, 1]:
                    counts[m, cell] += 1
                    outside[m, np.int64(cell >= run[m, 0])] += 1
                x = 1 + n_measures + m * n_windows
                for y in range(x + first[m, cell], x + behind[m, cell]):
                    key = key_below(drawn[keys[y] // KEYS], keys[y], limit[y])
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
def _offer_image(base, caption_keys, n_captions, first_row, b, values, bits, cells, layout, mine):
    """`offer` of image b."""
    n_measures = values.shape[0]
    gates = room_for_gates(n_measures, layout.key.max() + 1)
    scratch = room_for_marks(n_measures, cells.edges.shape[1], gates.bounds.shape[1])
    seen, due = mine.counts[0].sum(), 0
    at = np.int64(0)  # as a literal it would have kernels compiled twice
    while at < n_captions:
        n = min(SLICE, max(FEW, seen // LANES * LANES), n_captions - at)
        if seen >= due:
            set_gates(gates, cells, layout, mine)
            due = seen + seen // STALE
        mark(base, caption_keys, b, at, n, values, gates, cells, scratch)
        _take_marked(
            b, at, (n + LANES - 1) // LANES, first_row, base, caption_keys, values, bits, scratch.there, scratch.lower,
            scratch.low, scratch.around, scratch.rare, scratch.drawn, gates.runs[RUN],
            scratch.outside, cells.edges, cells.first, cells.behind, layout.start, layout.key, mine.heap, mine.payload,
            mine.size, mine.limit, mine.counts,
        )  # fmt: skip
        for m in range(n_measures):
            _count(n, gates.runs[RUN, m], scratch.reached[m], scratch.outside[m], mine.counts[m])
        seen, at = seen + n, at + n


@njit(nogil=True, cache=True)
def _offer_images(begin, end, base, caption_keys, n_captions, first_row, values, bits, cells, layout, state):
    heap, payload, size, limit, counts = state
    for b in range(begin, end):
        mine = State(heap[b], payload[b], size[b], limit[b], counts[b])
        _offer_image(base[b], caption_keys, n_captions, first_row, b, values, bits, cells, layout, mine)


def offer(
    base: np.ndarray, caption_keys: np.ndarray, first_row: int, values: np.ndarray, cells: Cells, layout: Layout,
    state: State,
) -> None:  # fmt: skip
    """Offer captions first_row.. to every sample of every image: values float32 [measures, images, captions], hashes of
    the images `base` and of the captions."""
    n = len(caption_keys)
    whole = n - n % LANES
    for begin, end in ((0, whole), (whole, n)):
        if begin < end:
            # a copy, as kernels are compiled anew for arrays that are not to be written
            some, their = (caption_keys.copy(), values) if begin == 0 else _filled_up(caption_keys, values, begin)
            given = (some, end - begin, first_row + begin, their, their.view(np.int32), cells, layout, state)
            in_threads(_offer_images, len(base), base, *given)


def _filled_up(caption_keys: np.ndarray, values: np.ndarray, begin: int) -> tuple[np.ndarray, np.ndarray]:
    """The captions from `begin` on, and nothing behind them up to LANES."""
    n = len(caption_keys) - begin
    keys, some = np.zeros(LANES, caption_keys.dtype), np.zeros((*values.shape[:2], LANES), np.float32)
    keys[:n], some[:, :, :n] = caption_keys[begin:], values[:, :, begin:]
    return keys, some
