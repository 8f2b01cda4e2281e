"""Kernels of BLEU's exact tops: a caption without a common k-gram has next to nothing.

BLEU-k is a geometric mean, so that where no k-gram matches it is at most what 1e-15 in place of the matches makes of
it. Captions with a k-gram of the references are found by its postings and scored; where they are fewer than are
wanted, or the worst of them is not above that most, those with a (k-1)-gram are, and so on. An image fails where that
would be many captions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.bleu_kernel import TINY, finish
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit

SHARE = 8  # one of so many captions, and no more, are scored
SLACK = 1 + 2**-20  # of bounds: more than roundings take, to float32 as well


class Folded(NamedTuple):
    """The references of images, as `FittedBleu.fold` has them."""

    start: np.ndarray
    used: np.ndarray
    grams: np.ndarray
    most: np.ndarray
    factor: np.ndarray


class Index(NamedTuple):
    """The captions, as `FittedBleu` has them."""

    order: np.ndarray
    lengths: np.ndarray
    length_class: np.ndarray
    term_ptr: np.ndarray
    term_count: np.ndarray
    post_ptr: np.ndarray
    post: np.ndarray
    dense_row: np.ndarray
    dense: np.ndarray
    k: int


class Room(NamedTuple):
    """Of one worker."""

    number: np.ndarray  # int32 [n_captions]: where a caption stands in `found`, -1 for none
    found: np.ndarray  # int32: captions to score
    correct: np.ndarray  # int64 [found, k]: their matches


@njit(cache=True)
def _most_without(n, factor, ix):
    """More than BLEU of any caption that shares no n-gram of n + 1 words or more, float32."""
    most = 0.0
    for d in range(ix.lengths.shape[0]):
        product = 1.0
        for m in range(ix.k):
            product *= (max(ix.lengths[d] - m, 0) if m < n else 0) + TINY
        most = max(most, product ** (1 / ix.k) * factor[d])
    return np.float32(most * SLACK)


@njit(cache=True)
def _collect(n, grams, ix, room, size):
    """Captions that share an n-gram of n + 1 words, into `found` after the first `size`: how many there are then, -1
    where there may not be room for them."""
    left = room.found.shape[0] - size
    for g in grams:
        if ix.order[g] == n:
            left -= ix.post_ptr[ix.term_ptr[g + 1]] - ix.post_ptr[ix.term_ptr[g]]
            if ix.dense_row[g] >= 0 or left < 0:
                return -1
    for g in grams:
        if ix.order[g] == n:
            for c in ix.post[ix.post_ptr[ix.term_ptr[g]] : ix.post_ptr[ix.term_ptr[g + 1]]]:
                if room.number[c] < 0:
                    room.found[size], room.number[c] = c, size
                    size += 1
    return size


@njit(cache=True)
def _count(grams, most, ix, room, size):
    """The matches of all captions found."""
    room.correct[:size] = 0
    for x in range(grams.shape[0]):
        g, m = grams[x], most[x]
        n, row = ix.order[g], ix.dense_row[g]
        if row >= 0:
            for j in range(size):
                room.correct[j, n] += min(np.int64(ix.dense[row, room.found[j]]), m)
        for t in range(ix.term_ptr[g], ix.term_ptr[g + 1]):
            gained = min(ix.term_count[t], m)
            for c in ix.post[ix.post_ptr[t] : ix.post_ptr[t + 1]]:
                if room.number[c] >= 0:
                    room.correct[room.number[c], n] += gained


@njit(cache=True)
def _best(grams, most, factor, ix, room, heap, rows, seed, keys):
    """The best captions into the heap: how many were scored, -1 where others may be better."""
    size, done, held, ends = 0, 0, 0, False
    for n in range(ix.k - 1, -1, -1):
        more = _collect(n, grams, ix, room, size)
        if more < 0:
            break
        size = more
        _count(grams, most, ix, room, size)
        for x in range(done, size):
            c = room.found[x]
            value = np.float32(finish(room.correct[x], ix.k) * factor[ix.length_class[c]])
            held = push(value, c, heap, rows, held, seed, keys)
        done, ends = size, held == heap.shape[0] and heap[0] > _most_without(n, factor, ix)
        if ends:
            break
    for c in room.found[:size]:
        room.number[c] = -1
    return size if ends else -1


@njit(cache=True)
def _images(w, workers, folded, ix, seeds, keys, out_rows, out_values, pairs):
    """Every `workers`-th image from w on."""
    n = ix.length_class.shape[0]
    room = Room(np.full(n, -1, np.int32), np.empty(n // SHARE, np.int32), np.empty((n // SHARE, ix.k), np.int64))
    for b in range(w, pairs.shape[0], workers):
        some = slice(folded.start[b], folded.start[b] + folded.used[b])
        grams, most = folded.grams[some], folded.most[some]
        heap, rows = out_values[b], out_rows[b]
        pairs[b] = _best(grams, most, folded.factor[b], ix, room, heap, rows, seeds[b], keys)


@njit(parallel=True, cache=True)
def tops(workers, folded, ix, seeds, keys, out_rows, out_values, pairs):
    """The best captions of each image, equal ones by the hashes `seeds` of images and `keys` of captions (`Ties`),
    unsorted, into out_rows int64 and out_values float32 [images, k].

    pairs int64 [images]: captions that were scored, -1 where others may be better.
    """
    for w in prange(workers):
        _images(w, workers, folded, ix, seeds, keys, out_rows, out_values, pairs)
