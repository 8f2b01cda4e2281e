"""Kernels of `among`: which captions an image's hashes draw, and samples of listed captions."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.sampling.cells import cell_of
from capgrade.pipelines.sampling.kernel import descending, lets_in, take, tied
from capgrade.pipelines.sampling.keys import ANY, SHARE, UNIFORM, key_below, word
from capgrade.pipelines.sampling.keys import LANES as KEYS
from capgrade.pipelines.sampling.lanes import LANES, lowest_bit
from capgrade.pipelines.sampling.words import low_words
from capgrade.schemas.bits import GOLDEN
from capgrade.schemas.compiled import njit

OF_UNIFORM, INSIDE, TOP = 1, 2, 4  # marks; measure m has TOP << m
EVERY = np.uint64(2**64 - 1)


@njit(cache=True)
def keys_of(seeds, key):
    """uint64 [pairs]: key UNIFORM or SHARE of each pair, which are of the first word."""
    out = np.empty_like(seeds)
    for k in range(seeds.shape[0]):
        out[k] = key_below(word(seeds[k], 0), key, ANY)
    return out


@njit(nogil=True, cache=True)
def low(
    begin, end, base, caption_keys, limits, bound, size, room, own_ptr, own, tops, rows, marks, counts, drawn, uniform
):  # fmt: skip
    """Fill the captions of images begin..end, ascending, with marks: those whose key of the share is up to its limit,
    those of the `size` lowest uniform keys among those up to theirs, own captions and tops int64 [measures, images, k];
    counts of each image, of keys up to a limit, and of uniform ones among them. An image of more keys than `room` gets
    their number alone.

    limits uint64 [2], and as `pack` makes them a word."""
    some, their = np.empty(room, np.int64), np.empty(room, np.int64)
    for b in range(begin, end):
        n = drawn[b] = _drawn(base[b], caption_keys, limits, bound, some, their)
        if n <= room:
            uniform[b] = _keep_lowest(base[b], caption_keys, some[:n], their[:n], size)
            n = _close_up(some[:n], their[:n])
            sure, why = _sure(own[own_ptr[b] : own_ptr[b + 1]], tops[:, b])
            counts[b] = _join(some[:n], their[:n], sure, why, rows[b], marks[b])


@njit(cache=True)
def _drawn(seed, caption_keys, limits, bound, rows, marks):
    """Captions with a key up to its limit, and marks of which, as far as there is room; how many there are."""
    found, n = 0, caption_keys.shape[0]
    for at in range(0, n, LANES):
        some = low_words((seed + GOLDEN,), caption_keys, at, ((bound,),))[0] if at + LANES <= n else EVERY
        while some and at + lowest_bit(some) < n:
            row = at + lowest_bit(some)
            some &= some - np.uint64(1)
            mark = _mark(word(seed + caption_keys[row], 0), limits)
            if mark and found < rows.shape[0]:
                rows[found], marks[found] = row, mark
            found += int(mark > 0)
    return found


@njit(cache=True)
def _mark(drawn, limits):
    mark = OF_UNIFORM if key_below(drawn, UNIFORM, ANY) <= limits[UNIFORM] else 0
    return mark | INSIDE if key_below(drawn, SHARE, ANY) <= limits[SHARE] else mark


@njit(cache=True)
def _keep_lowest(seed, caption_keys, rows, marks, size):
    """Leave the mark of the uniform sample to the `size` lowest keys; how many had it."""
    keys = keys_of(seed + caption_keys[rows[marks & OF_UNIFORM > 0]], UNIFORM)
    if keys.shape[0] > size:
        first_out, n = np.sort(keys)[size], 0
        for k in range(rows.shape[0]):
            if marks[k] & OF_UNIFORM:
                marks[k] -= OF_UNIFORM * int(keys[n] >= first_out)
                n += 1
    return keys.shape[0]


@njit(cache=True)
def _close_up(rows, marks):
    """Leave out what has no mark; how many are left."""
    n = 0
    for k in range(rows.shape[0]):
        rows[n], marks[n] = rows[k], marks[k]
        n += int(marks[n] > 0)
    return n


@njit(cache=True)
def _sure(own, tops):
    """Own captions and the tops of each measure by rising row, and their marks."""
    n_own, (n_measures, k) = own.shape[0], tops.shape
    rows, marks = np.empty(n_own + n_measures * k, np.int64), np.zeros(n_own + n_measures * k, np.int64)
    rows[:n_own] = own
    for m in range(n_measures):
        at = slice(n_own + m * k, n_own + (m + 1) * k)
        rows[at], marks[at] = tops[m], TOP << m
    order = np.argsort(rows)
    return rows[order], marks[order]


@njit(cache=True)
def _join(drawn, their, sure, why, rows, marks):
    """Merge two ascending lists, each caption once with its marks of both; how many."""
    x, y, n = 0, 0, 0
    while x < drawn.shape[0] or y < sure.shape[0]:
        if y == sure.shape[0] or (x < drawn.shape[0] and drawn[x] <= sure[y]):
            row, mark, x = drawn[x], their[x], x + 1
        else:
            row, mark, y = sure[y], why[y], y + 1
        if n and rows[n - 1] == row:
            marks[n - 1] |= mark
        else:
            rows[n], marks[n], n = row, mark, n + 1
    return n


@njit(nogil=True, cache=True)
def together(begin, end, rows, marks, ptr, all_rows, all_marks):
    """Fill the lists of images begin..end, one image's behind the other's."""
    for b in range(begin, end):
        for k in range(ptr[b + 1] - ptr[b]):
            all_rows[ptr[b] + k], all_marks[ptr[b] + k] = rows[b, k], marks[b, k]


@njit(nogil=True, cache=True)
def missed(begin, end, base, caption_keys, ptr, captions, values, members, cells, per_window, share, out):
    """Fill the probability that the windows miss each of the captions of images begin..end, if it is inside the share:
    prod(1 - n / N), N the captions of a window inside the share, this one counted. values float32 [measures, captions];
    members int64 [images, measures, windows]; share uint64: the highest key of it."""
    for b in range(begin, end):
        for k in range(ptr[b], ptr[b + 1]):
            outside = int(key_below(word(base[b] + caption_keys[captions[k]], 0), SHARE, ANY) > share)
            out[k] = 1.0
            for m in range(values.shape[0]):
                cell = cell_of(cells.edges, m, values[m, k])
                for w in range(cells.first[m, cell], cells.behind[m, cell]):
                    out[k] *= 1.0 - min(1.0, per_window / max(1, members[b, m, w] + outside))


@njit(nogil=True, cache=True)
def offer_listed(begin, end, base, caption_keys, ptr, rows, marks, values, value_bits, cells, layout, state):
    """As `offering.offer`, of listed captions of images begin..end: each to the samples it is marked for, inside the
    share to windows."""
    edges, first, behind, _ = cells
    start, numbers = layout
    heap, payload, size, limit, counts = state
    n_measures = values.shape[0]
    mine = np.empty(n_measures, np.float32)
    for b in range(begin, end):
        seeds = base[b] + caption_keys[rows[ptr[b] : ptr[b + 1]]]  # together: each alone would be waited for
        for k in range(ptr[b], ptr[b + 1]):
            seed, row = seeds[k - ptr[b]], rows[k]
            for m in range(n_measures):
                mine[m] = values[m, k]
            if marks[k] & OF_UNIFORM:
                key = key_below(word(seed, 0), 0, limit[b, 0])
                if key < ANY:
                    payload[b, take(0, key, row, start, heap[b], size[b], limit[b])] = mine
            for m in range(n_measures):
                if marks[k] & (TOP << m):
                    high = descending(value_bits[m, k])
                    most = limit[b, 1 + m]
                    if high <= most:
                        key, tied_row = tied(high, seed, row)
                        if key < most or (key == most and lets_in(1 + m, key, tied_row, start, heap[b], limit[b])):
                            payload[b, take(1 + m, key, tied_row, start, heap[b], size[b], limit[b])] = mine
                if marks[k] & INSIDE:
                    cell, x = cell_of(edges, m, mine[m]), 1 + n_measures + m * behind[0, -1]
                    counts[b, m, cell] += 1
                    for y in range(x + first[m, cell], x + behind[m, cell]):
                        key = key_below(word(seed, numbers[y] // KEYS), numbers[y], limit[b, y])
                        if key < ANY:
                            payload[b, take(y, key, row, start, heap[b], size[b], limit[b])] = mine
