"""Kernels of CIDEr-D's exact tops: postings of rare n-grams, a bound on the rest, and whole values of what is left.

Let an image's references be folded into a table: a caption of length class d that has n-gram g, t times, gains
table[g, t, d] / norm(caption, order). With u = t idf(g) / norm, a component of the caption's unit vector of that order,
the gain is q(g, t, d) u, where q = table / (t idf). So from a set of n-grams a caption gains at most the sum over
orders of sqrt(sum of q^2) times the norm of the caption's own part in the set, which is at most 1 (Cauchy and Schwarz).
Nothing is negative, so a bound computed in float32 errs by a relative part only, which `SLACK` covers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.cider_kernel import whole
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit
from capgrade.schemas.fused import fma

ORDERS = 4
# A bound and a value add up at most 2**14 non-negative float32 terms of a few roundings each, norms packed to 15 bits:
# each errs by less than (2**14 + 8) 2**-24 + 2**-15 < 2**-9 of itself, in any order of summation.
SLACK = np.float32(1 + 2**-8)
UNITS = 2**15  # of the value of equal captions, in which sums count; each gain is rounded up
BLOCK = 64  # sums looked at together
FIRST = 0.1  # of the captions: postings walked before the first threshold
COMMON = np.float32(1)  # the share of its unit vector that a caption is expected to have in common n-grams
LEVELS = (1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256, 0.0)  # of the captions: n-grams above are common
PHI = np.uint32(0x9E3779B1)
STEPS = 256  # of 16 units, in which bounds are sorted
FILTER = 8192  # bytes that tell most n-grams that no reference has


class Index(NamedTuple):
    """Of the captions: arrays of `FittedCider`, and what the bounds need beside them."""

    ptr: np.ndarray
    gram: np.ndarray
    counts: np.ndarray
    gain: np.ndarray
    gram_of: np.ndarray  # int32 [terms]
    term_count: np.ndarray
    post_ptr: np.ndarray
    post: np.ndarray  # uint32 [postings, 2]: rank; the inverse norm in units as float32, the last 8 bits the class
    dense_row: np.ndarray
    row_of_rank: np.ndarray  # int32 [n_captions]
    class_of_rank: np.ndarray
    norms: np.ndarray  # float32 [n_captions, 4]: inverse norms by rank
    common: np.ndarray  # uint32 [levels, n_captions]: a byte an order, the norm of a caption's part in common n-grams
    most_common: np.ndarray  # uint32 [levels, blocks]: the largest of each byte in BLOCK captions


class Terms(NamedTuple):
    """Of one image: as `Folded`, with a hash table of its n-grams."""

    term: np.ndarray
    orders: np.ndarray
    table: np.ndarray
    gram: np.ndarray  # int32 [terms]
    counts: np.ndarray  # int32 [terms]
    dense_at: np.ndarray  # int64 [terms]: which of the image's dense rows, -1 for postings
    n_dense: int
    seen: np.ndarray  # uint8 [FILTER]
    keys: np.ndarray  # int32 [a power of 2]: n-gram, -1 for none
    first: np.ndarray  # int64: its first term


@njit(cache=True, inline="always")
def _hash(gram):
    return (np.uint32(gram) * PHI) >> np.uint32(12)


@njit(cache=True, inline="always")
def _slot(gram, keys):
    """Where the n-gram is in the hash table, or the free place where it would be."""
    mask = np.uint32(keys.shape[0] - 1)
    at = _hash(gram) & mask
    while keys[at] != gram and keys[at] >= 0:
        at = (at + np.uint32(1)) & mask
    return at


@njit(cache=True)
def value_of(c, r, ix, im, found):
    """The value of one caption, each rounding as `score_chunk` does it: postings in the terms' order, each product in
    float32 and their sum in float64; then the dense rows, four to a float32 sum."""
    total, n_found = 0.0, 0
    d, norms = ix.class_of_rank[r], ix.norms[r]
    for p in range(ix.ptr[c], ix.ptr[c + 1]):
        g = ix.gram[p]
        if im.seen[_hash(g) & np.uint32(FILTER - 1)] == 0:
            continue
        at = _slot(g, im.keys)
        if im.keys[at] < 0:
            continue
        k = im.first[at]
        while im.counts[k] != ix.counts[p]:
            k += 1
        if im.dense_at[k] < 0:
            total += np.float64(im.table[k, d] * norms[im.orders[k]])
        else:
            found[n_found] = k
            n_found += 1
    x = 0
    while x < n_found:
        k = found[x]
        four = im.dense_at[k] // 4
        part = im.table[k, d] * norms[im.orders[k]]
        x += 1
        if four < im.n_dense // 4:
            while x < n_found and im.dense_at[found[x]] // 4 == four:
                k = found[x]
                part = fma(im.table[k, d], norms[im.orders[k]], part)
                x += 1
        total += np.float64(part)
    return total


@njit(cache=True)
def terms_of(term, orders, table, ix):
    """The image's terms with their hash table."""
    size = 256
    while size < 4 * term.shape[0]:
        size *= 2
    keys, first = np.full(size, -1, np.int32), np.empty(size, np.int64)
    seen, dense_at, n_dense = np.zeros(FILTER, np.uint8), np.full(term.shape[0], -1, np.int64), 0
    gram, counts = np.empty(term.shape[0], np.int32), np.empty(term.shape[0], np.int32)
    for k in range(term.shape[0]):
        g = ix.gram_of[term[k]]
        gram[k], counts[k] = g, ix.term_count[term[k]]
        at = _slot(g, keys)
        if keys[at] < 0:
            keys[at], first[at] = g, k
            seen[_hash(g) & np.uint32(FILTER - 1)] = 1
        if ix.dense_row[term[k]] >= 0:
            dense_at[k] = n_dense
            n_dense += 1
    return Terms(term, orders, table, gram, counts, dense_at, n_dense, seen, keys, first)


