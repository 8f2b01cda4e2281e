"""Kernels of scene graphs: F-scores by postings for all captions, by look-up for some.

An image's graph is merged from its references' tuples, each with its largest weight. Sums go in the
order of tuple numbers everywhere, so both ways give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import njit
from capgrade.measures.rows import merge_largest


class CaptionTuples(NamedTuple):
    """The captions' tuples, by caption and by tuple."""

    ptr: np.ndarray  # int64 [n_captions + 1]
    tuples: np.ndarray  # int32 [entries], ascending within a caption
    weight: np.ndarray  # float32 [entries]
    total: np.ndarray  # float32 [n_captions]: sum of a caption's weights
    post_ptr: np.ndarray  # int64 [n_tuples + 1]
    post_caption: np.ndarray  # int32 [entries], ascending within a tuple
    post_weight: np.ndarray  # float32 [entries]


@njit(cache=True)
def merge(refs, without, graphs):
    """The tuples of an image's references, sorted, with their weights and the sum of these.

    Caption `without` is left out.
    """
    items, best = merge_largest(
        refs, without, graphs.ptr[:-1], graphs.ptr[1:], graphs.tuples, graphs.weight
    )
    total = np.float32(0)
    for weight in best:
        total += weight
    return items, best, total


@njit(cache=True)
def _f_score(matched, found, caption_total, image_total, beta2):
    """F of precision matched / caption_total and recall found / image_total."""
    below = beta2 * np.float64(matched) * image_total + np.float64(found) * caption_total
    if below <= 0:
        return np.float32(0)
    # In double precision, so that equal sets give 1.
    return np.float32((1 + beta2) * np.float64(matched) * found / below)


@njit(nogil=True, cache=True)
def score_rows(begin, end, images, first, last, ref_ptr, refs, graphs, beta2, out):
    """Captions first..last with images begin..end, into out.

    Each tuple of an image's graph adds to the captions that have it.
    """
    for b in range(begin, end):
        matched, found = np.zeros(last - first, np.float32), np.zeros(last - first, np.float32)
        merged, best, image_total = merge(
            refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]], -1, graphs
        )
        for u in range(merged.shape[0]):
            start, stop = graphs.post_ptr[merged[u]], graphs.post_ptr[merged[u] + 1]
            p = start + np.searchsorted(graphs.post_caption[start:stop], first) if first else start
            while p < stop and graphs.post_caption[p] < last:
                c = graphs.post_caption[p] - first
                matched[c] += graphs.post_weight[p]
                found[c] += best[u]
                p += 1
        for c in range(last - first):
            out[b, c] = _f_score(matched[c], found[c], graphs.total[first + c], image_total, beta2)


@njit(cache=True)
def _score_pair(c, merged, best, image_total, graphs, beta2):
    """F of one caption and a merged graph, both sorted by tuple."""
    matched, found = np.float32(0), np.float32(0)
    u = 0
    for p in range(graphs.ptr[c], graphs.ptr[c + 1]):
        while u < merged.shape[0] and merged[u] < graphs.tuples[p]:
            u += 1
        if u < merged.shape[0] and merged[u] == graphs.tuples[p]:
            matched += graphs.weight[p]
            found += best[u]
    return _f_score(matched, found, graphs.total[c], image_total, beta2)


@njit(nogil=True, cache=True)
def score_pairs(begin, end, order, pairs, graphs, beta2, out):
    """Pairs order[begin:end], into out float32 [pairs]; those of an image follow each other."""
    image, without = np.int64(-1), np.int64(-1)
    for k in order[begin:end]:
        c, i, left = pairs.captions[k], pairs.images[k], np.int64(-1)
        own = pairs.refs[pairs.ref_ptr[i] : pairs.ref_ptr[i + 1]]
        if pairs.leave_out:
            for r in own:
                if r == c:
                    left = c
        if i != image or left != without:
            image, without = i, left
            merged, best, image_total = merge(own, without, graphs)
        out[k] = _score_pair(c, merged, best, image_total, graphs, beta2)
