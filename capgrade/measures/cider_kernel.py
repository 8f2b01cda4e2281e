"""Kernels of CIDEr-D: folding an image's references, walking the postings of a chunk of captions.

Tables come in named tuples. Loops over images have a first and a last one, for `in_threads`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import ImagePairs
from capgrade.measures.ngrams import MAX_ORDER, Postings, Sentences, slot_of

ROUNDING = 1e-6  # what is so near to the value of equal captions is that value


class Form(NamedTuple):
    """Which tf-idf cosine."""

    clip: bool  # an n-gram of the caption counts at most as often as the reference has it
    sigma: float  # of the penalty, inf for none
    scale: float = 10.0 / MAX_ORDER  # the value of equal captions, divided by the orders


class Weighted(NamedTuple):
    """Sentences and their norms."""

    sentences: Sentences
    inverse: np.ndarray  # float64 [sentences, orders]: 1 / norm of the weights, 0 for a norm of 0


class Weights(NamedTuple):
    """What n-grams and differences of length weigh."""

    gain: np.ndarray  # float64 [n_grams]: squared inverse document frequency
    order: np.ndarray  # int8 [n_grams]
    length_class: np.ndarray  # int32 [n_captions]
    penalty: np.ndarray  # float32 [classes, classes]


class Ranked(NamedTuple):
    """The captions in order of length within each chunk, and where a chunk's lengths start."""

    class_start: np.ndarray  # int64 [chunks, classes + 1]; of a kernel's chunk [classes + 1]
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


class ReferenceTerms(NamedTuple):
    """The n-grams of an image's references: an open hash table, and what each weighs in each reference."""

    places: np.ndarray  # int32 [a power of two]: -1 where free
    gram: np.ndarray  # int32 [terms]
    counts: np.ndarray  # int32 [terms, references]
    weight: np.ndarray  # float64 [terms, references]: count x gain / norm


@njit(cache=True)
def terms_of(refs, weighted, gain):
    """The n-grams of an image's references, in the order in which they come."""
    references, most, size, used = weighted.sentences, 1, 4, 0
    for r in refs:
        for n in range(references.start.shape[1]):
            most += references.stop[r, n] - references.start[r, n]
    while size < 4 * most:
        size *= 2
    places, gram = np.full(size, -1, np.int32), np.empty(most, np.int32)
    counts, weight = np.zeros((most, refs.shape[0]), np.int32), np.zeros((most, refs.shape[0]))
    for q in range(refs.shape[0]):
        for n in range(references.start.shape[1]):
            for p in range(references.start[refs[q], n], references.stop[refs[q], n]):
                g, c = references.gram[p], references.counts[p]
                at = slot_of(g, places, gram)
                if places[at] < 0:
                    places[at], gram[used] = used, g
                    used += 1
                counts[places[at], q], weight[places[at], q] = c, c * gain[g] * weighted.inverse[refs[q], n]
    return ReferenceTerms(places, gram[:used], counts, weight)


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


@njit(nogil=True, fastmath={"contract", "nsz"}, cache=True)  # no sum in another order
def _fold_images(begin, end, pairs, first, captions, weights, form, postings, folded, cursor, following):
    n_classes = weights.penalty.shape[0]
    for b in range(begin, end):
        row, image = folded.start[b], pairs.images[b]
        refs = pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]
        terms, share = terms_of(refs, captions, weights.gain), form.scale / refs.shape[0]
        for x in range(terms.gram.shape[0]):
            g = terms.gram[x]
            order = weights.order[g]
            for t in range(postings.term_ptr[g], postings.term_ptr[g + 1]):
                at, ending = postings.ptr[t], postings.ptr[t + 1]
                if first:
                    at = first_from(postings.rank, at, ending, first)
                if postings.dense_row[t] < 0 and at == ending:
                    continue
                for d in range(n_classes):
                    folded.table[row, d] = 0
                for q in range(refs.shape[0]):
                    c = terms.counts[x, q]
                    if c:
                        both = (min(postings.term_count[t], c) if form.clip else postings.term_count[t]) * c
                        w = np.float32(both * weights.gain[g] * captions.inverse[refs[q], order] * share)
                        gained, fade = folded.table[row], weights.penalty[weights.length_class[refs[q]]]
                        for d in range(n_classes):
                            gained[d] += w * fade[d]
                folded.term[row], cursor[row], folded.ending[row], folded.order[row] = t, at, ending, order
                following[row] = postings.rank[at] if postings.dense_row[t] < 0 else -1
                row += 1
        folded.used[b] = row - folded.start[b]


def fold_references(
    pairs: ImagePairs, start: np.ndarray, first: int, captions: Weighted, weights: Weights, form: Form,
    postings: Postings,
) -> tuple[ReferenceTable, np.ndarray, np.ndarray]:  # fmt: skip
    """The terms of each of `pairs.images`, from `start` int64 [images + 1] on, and for each a table over length classes
    of what a caption with it gains, before its own norm; and where the postings of each term go on from rank `first`,
    and the rank there, -1 for a dense row: both int64 [terms]."""
    n_terms, used = start[-1], np.empty(len(pairs.images), np.int64)
    term, ending, cursor, following = (np.empty(n_terms, np.int64) for _ in range(4))
    orders, table = np.empty(n_terms, np.int8), np.empty((n_terms, weights.penalty.shape[0]), np.float32)
    folded = ReferenceTable(start, used, term, ending, orders, table)
    args = (pairs, first, captions, weights, form, postings, folded, cursor, following)
    in_threads(_fold_images, len(used), *args)
    return folded, cursor, following


@njit(cache=True)
def whole(value, full):
    """The value of equal captions, where rounding alone is between."""
    return full if value > full * (1 - ROUNDING) else value


@njit(nogil=True, cache=True, fastmath={"contract"})  # fused, in the order that is written
def score_images(begin, end, folded, cursor, following, postings, ranked, full, first, last, out):
    """Captions first..last, which have these ranks too, into out; cursors move on behind them.

    A posting is a rank alone: what else a caption has is read from the chunk's own rows, which stay in the cache.
    """
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