@njit(fastmath={"nnan", "nsz", "reassoc"}, cache=True)
def _highest(row):
    """The largest of a row without negative numbers."""
    highest = np.float32(0)
    for d in range(row.shape[0]):
        highest = max(highest, row[d])
    return highest


@njit(cache=True)
def _share(k, ix, im):
    """What the table of a term is multiplied by for q."""
    return np.float32(1 / (im.counts[k] * np.sqrt(ix.gain[im.gram[k]])))


@njit(cache=True)
def _grams(ix, im):
    """The n-grams with a weight: their first terms, how many captions have each, and the largest q of any class."""
    most = im.term.shape[0]
    begin, df, highest = np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(most, np.float32)
    n, k = 0, 0
    while k < most:
        g = im.gram[k]
        weighs = ix.gain[g] > 0
        begin[n], df[n] = k, 0
        while k < most and im.gram[k] == g:
            df[n] += ix.post_ptr[im.term[k] + 1] - ix.post_ptr[im.term[k]]
            if weighs:
                highest[n] = max(highest[n], _highest(im.table[k]) * _share(k, ix, im))
            k += 1
        n += weighs
    return begin[:n], df[:n], highest[:n]


@njit(cache=True)
def _walk(k, ix, im, sums):
    """Add what the terms of the n-gram that begins at k gain to the sums of the captions that have it."""
    g = im.gram[k]
    while k < im.term.shape[0] and im.gram[k] == g:
        row = im.table[k]
        post = ix.post[ix.post_ptr[im.term[k]] : ix.post_ptr[im.term[k] + 1]]
        norms = post.view(np.float32)
        for p in range(post.shape[0]):
            gain = row[post[p, 1] & np.uint32(255)] * norms[p, 1]
            sums[post[p, 0]] += np.uint16(np.int32(gain) + np.int32(1))
        k += 1


@njit(cache=True, inline="always")
def _bound(parts, most):
    """What a caption with these norms, a byte an order, gains at most: `most` float32 [orders] where they are 1."""
    bound = np.float32(0)
    for o in range(ORDERS):
        bound += most[o] * np.float32((parts >> np.uint32(8 * o)) & np.uint32(255))
    return bound * np.float32(1 / 255)


@njit(cache=True)
def _lowest(least, parts, most, lowest):
    """Fill, by block, the sum that reaches `least` units with the bound of the block."""
    for block in range(lowest.shape[0]):
        lowest[block] = np.uint16(max(np.float32(0), least - _bound(parts[block], most)))


@njit(cache=True)
def _reaching(sums, lowest, out):
    """Ranks whose sum is `lowest` of their block or more, as far as there is room; how many."""
    n = 0
    for block in range(sums.shape[0]):
        some, low = sums[block], lowest[block]
        hits = np.uint16(0)
        for j in range(BLOCK):
            hits |= np.uint16(some[j] >= low)
        if hits:
            for j in range(BLOCK):
                if some[j] >= low:
                    if n == out.shape[0]:
                        return n + 1
                    out[n] = block * BLOCK + j
                    n += 1
    return n


