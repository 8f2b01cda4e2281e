"""The terms of one image, and the value of a single caption, to the last bit as `score_chunk` has it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.cider_kernel import fold_image, whole
from capgrade.pipelines.measures.tops.cider_index import GRAMS
from capgrade.schemas.compiled import njit
from capgrade.schemas.fused import fma
from capgrade.schemas.prefetch import prefetch

PHI = np.uint32(0x9E3779B1)
FILTER = 8192  # bytes that tell most terms that no reference has
AHEAD = 32  # captions whose rows are on their way


class Terms(NamedTuple):
    """Of one image: as `Folded`, with a hash table."""

    term: np.ndarray  # int64 [terms], ascending
    orders: np.ndarray  # int8 [terms]
    table: np.ndarray  # float32 [terms, classes]
    gram: np.ndarray  # int32 [terms]
    share: np.ndarray  # float32 [terms]: 1 / (t idf), 0 where that weighs nothing
    begin: np.ndarray  # int64 [terms]: of the postings
    end: np.ndarray  # int64 [terms]
    dense_at: np.ndarray  # int64 [terms]: which of the image's dense rows, -1 for postings
    n_dense: int
    seen: np.ndarray  # uint8 [FILTER]
    keys: np.ndarray  # int32 [a power of 2]: term, -1 for none
    place: np.ndarray  # int32: where in `term`
    full: float  # the value of equal captions


@njit(cache=True, inline="always")
def _hash(term):
    return (np.uint32(term) * PHI) >> np.uint32(12)


@njit(cache=True, inline="always")
def _slot(term, keys):
    """Where the term is in the hash table, or the free place where it would be."""
    mask = np.uint32(keys.shape[0] - 1)
    at = _hash(term) & mask
    while keys[at] != term and keys[at] >= 0:
        at = (at + np.uint32(1)) & mask
    return at


@njit(cache=True)
def _ask_for_terms(image, rows, postings):
    """Ask for all that is known of the n-grams of the image's references; how many terms there may be."""
    n = 0
    for r in rows.refs[rows.ref_ptr[image] : rows.ref_ptr[image + 1]]:
        for p in range(rows.ptr[r], rows.ptr[r + 1]):
            prefetch(postings.term_ptr, rows.gram[p])
            prefetch(postings.term_ptr, rows.gram[p] + 1)
    for r in rows.refs[rows.ref_ptr[image] : rows.ref_ptr[image + 1]]:
        for p in range(rows.ptr[r], rows.ptr[r + 1]):
            t = postings.term_ptr[rows.gram[p]]
            n += postings.term_ptr[rows.gram[p] + 1] - t
            prefetch(postings.ptr, t)
            prefetch(postings.ptr, t + 1)
    return n


@njit(cache=True)
def terms_of(image, rows, postings, ix):
    """The terms of an image's references with their hash table."""
    most, n_classes = _ask_for_terms(image, rows, postings), rows.penalty.shape[0]
    term, begin, end = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    orders, table = np.empty(most, np.int8), np.empty((most, n_classes), np.float32)
    n = fold_image(image, 0, rows, postings, 0, term, begin, end, orders, table)
    size, n_dense = 256, 0
    while size < 4 * n:
        size *= 2
    keys, place, seen = np.full(size, -1, np.int32), np.empty(size, np.int32), np.zeros(FILTER, np.uint8)
    gram, share, dense_at = np.empty(n, np.int32), np.empty(n, np.float32), np.empty(n, np.int64)
    for k in range(n):
        prefetch(ix.post, begin[k])
        gram[k], dense_at[k] = ix.gram_of[term[k]], ix.dense_row[term[k]]
        weight = ix.count_of[term[k]] * np.sqrt(ix.gain[gram[k]])
        share[k] = np.float32(1 / weight) if weight > 0 else np.float32(0)
        at = _slot(term[k], keys)
        keys[at], place[at] = term[k], k
        seen[_hash(term[k]) & np.uint32(FILTER - 1)] = 1
        if dense_at[k] >= 0:
            dense_at[k] = n_dense
            n_dense += 1
    return Terms(term[:n], orders, table, gram, share, begin, end, dense_at, n_dense, seen, keys, place, rows.full)


@njit(cache=True)
def values_of(rows, ix, im, out):
    """Fill the values of captions `rows`, float32."""
    n, found = rows.shape[0], np.empty(GRAMS + 1, np.int32)
    for x in range(-AHEAD, n):
        if x + AHEAD < n:
            prefetch(ix.ptr, rows[x + AHEAD])
        if 0 <= x + AHEAD // 2 < n:
            p = ix.ptr[rows[x + AHEAD // 2]]
            prefetch(ix.term, p)
            prefetch(ix.term, min(p + 16, ix.term.shape[0] - 1))
            prefetch(ix.term, min(p + 32, ix.term.shape[0] - 1))
        if x >= 0:
            out[x] = value_of(rows[x], ix, im, found)


@njit(cache=True, forceinline=True)
def value_of(c, ix, im, found):
    """The value of one caption, each rounding as `score_chunk` does it: postings in the terms' order, each product in
    float32 and their sum in float64; then the dense rows, four to a float32 sum. `found` int32 [GRAMS + 1]: room.

    Which terms an image has is hardly foreseen, so what hangs on it is no jump: terms go on a list whose end they move
    or not, and those of dense rows add 0."""
    total, n, n_dense, d, norms = 0.0, np.uint64(0), np.uint64(0), np.uint32(ix.length_class[c]), ix.inv_norm[c]
    for t in ix.term[ix.ptr[c] : ix.ptr[c + 1]]:
        found[n] = t
        n += np.uint64(im.seen[_hash(t) & np.uint32(FILTER - 1)])
    for t in found[:n]:
        at = _slot(t, im.keys)
        if im.keys[at] == t:
            k = np.uint32(im.place[at])
            dense = im.dense_at[k] >= 0
            total += np.float64(np.float32(0) if dense else im.table[k, d] * norms[np.uint8(im.orders[k])])
            found[n_dense] = k
            n_dense += np.uint64(dense)
    return np.float32(whole(_with_dense(total, found[:n_dense], d, norms, im), im.full))


@njit(cache=True, forceinline=True)
def _with_dense(total, found, d, norms, im):
    """The sum with the dense rows that were found."""
    x = 0
    while x < found.shape[0]:
        k = found[x]
        four = im.dense_at[k] // 4
        part = im.table[k, d] * norms[im.orders[k]]
        x += 1
        if four < im.n_dense // 4:
            while x < found.shape[0] and im.dense_at[found[x]] // 4 == four:
                k = found[x]
                part = fma(im.table[k, d], norms[im.orders[k]], part)
                x += 1
        total += np.float64(part)
    return total
