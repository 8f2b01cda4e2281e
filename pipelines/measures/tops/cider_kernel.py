"""Kernels of CIDEr-D's exact tops: postings of rare n-grams, a bound on the rest, and whole values of what is left.

The rarest n-grams of an image are walked first; the captions of the largest sums lead, and the worst of the best of
them is the first threshold. Then come ranges of ranks, the most promising first: in each so many more n-grams are
walked that captions with none of them are below the threshold, and what sum and bound do not rule out is scored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.tops.cider_bounds import SLACK, lists_of
from capgrade.pipelines.measures.tops.cider_index import UNITS
from capgrade.pipelines.measures.tops.cider_left import left, level_of, promising
from capgrade.pipelines.measures.tops.cider_terms import terms_of, values_of
from capgrade.pipelines.measures.tops.cider_walk import first_lists, leaders_of, walk_first, walk_range
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit

FEW = 32  # captions that are not worth a wait of their own


class Room(NamedTuple):
    """Of one worker: what it writes for an image."""

    sums: np.ndarray  # uint16 [ranks]
    lowest: np.ndarray  # uint16 [blocks]: the sum that a caption of the block needs
    blocks: np.ndarray  # int64 [blocks]
    touched: np.ndarray  # uint32 [ranks + 1]
    lead_sums: np.ndarray  # float32 [leaders]
    leaders: np.ndarray  # int64 [leaders]: ranks


@njit(cache=True)
def _offer(ranks, ix, im, heap, rows, n, seed, keys):
    """Score captions and offer them to the heap, which holds n; how many it then does."""
    some, values = ix.row_of_rank[ranks], np.empty(ranks.shape[0], np.float32)
    values_of(some, ix, im, values)
    for x in range(some.shape[0]):
        n = push(values[x], some[x], heap, rows, n, seed, keys)
    return n


@njit(cache=True)
def _others(ranks, leaders):
    """Those that are not among the leaders, in place."""
    n = 0
    for r in ranks:
        ranks[n], leads = r, False
        for leader in leaders:
            leads |= leader == r
        n += not leads
    return ranks[:n]


@njit(cache=True)
def _image(ix, im, room, heap, rows, seed, keys):
    """The best captions into the heap; captions whose values were computed, -1 for too many: nothing was found."""
    lists, looked, sums = lists_of(ix, im), 0, room.sums
    n_first = first_lists(lists, ix.first)
    touched = room.touched[: walk_first(n_first, lists, ix, im, sums, room.touched)]
    leaders = room.leaders[: leaders_of(sums, touched, room.lead_sums, room.leaders)]
    n = _offer(leaders, ix, im, heap, rows, 0, seed, keys)
    if n < heap.shape[0] or heap[0] <= 0:
        sums[:] = 0
        return -1
    ranges, n_left = promising(lists, ix), 0
    for j in ranges:
        first, last = j * ix.range_blocks, min((j + 1) * ix.range_blocks, ix.class_start[-1])
        least = heap[0] / SLACK * np.float32(UNITS / im.full)
        level = level_of(j, lists, least, ix)
        walk_range(range(n_first, lists.stop[level]), lists, j, ix, im, sums)
        n_left = left(first, last, level, least, lists, ix, sums, room, n_left)
        if n_left >= FEW or j == ranges[-1]:
            some = _others(room.touched[:n_left], leaders)
            looked += some.shape[0]
            if looked <= ix.pays:
                _offer(some, ix, im, heap, rows, n, seed, keys)
            n_left = 0
    return looked + leaders.shape[0] if looked <= ix.pays else -1


@njit(cache=True)
def _room(ix, k):
    n_ranks, n_blocks, lead = ix.row_of_rank.shape[0], ix.class_start[-1], min(k + k // 4, ix.length_class.shape[0])
    return Room(
        np.zeros(n_ranks, np.uint16), np.empty(n_blocks, np.uint16), np.empty(n_blocks + 1, np.int64),
        np.empty(n_ranks + 1, np.uint32), np.empty(lead, np.float32), np.empty(lead, np.int64),
    )  # fmt: skip


@njit(cache=True)
def _images(w, workers, images, rows, postings, ix, seeds, keys, out_rows, out_values, pairs):
    """Every `workers`-th image from w on."""
    room = _room(ix, out_rows.shape[1])
    for b in range(w, images.shape[0], workers):
        im = terms_of(images[b], rows, postings, ix)
        pairs[b] = _image(ix, im, room, out_values[b], out_rows[b], seeds[b], keys)


@njit(parallel=True, cache=True)
def tops(workers, images, rows, postings, ix, seeds, keys, out_rows, out_values, pairs):
    """The best captions of each image, equal ones by the hashes `seeds` of images and `keys` of captions (`Ties`),
    unsorted, into out_rows int64 and out_values float32 [images, k].

    pairs int64 [images]: captions whose whole value was computed; -1 where the bound left too many, and the image is to
    be scored in full.
    """
    for w in prange(workers):
        _images(w, workers, images, rows, postings, ix, seeds, keys, out_rows, out_values, pairs)


@njit(cache=True)
def _listed(w, workers, images, rows, postings, ix, ptr, captions, values):
    for b in range(w, images.shape[0], workers):
        some = slice(ptr[b], ptr[b + 1])
        values_of(captions[some], ix, terms_of(images[b], rows, postings, ix), values[some])


@njit(parallel=True, cache=True)
def listed(workers, images, rows, postings, ix, ptr, captions, values):
    """Fill the values of captions captions[ptr[image] : ptr[image + 1]], float32 [len(captions)]."""
    for w in prange(workers):
        _listed(w, workers, images, rows, postings, ix, ptr, captions, values)