@njit(cache=True)
def _leaders(sums, values, ranks):
    """The captions of the largest sums above 0, as a heap; how many."""
    n, gate = 0, np.uint16(0)
    for block in range(sums.shape[0]):
        some = sums[block]
        hits = np.uint16(0)
        for j in range(BLOCK):
            hits |= np.uint16(some[j] > gate)
        if hits:
            for j in range(BLOCK):
                if some[j] > gate:
                    n = push(np.float32(some[j]), block * BLOCK + j, values, ranks, n)
                    if n == values.shape[0]:
                        gate = np.uint16(values[0])
    return n


@njit(cache=True)
def _rest(highest, orders, begin, by_df):
    """float32 [n-grams + 1]: what a caption gains at most from all but the x rarest n-grams."""
    n = by_df.shape[0]
    rest, squares = np.zeros(n + 1, np.float32), np.zeros(ORDERS, np.float32)
    for x in range(n - 1, -1, -1):
        squares[orders[begin[by_df[x]]]] += highest[by_df[x]] ** 2
        rest[x] = np.sqrt(squares).sum()
    return rest


@njit(cache=True)
def _rest_by_class(ix, im, begin, left):
    """float32 [classes, orders]: what a caption of each length gains at most from these n-grams, by order."""
    n_classes = im.table.shape[1]
    squares, q = np.zeros((ORDERS, n_classes), np.float32), np.empty(n_classes, np.float32)
    for x in left:
        k, g, mine = begin[x], im.gram[begin[x]], squares[im.orders[begin[x]]]
        q[:] = 0
        while k < im.term.shape[0] and im.gram[k] == g:
            share, row = _share(k, ix, im), im.table[k]
            for d in range(n_classes):
                q[d] = max(q[d], row[d] * share)
            k += 1
        for d in range(n_classes):
            mine[d] += q[d] * q[d]
    return np.ascontiguousarray(np.sqrt(squares).T)


@njit(cache=True)
def _level(df, n_captions):
    """Of the fewest n-grams that have those in at least df captions among them."""
    level = 0
    while df <= LEVELS[level] * n_captions:
        level += 1
    return level


class Room(NamedTuple):
    """Of one worker: what it writes for an image."""

    sums: np.ndarray  # uint16 [blocks, BLOCK], by rank
    lowest: np.ndarray  # uint16 [blocks]
    ranks: np.ndarray  # int32 [half of the captions]
    bounds: np.ndarray  # float32, of `ranks`
    order: np.ndarray  # int32: likewise
    lead_sums: np.ndarray  # float32 [leaders]
    lead_ranks: np.ndarray  # int64 [leaders]


@njit(cache=True)
def _candidates(sums, level, by_class, least, room, leaders, ix):
    """Put the captions beside leaders that the bound cannot rule out into `room.order`, about by falling bound, as
    places in `room.ranks`; how many, or -1 if too many."""
    _lowest(least, ix.most_common[level], _most(by_class), room.lowest)
    n_found, parts = _reaching(room.sums, room.lowest, room.ranks), ix.common[level]
    if n_found > room.ranks.shape[0]:
        return -1
    start = np.zeros(STEPS + 1, np.int64)
    for x in range(n_found):
        r = room.ranks[x]
        room.bounds[x] = -1
        if r < parts.shape[0] and not (sums[r] == 0 and (leaders == r).any()):
            room.bounds[x] = sums[r] + _bound(parts[r], by_class[ix.class_of_rank[r]])
        if room.bounds[x] >= least:
            start[_step(room.bounds[x] - least) + 1] += 1
    for step in range(STEPS):
        start[step + 1] += start[step]
    n = start[STEPS]
    for x in range(n_found):
        if room.bounds[x] >= least:
            step = _step(room.bounds[x] - least)
            room.order[start[step]] = x
            start[step] += 1
    return n


@njit(cache=True, inline="always")
def _step(above):
    """Of STEPS, the first for bounds far above the least."""
    return max(0, STEPS - 1 - (int(above) >> 4))


@njit(cache=True)
def _most(by_class):
    """float32 [orders]: the largest of any class."""
    most = np.zeros(ORDERS, np.float32)
    for d in range(by_class.shape[0]):
        for o in range(ORDERS):
            most[o] = max(most[o], by_class[d, o])
    return most


