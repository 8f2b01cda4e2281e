"""Kernels of CIDEr-D: folding an image's references, walking the postings of a chunk of captions.

Tables come in named tuples. Loops over images have a first and a last one, for `in_threads`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit

ROUNDING = 1e-6  # what is so near to the value of equal captions is that value


class Rows(NamedTuple):
    """The captions as rows of n-grams, the images' references among them, and the form of the cosine."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    ptr: np.ndarray  # int64 [n_captions + 1]
    gram: np.ndarray  # int32 [nonzeros]
    counts: np.ndarray  # int32 [nonzeros]; a tuple has a method `count`
    gain: np.ndarray  # float64 [n_grams]: squared inverse document frequency
    order: np.ndarray  # int8 [n_grams]
    inv_norm: np.ndarray  # float64 [n_captions, 4]: 0 where the norm is 0
    length_class: np.ndarray  # int32 [n_captions]
    penalty: np.ndarray  # float32 [classes, classes]
    clip: bool  # a caption's count counts at most as often as in the reference
    scale: float  # the value of equal captions, divided by the orders


class Postings(NamedTuple):
    """The captions of each (n-gram, count) term, as ranks."""

    term_ptr: np.ndarray  # int64 [n_grams + 1]
    term_count: np.ndarray  # int32 [terms]
    ptr: np.ndarray  # int64 [terms + 1]
    rank: np.ndarray  # int32 [postings]
    dense_row: np.ndarray  # int32 [terms]: row in `dense`, -1 for postings
    dense: np.ndarray  # float32 [dense terms, n_captions], columns by rank


class Ranked(NamedTuple):
    """The captions in order of length within each chunk, and where a chunk's lengths start."""

    class_start: np.ndarray  # int64 [classes + 1], of the chunk
    rank: np.ndarray  # int32 [n_captions]: position when each chunk is sorted by length
    class_of_rank: np.ndarray  # uint8 or int32 [n_captions]: length class by rank
    norm_of_rank: np.ndarray  # float32 [4, n_captions]: inverse norms by rank


class ReferenceTable(NamedTuple):
    """The references of a block of images as terms, those of an image from `start` on, `used` of them."""

    start: np.ndarray  # int64 [images + 1]
    used: np.ndarray  # int64 [images]
    term: np.ndarray  # int64 [terms]
    ending: np.ndarray  # int64 [terms]: where its postings end
    order: np.ndarray  # int8 [terms]
    table: np.ndarray  # float32 [terms, classes]: what a caption of a length gains, before its own norm


@njit(cache=True, forceinline=True)
def _shared(found, wanted, clip):
    """Product of the counts of an n-gram in a caption and in a reference, the caption's clipped or not."""
    return (min(found, wanted) if clip else found) * wanted


@njit(cache=True)
def _room(images, rows, term_ptr):
    """Where the terms of each image start, int64 [images + 1], with room for all n-grams of all its references."""
    ref_ptr, refs, ptr, gram = rows.ref_ptr, rows.refs, rows.ptr, rows.gram
    start = np.zeros(images.shape[0] + 1, np.int64)
    for b in range(images.shape[0]):
        start[b + 1] = start[b]
        for q in range(ref_ptr[images[b]], ref_ptr[images[b] + 1]):
            for p in range(ptr[refs[q]], ptr[refs[q] + 1]):
                start[b + 1] += term_ptr[gram[p] + 1] - term_ptr[gram[p]]
    return start


@njit(cache=True)
def first_from(values, begin, end, wanted):
    """Where the first of the sorted values[begin:end] stands that is not below `wanted`; `end` when all are."""
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(fastmath={"contract", "nsz"}, cache=True)  # no sum in another order, whoever it is compiled into
def fold_image(i, first, rows, postings, row, folded, cursor):
    """The terms of image i from `row` on; returns the row behind them."""
    ref_ptr, refs, ptr, gram, count, gain = rows.ref_ptr, rows.refs, rows.ptr, rows.gram, rows.counts, rows.gain
    order, inv_norm, length_class, penalty = rows.order, rows.inv_norm, rows.length_class, rows.penalty
    clip, scale = rows.clip, rows.scale
    term_ptr, term_count, dense_row = postings.term_ptr, postings.term_count, postings.dense_row
    post_ptr, post_rank = postings.ptr, postings.rank
    term, ending, orders, table = folded.term, folded.ending, folded.order, folded.table
    begin, last, n_classes = ref_ptr[i], ref_ptr[i + 1], penalty.shape[0]
    total = 0
    for q in range(begin, last):
        total += ptr[refs[q] + 1] - ptr[refs[q]]
    grams, cells, owners = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    k = 0
    for q in range(begin, last):
        for p in range(ptr[refs[q]], ptr[refs[q] + 1]):
            grams[k], cells[k], owners[k] = gram[p], p, refs[q]
            k += 1
    by_gram = np.argsort(grams)
    share = scale / (last - begin)
    k = 0
    while k < total:
        g = grams[by_gram[k]]
        end = k
        while end < total and grams[by_gram[end]] == g:
            end += 1
        for t in range(term_ptr[g], term_ptr[g + 1]):
            at = post_ptr[t]
            if first:
                at = first_from(post_rank, at, post_ptr[t + 1], first)
            if dense_row[t] < 0 and at == post_ptr[t + 1]:
                continue
            for d in range(n_classes):
                table[row, d] = 0
            for x in range(k, end):
                r, c = owners[by_gram[x]], count[cells[by_gram[x]]]
                w = np.float32(_shared(term_count[t], c, clip) * gain[g] * inv_norm[r, order[g]] * share)
                fade = penalty[length_class[r]]
                for d in range(n_classes):
                    table[row, d] += w * fade[d]
            term[row], cursor[row], ending[row], orders[row] = t, at, post_ptr[t + 1], order[g]
            row += 1
        k = end
    return row


