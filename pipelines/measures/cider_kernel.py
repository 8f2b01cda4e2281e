"""Kernels of CIDEr-D: folding an image's references, walking the postings of a chunk of captions, single pairs.

The arrays are those of `FittedCider`.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from capgrade.schemas.compiled import njit
from capgrade.schemas.fused import fma

_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, forceinline=True)
def _shared(found, wanted, clip):
    """Product of the counts of an n-gram in a caption and in a reference, the caption's clipped or not."""
    return (min(found, wanted) if clip else found) * wanted


@njit(cache=True)
def room(images, ref_ptr, refs, ptr, gram, term_ptr):
    """Where the terms of each image start, int64 [images + 1], with room for all n-grams of all its references."""
    start = np.zeros(images.shape[0] + 1, np.int64)
    for b in range(images.shape[0]):
        start[b + 1] = start[b]
        for q in range(ref_ptr[images[b]], ref_ptr[images[b] + 1]):
            for p in range(ptr[refs[q]], ptr[refs[q] + 1]):
                start[b + 1] += term_ptr[gram[p] + 1] - term_ptr[gram[p]]
    return start


@njit(parallel=True, fastmath=_FAST, cache=True)
def fold_references(
    images, first, start, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty, clip, scale,
    term_ptr, term_count, post_ptr, post_rank, dense_row, used, term, cursor, following, ending, orders, table,
):  # fmt: skip
    """The terms of each image; where their postings go on from rank `first`; and for each a table over length classes
    of what a caption with it gains, before its own norm."""
    n_classes = penalty.shape[0]
    for b in prange(images.shape[0]):
        begin, last = ref_ptr[images[b]], ref_ptr[images[b] + 1]
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
        row = start[b]
        k = 0
        while k < total:
            g = grams[by_gram[k]]
            end = k
            while end < total and grams[by_gram[end]] == g:
                end += 1
            for t in range(term_ptr[g], term_ptr[g + 1]):
                at = post_ptr[t]
                if first:
                    at += np.searchsorted(post_rank[post_ptr[t] : post_ptr[t + 1]], first)
                if dense_row[t] < 0 and at == post_ptr[t + 1]:
                    continue
                table[row] = 0
                for x in range(k, end):
                    r, c = owners[by_gram[x]], count[cells[by_gram[x]]]
                    w = np.float32(_shared(term_count[t], c, clip) * gain[g] * inv_norm[r, order[g]] * share)
                    fade = penalty[length_class[r]]
                    for d in range(n_classes):
                        table[row, d] += w * fade[d]
                term[row], cursor[row], ending[row], orders[row] = t, at, post_ptr[t + 1], order[g]
                following[row] = post_rank[at] if dense_row[t] < 0 else -1
                row += 1
            k = end
        used[b] = row - start[b]


@njit(cache=True)
def whole(value, full):
    """The value of equal captions, where rounding alone is between."""
    return full if value > full * (1 - 1e-6) else value


@njit(parallel=True, cache=True)
def score_chunk(
    start, used, term, cursor, following, ending, orders, table, first, last, class_start,
    post_rank, dense_row, dense, rank, class_of_rank, norm_of_rank, full, column, out,
):  # fmt: skip
    """Captions first..last, which have these ranks too, into out[:, column:]; cursors move on behind them.

    A posting is a rank alone: what else a caption has is read from the chunk's own rows, which stay in the cache. Each
    sum is rounded as it is written here, on any processor: `tops` computes single captions to the same bits.
    """
    for b in prange(start.shape[0] - 1):
        acc = np.zeros(last - first)  # double: a long caption adds up thousands of small terms
        rows, n_rows = np.empty(dense.shape[0], np.int64), 0
        for k in range(start[b], start[b] + used[b]):
            if following[k] < 0:
                rows[n_rows] = k
                n_rows += 1
            elif following[k] < last:
                p, end, norm = cursor[k], ending[k], norm_of_rank[orders[k]]
                r = following[k]
                while r < last:
                    acc[r - first] += table[k, class_of_rank[r]] * norm[r]
                    p += 1
                    if p == end:
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
                    acc[j - first] += fma(a3, d3[j], fma(a2, d2[j], fma(a1, d1[j], a0 * d0[j])))
                x += 4
            while x < n_rows:
                a0, d0 = table[rows[x], d], dense[dense_row[term[rows[x]]]]
                for j in range(class_start[d], class_start[d + 1]):
                    acc[j - first] += a0 * d0[j]
                x += 1
        for c in range(first, last):
            out[b, column + c - first] = whole(acc[rank[c] - first], full)


@njit(cache=True)
def _without_self(h, i, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty, clip, scale):
    """One caption with the other references of its image, from the two sorted rows of n-grams."""
    total, used = 0.0, 0
    for q in range(ref_ptr[i], ref_ptr[i + 1]):
        r = refs[q]
        if r == h:
            continue
        used += 1
        a, b, value = ptr[h], ptr[r], 0.0
        while a < ptr[h + 1] and b < ptr[r + 1]:
            g = gram[a]
            if g == gram[b]:
                o = order[g]
                value += _shared(count[a], count[b], clip) * gain[g] * inv_norm[h, o] * inv_norm[r, o]
                a += 1
                b += 1
            elif g < gram[b]:
                a += 1
            else:
                b += 1
        total += value * penalty[length_class[r], length_class[h]]
    return scale * total / used


@njit(parallel=True, cache=True)
def score_some(
    images, captions, found_gram, found_column, found_count, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm,
    length_class, penalty, clip, scale, full, out,
):  # fmt: skip
    """All pairs of some images and some captions, whose n-grams come sorted: each n-gram of a reference is looked up
    once for all captions."""
    n_found = found_gram.shape[0]
    for b in prange(images.shape[0]):
        i = images[b]
        total, one = np.zeros(captions.shape[0]), np.empty(captions.shape[0])
        for q in range(ref_ptr[i], ref_ptr[i + 1]):
            r = refs[q]
            one[:] = 0
            for p in range(ptr[r], ptr[r + 1]):
                g = gram[p]
                o = order[g]
                k = np.searchsorted(found_gram, g)
                while k < n_found and found_gram[k] == g:
                    column = found_column[k]
                    norms = inv_norm[captions[column], o] * inv_norm[r, o]
                    one[column] += _shared(found_count[k], count[p], clip) * gain[g] * norms
                    k += 1
            for column in range(captions.shape[0]):
                total[column] += one[column] * penalty[length_class[r], length_class[captions[column]]]
        for column in range(captions.shape[0]):
            out[b, column] = whole(scale * total[column] / (ref_ptr[i + 1] - ref_ptr[i]), full)


@njit(cache=True)
def leave_out_self(
    rows, captions, images, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty, clip, scale,
    full, out,
):  # fmt: skip
    for k in range(rows.shape[0]):
        value = _without_self(
            captions[k], images[rows[k]], ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty,
            clip, scale,
        )  # fmt: skip
        out[k] = whole(value, full)