@njit(cache=True)
def _image(ix, im, room, heap, rows, full):
    """The best captions into the heap; captions whose values were computed (-1: too many, nothing was found), and
    gains added up."""
    sums, units = room.sums.reshape(-1), np.float32(UNITS / full)
    n_captions = ix.row_of_rank.shape[0]
    found = np.empty(im.n_dense + 1, np.int64)
    begin, df, highest = _grams(ix, im)
    by_df = np.argsort(df)
    rest = _rest(highest, im.orders, begin, by_df)
    x, walked = 0, 0
    while x < len(df) and (x == 0 or walked + df[by_df[x]] <= FIRST * n_captions):
        _walk(begin[by_df[x]], ix, im, sums)
        walked += df[by_df[x]]
        x += 1
    leaders, n = room.lead_ranks[: _leaders(room.sums, room.lead_sums, room.lead_ranks)], 0
    for r in leaders:
        row = ix.row_of_rank[r]
        n = push(np.float32(whole(value_of(row, r, ix, im, found), full)), row, heap, rows, n)
    if n < heap.shape[0] or heap[0] <= 0:
        return -1, walked
    while x < len(df) and rest[x] * COMMON >= heap[0] / SLACK:
        _walk(begin[by_df[x]], ix, im, sums)
        walked += df[by_df[x]]
        x += 1
    for r in leaders:
        sums[r] = 0
    by_class = _rest_by_class(ix, im, begin, by_df[x:]) * units
    level = _level(df[by_df[x]] if x < len(df) else n_captions, n_captions)
    n_found, looked = _candidates(sums, level, by_class, heap[0] / SLACK * units, room, leaders, ix), 0
    for x in room.order[: max(n_found, 0)]:
        if room.bounds[x] >= heap[0] / SLACK * units:
            r, row = room.ranks[x], ix.row_of_rank[room.ranks[x]]
            n = push(np.float32(whole(value_of(row, r, ix, im, found), full)), row, heap, rows, n)
            looked += 1
    return (-1 if n_found < 0 else looked + len(leaders)), walked


@njit(cache=True)
def _room(n_captions, k):
    half, lead, blocks = max(1, n_captions // 2), min(k + k // 4, n_captions), -(-n_captions // BLOCK)
    return Room(
        np.zeros((blocks, BLOCK), np.uint16), np.empty(blocks, np.uint16), np.empty(half, np.int32),
        np.empty(half, np.float32), np.empty(half, np.int32), np.empty(lead, np.float32), np.empty(lead, np.int64),
    )  # fmt: skip


@njit(cache=True)
def _images(w, workers, start, used, term, orders, table, ix, full, out_rows, out_values, pairs, postings):
    """Every `workers`-th image from w on."""
    room = _room(ix.row_of_rank.shape[0], out_rows.shape[1])
    for b in range(w, start.shape[0] - 1, workers):
        some = slice(start[b], start[b] + used[b])
        im = terms_of(term[some], orders[some], table[some], ix)
        pairs[b], postings[b] = _image(ix, im, room, out_values[b], out_rows[b], full)
        room.sums[:] = 0


@njit(parallel=True, cache=True)
def tops(workers, start, used, term, orders, table, ix, full, out_rows, out_values, pairs, postings):
    """The best captions of each image, unsorted, into out_rows int64 and out_values float32 [images, k].

    pairs int64 [images]: captions whose whole value was computed; -1 where the bound left too many, and the image is to
    be scored in full. postings int64 [images]: gains added up for the bound.
    """
    for w in prange(workers):
        _images(w, workers, start, used, term, orders, table, ix, full, out_rows, out_values, pairs, postings)


@njit(parallel=True, cache=True)
def listed(workers, start, used, term, orders, table, ix, full, ptr, rows, rank, values):
    """Fill the values of captions rows[ptr[image] : ptr[image + 1]], float32 [len(rows)]."""
    for w in prange(workers):
        for b in range(w, start.shape[0] - 1, workers):
            some = slice(start[b], start[b] + used[b])
            im = terms_of(term[some], orders[some], table[some], ix)
            found = np.empty(im.n_dense + 1, np.int64)
            for k in range(ptr[b], ptr[b + 1]):
                values[k] = whole(value_of(rows[k], rank[rows[k]], ix, im, found), full)
