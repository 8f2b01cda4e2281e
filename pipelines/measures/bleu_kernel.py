"""Kernels of BLEU: folding an image's references, walking the postings of a chunk of captions.

The arrays are those of `FittedBleu`.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.pipelines.measures.bleu_pairs import SMALL, TINY
from capgrade.schemas.compiled import njit

_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True)
def room(images, ref_ptr, refs, ptr):
    """Where the n-grams of each image start, int64 [images + 1], with room for those of all its references."""
    start = np.zeros(images.shape[0] + 1, np.int64)
    for b in range(images.shape[0]):
        start[b + 1] = start[b]
        for r in refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]]:
            start[b + 1] += ptr[r + 1] - ptr[r]
    return start


@njit(cache=True)
def _fold(refs, ptr, gram, count, words, lengths, precision, grams, most, factor):
    """The n-grams of references, ascending, with their largest counts: how many. And by class of
    length what a caption's matches are multiplied by: its own counts and the brevity penalty."""
    total = 0
    for r in refs:
        grams[total : total + ptr[r + 1] - ptr[r]] = gram[ptr[r] : ptr[r + 1]]
        most[total : total + ptr[r + 1] - ptr[r]] = count[ptr[r] : ptr[r + 1]]
        total += ptr[r + 1] - ptr[r]
    by_gram = np.argsort(grams[:total])
    sorted_grams, sorted_counts = grams[:total][by_gram], most[:total][by_gram]
    used = 0
    for x in range(total):
        if used and grams[used - 1] == sorted_grams[x]:
            most[used - 1] = max(most[used - 1], sorted_counts[x])
        else:
            grams[used], most[used] = sorted_grams[x], sorted_counts[x]
            used += 1
    for d in range(lengths.shape[0]):
        closest = np.int64(-1)
        for r in refs:
            nearer, near = abs(words[r] - lengths[d]), abs(closest - lengths[d])
            if closest < 0 or nearer < near or (nearer == near and words[r] < closest):
                closest = words[r]
        ratio = (lengths[d] + TINY) / (closest + SMALL)
        factor[d] = precision[d] * (np.exp(1 - 1 / ratio) if ratio < 1 else 1.0)
    return used


@njit(parallel=True, cache=True)
def fold_references(
    images, start, ref_ptr, refs, ptr, gram, count, words, lengths, precision, used, grams, most, factor
):
    """Fill, for each image, the n-grams of its references, their largest counts and how many there are; and the
    factors by length."""
    for b in prange(images.shape[0]):
        own, room = refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]], slice(start[b], start[b + 1])
        used[b] = _fold(own, ptr, gram, count, words, lengths, precision, grams[room], most[room], factor[b])


@njit(cache=True, forceinline=True)
def _root(product, k):
    if k == 1:
        return product
    if k == 2:
        return np.sqrt(product)
    if k == 3:
        return np.cbrt(product)
    return np.sqrt(np.sqrt(product))


@njit(parallel=True, fastmath=_FAST, cache=True)
def score_chunk(
    start, used, grams, most, factor, first, order, length_class, term_ptr, term_count, post_ptr, post, dense_row,
    dense, k, out,
):  # fmt: skip
    """Captions first.. into out, float32 [images, captions]."""
    size = out.shape[1]
    for b in prange(out.shape[0]):
        correct = np.zeros((k, size), np.uint16)
        for x in range(start[b], start[b] + used[b]):
            g, m, matches = grams[x], most[x], correct[order[grams[x]]]
            if dense_row[g] >= 0:
                counts, largest = dense[dense_row[g], first : first + size], np.uint16(m)
                for j in range(size):
                    matches[j] += min(counts[j], largest)
            for t in range(term_ptr[g], term_ptr[g + 1]):
                gained, end = np.uint16(min(term_count[t], m)), post_ptr[t + 1]
                p = post_ptr[t] + (np.searchsorted(post[post_ptr[t] : end], first) if first else 0)
                while p < end and post[p] < first + size:
                    matches[post[p] - first] += gained
                    p += 1
        for j in range(size):
            product = 1.0
            for n in range(k):
                product *= correct[n, j] + TINY
            out[b, j] = _root(product, k) * factor[b, length_class[first + j]]
