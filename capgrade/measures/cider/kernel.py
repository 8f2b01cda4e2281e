"""Kernels of CIDEr-D: folding an image's references, walking the postings of a chunk of captions.

Captions are ranked by length within a chunk, and n-grams of more than an eighth of the captions are
rows of a dense matrix instead of postings, so that a dense row is added in a few vectorised runs.
Chunks keep an image's sums in a core's cache, however many captions there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import ImagePairs, own_pairs
from capgrade.measures.ngrams import LAST, MAX_ORDER, Postings, Sentences

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
    penalty: np.ndarray  # float32 [classes, classes of the captions that are scored]


class Ranked(NamedTuple):
    """The captions in order of length within each chunk, and where a chunk's lengths start."""

    class_start: np.ndarray  # int64 [chunks, classes + 1]; of a kernel's chunk [classes + 1]
    rank: np.ndarray  # int32 [n_captions]: position when each chunk is sorted by length
    class_of_rank: np.ndarray  # uint8 or int32 [n_captions]: length class by rank
    norm_of_rank: np.ndarray  # float32 [4, n_captions]: inverse norms by rank


class ReferenceTable(NamedTuple):
    """The references of a block of images as terms: image i has `used[i]` from `start[i]` on."""

    start: np.ndarray  # int64 [images + 1]
    used: np.ndarray  # int64 [images]
    term: np.ndarray  # int64 [terms]
    ending: np.ndarray  # int64 [terms]: where its postings end
    order: np.ndarray  # int8 [terms]
    # float32 [terms, classes]: what a caption of a length gains, without its norm
    table: np.ndarray


class _ReferenceGrams(NamedTuple):
    """The n-grams of images' references: each image's once, in the order in which they come."""

    ptr: np.ndarray  # int64 [images + 1]: those of each image
    references: np.ndarray  # int64 [images]: how many each has
    gram: np.ndarray  # int64 [n-grams]
    start: np.ndarray  # int64 [n-grams]: of the references that have it, in `row` and `counts`
    stop: np.ndarray  # int64 [n-grams]
    row: np.ndarray  # int64: captions
    counts: np.ndarray  # int32: how often


def _grams_of(pairs: ImagePairs, sentences: Sentences) -> _ReferenceGrams:
    """The n-grams of the references of `pairs.images`."""
    image, own = own_pairs(pairs.ref_ptr, pairs.refs, pairs.images)
    begin = sentences.start[own, 0]
    sizes = sentences.stop[own, -1] - begin
    of = np.repeat(np.arange(len(own)), sizes)
    at = np.repeat(begin - np.cumsum(sizes) + sizes, sizes) + np.arange(len(of))
    key = image[of] << 32 | sentences.gram[at]
    order = np.argsort(key, kind="stable")
    start = np.flatnonzero(np.diff(key[order], prepend=-1))
    as_they_come = np.argsort(order[start])
    first, stop = order[start][as_they_come], np.append(start[1:], len(order))[as_they_come]
    ptr = np.searchsorted(image[of[first]], np.arange(len(pairs.images) + 1))
    counts = sentences.counts[at[order]]
    references = np.bincount(image, minlength=len(pairs.images))
    return _ReferenceGrams(
        ptr, references, key[first] & LAST, start[as_they_come], stop, own[of[order]], counts
    )


@njit(nogil=True, fastmath={"contract", "nsz"}, cache=True)  # no sum in another order
def _fold_images(
    begin, end, grams, first, inverse, weights, form, postings, folded, cursor, following
):
    n_classes = weights.penalty.shape[1]
    for b in range(begin, end):
        row, share = folded.start[b], form.scale / grams.references[b]
        for x in range(grams.ptr[b], grams.ptr[b + 1]):
            g = grams.gram[x]
            order = weights.order[g]
            for t in range(postings.term_ptr[g], postings.term_ptr[g + 1]):
                at, ending = postings.ptr[t], postings.ptr[t + 1]
                if first:
                    at += np.searchsorted(postings.rank[at:ending], first)
                if postings.dense_row[t] < 0 and at == ending:
                    continue
                gained = folded.table[row]
                for d in range(n_classes):
                    gained[d] = 0
                for e in range(grams.start[x], grams.stop[x]):
                    r, c = grams.row[e], grams.counts[e]
                    both = (
                        min(postings.term_count[t], c) if form.clip else postings.term_count[t]
                    ) * c
                    w = np.float32(both * weights.gain[g] * inverse[r, order] * share)
                    fade = weights.penalty[weights.length_class[r]]
                    for d in range(n_classes):
                        gained[d] += w * fade[d]
                folded.term[row], cursor[row], folded.ending[row], folded.order[row] = (
                    t,
                    at,
                    ending,
                    order,
                )
                following[row] = postings.rank[at] if postings.dense_row[t] < 0 else -1
                row += 1
        folded.used[b] = row - folded.start[b]


def fold_references(
    pairs: ImagePairs,
    first: int,
    captions: Weighted,
    weights: Weights,
    form: Form,
    postings: Postings,
) -> tuple[ReferenceTable, np.ndarray, np.ndarray]:
    """Fold the references of each of `pairs.images` into a table of what captions gain by a term.

    A gain is before the caption's own norm, by its class of length. Also returns where the postings
    of each term go on from rank `first`, and the rank there, -1 for a dense row: both int64
    [terms].
    """
    grams, used = _grams_of(pairs, captions.sentences), np.empty(len(pairs.images), np.int64)
    terms = np.diff(postings.term_ptr)[grams.gram]
    start = np.append(0, np.cumsum(terms))[grams.ptr]
    n_terms = start[-1]
    term, ending, cursor, following = np.empty((4, n_terms), np.int64)
    orders = np.empty(n_terms, np.int8)
    table = np.empty((n_terms, weights.penalty.shape[1]), np.float32)
    folded = ReferenceTable(start, used, term, ending, orders, table)
    args = (grams, first, captions.inverse, weights, form, postings, folded, cursor, following)
    in_threads(_fold_images, len(used), *args)
    return folded, cursor, following


@njit(nogil=True, cache=True, fastmath={"contract"})  # fused, in the order that is written
def score_images(begin, end, folded, cursor, following, postings, ranked, full, first, last, out):
    """Score captions first..last, whose ranks these are too, into `out`, and move cursors on.

    A posting is a rank alone: what else a caption has is read from the chunk's own rows, which stay
    in the cache.
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
            value = acc[rank[c] - first]
            out[b, c - first] = full if value > full * (1 - ROUNDING) else value
