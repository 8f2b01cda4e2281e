"""Kernels of scene graphs' exact tops: sums over postings as of all pairs, F only of captions that may be best.

Whether F reaches the worst of the best is asked without a division, of many captions at once. Tuples that many captions
have are dense rows. Sums go in the order of tuple numbers, so that they have the bits of all pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.measures.scene_graph.kernel import f_score, merge
from capgrade.pipelines.measures.tops.heap import BLOCK, push
from capgrade.schemas.compiled import njit

SLACK = np.float32(1 - 2**-12)  # the question is a few roundings of float32


class Index(NamedTuple):
    """Which captions have a tuple, and with what weight."""

    post_ptr: np.ndarray  # int64 [n_tuples + 1]
    post_caption: np.ndarray  # int32 [entries], ascending within a tuple
    post_weight: np.ndarray  # float32 [entries]
    dense_row: np.ndarray  # int32 [n_tuples]: row in `dense`, -1 for postings alone
    dense: np.ndarray  # float32 [dense tuples, n_captions]: weights, 0 for captions without it


@njit(cache=True)
def _add(tuples, best, first, at, ix, matched, found):
    """What tuples add to the captions from `first` on. at int64 [tuples]: the next posting of each."""
    matched[:], found[:] = 0, 0
    for u in range(tuples.shape[0]):
        row, most = ix.dense_row[tuples[u]], best[u]
        if row >= 0:
            weights = ix.dense[row, first : first + matched.shape[0]]
            for j in range(matched.shape[0]):
                matched[j] += weights[j]
                found[j] += most if weights[j] > 0 else np.float32(0)
        else:
            p, stop, last = at[u], ix.post_ptr[tuples[u] + 1], first + matched.shape[0]
            while p < stop and ix.post_caption[p] < last:
                matched[ix.post_caption[p] - first] += ix.post_weight[p]
                found[ix.post_caption[p] - first] += most
                p += 1
            at[u] = p


@njit(cache=True)
def _offer(matched, found, total, image_total, beta2, first, heap, rows, n, seed, keys):
    """Offer captions from `first` on to the heap: how many it holds then, and of how many F was computed. One without a
    match is passed over while the worst of a full heap has one."""
    precision, recall, valued = np.float32(1 / (1 + beta2)), np.float32(beta2 / (1 + beta2)) * image_total, 0
    for start in range(0, matched.shape[0], BLOCK):
        some, same, totals = matched[start : start + BLOCK], found[start : start + BLOCK], total[start : start + BLOCK]
        every = n < heap.shape[0] or heap[0] == 0
        least, hits = np.float32(0) if every else heap[0] * SLACK, np.uint8(every)
        for j in range(some.shape[0]):
            hits |= np.uint8(some[j] * same[j] > least * (recall * some[j] + precision * same[j] * totals[j]))
        if hits:
            for j in range(some.shape[0]):
                every = n < heap.shape[0] or heap[0] == 0
                if every or some[j] * same[j] > least * (recall * some[j] + precision * same[j] * totals[j]):
                    value = f_score(some[j], same[j], totals[j], image_total, beta2)
                    n = push(value, first + start + j, heap, rows, n, seed, keys)
                    valued += 1
    return n, valued


@njit(cache=True)
def _images(
    w, workers, images, ref_ptr, refs, ptr, tuples, weight, total, ix, beta2, seeds, keys, out_rows, out_values, pairs
):  # fmt: skip
    """Every `workers`-th image from w on."""
    matched, found = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.float32)
    for b in range(w, images.shape[0], workers):
        merged, best, image_total = merge(images[b], -1, ref_ptr, refs, ptr, tuples, weight)
        at, n, pairs[b] = ix.post_ptr[merged], 0, 0
        for first in range(0, total.shape[0], CHUNK):
            size = min(CHUNK, total.shape[0] - first)
            _add(merged, best, first, at, ix, matched[:size], found[:size])
            n, valued = _offer(
                matched[:size], found[:size], total[first : first + size], image_total, beta2, first, out_values[b],
                out_rows[b], n, seeds[b], keys,
            )  # fmt: skip
            pairs[b] += valued


@njit(parallel=True, cache=True)
def tops(
    workers, images, ref_ptr, refs, ptr, tuples, weight, total, ix, beta2, seeds, keys, out_rows, out_values, pairs
):  # fmt: skip
    """The best captions of each image, equal ones by the hashes `seeds` of images and `keys` of captions (`Ties`),
    unsorted, into out_rows int64 and out_values float32 [images, k].

    pairs int64 [images]: captions whose F was computed.
    """
    for w in prange(workers):
        _images(
            w, workers, images, ref_ptr, refs, ptr, tuples, weight, total, ix, beta2, seeds, keys, out_rows, out_values,
            pairs,
        )  # fmt: skip