@njit(nogil=True, cache=True)
def _fold_images(begin, end, images, first, rows, postings, folded, cursor, following):
    for b in range(begin, end):
        start = folded.start[b]
        row = fold_image(images[b], first, rows, postings, start, folded, cursor)
        folded.used[b] = row - start
        for k in range(start, row):
            following[k] = postings.rank[cursor[k]] if postings.dense_row[folded.term[k]] < 0 else -1


def fold_references(
    images: np.ndarray, first: int, rows: Rows, postings: Postings
) -> tuple[ReferenceTable, np.ndarray, np.ndarray]:
    """The terms of each image, and for each a table over length classes of what a caption with it gains, before its
    own norm; and where the postings of each term go on from rank `first`, and the rank there, -1 for a dense row: both
    int64 [terms]."""
    start = _room(images, rows, postings.term_ptr)
    n_terms, used = start[-1], np.empty(images.shape[0], np.int64)
    term, ending, cursor, following = (np.empty(n_terms, np.int64) for _ in range(4))
    orders, table = np.empty(n_terms, np.int8), np.empty((n_terms, rows.penalty.shape[0]), np.float32)
    folded = ReferenceTable(start, used, term, ending, orders, table)
    in_threads(_fold_images, len(images), images, first, rows, postings, folded, cursor, following)
    return folded, cursor, following


@njit(cache=True)
def whole(value, full):
    """The value of equal captions, where rounding alone is between."""
    return full if value > full * (1 - ROUNDING) else value


@njit(nogil=True, cache=True, fastmath={"contract"})  # fused, in the order that is written
def _score_images(begin, end, folded, cursor, following, postings, ranked, full, first, last, out):
    start, used = folded.start, folded.used
    term, ending, orders, table = folded.term, folded.ending, folded.order, folded.table
    post_rank, dense_row, dense = postings.rank, postings.dense_row, postings.dense
    class_start, rank, class_of_rank, norm_of_rank = ranked
    acc, rows = np.empty(last - first), np.empty(dense.shape[0], np.int64)
    for b in range(begin, end):
        acc[:] = 0  # double: a long caption adds up thousands of small terms
        n_rows = 0
        for k in range(start[b], start[b] + used[b]):
            if following[k] < 0:
                rows[n_rows] = k
                n_rows += 1
            elif following[k] < last:
                p, stop, norm = cursor[k], ending[k], norm_of_rank[orders[k]]
                r = following[k]
                while r < last:
                    acc[r - first] += table[k, class_of_rank[r]] * norm[r]
                    p += 1
                    if p == stop:
                        r = np.int64(rank.shape[0])
                        break
                    r = np.int64(post_rank[p])
                cursor[k], following[k] = p, r
        for d in range(class_start.shape[0] - 1):
            x = 0
            while x + 4 <= n_rows:
                k0, k1, k2, k3 = rows[x], rows[x + 1], rows[x + 2], rows[x + 3]
                a0, a1, a2, a3 = table[k0, d], table[k1, d], table[k2, d], table[k3, d]
                d0, d1 = dense[dense_row[term[k0]]], dense[dense_row[term[k1]]]
                d2, d3 = dense[dense_row[term[k2]]], dense[dense_row[term[k3]]]
                for j in range(class_start[d], class_start[d + 1]):
                    acc[j - first] += a3 * d3[j] + (a2 * d2[j] + (a1 * d1[j] + a0 * d0[j]))
                x += 4
            while x < n_rows:
                a0, d0 = table[rows[x], d], dense[dense_row[term[rows[x]]]]
                for j in range(class_start[d], class_start[d + 1]):
                    acc[j - first] += a0 * d0[j]
                x += 1
        for c in range(first, last):
            out[b, c - first] = whole(acc[rank[c] - first], full)


def score_chunk(
    folded: ReferenceTable, cursor: np.ndarray, following: np.ndarray, postings: Postings, ranked: Ranked, full: float,
    first: int, last: int, out: np.ndarray,
) -> None:  # fmt: skip
    """Captions first..last, which have these ranks too, into out; cursors move on behind them.

    A posting is a rank alone: what else a caption has is read from the chunk's own rows, which stay in the cache.
    """
    args = (folded, cursor, following, postings, ranked, full, first, last, out)
    in_threads(_score_images, len(folded.used), *args)
