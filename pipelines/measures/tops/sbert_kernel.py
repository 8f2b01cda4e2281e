"""Kernels of Sentence-BERT's exact tops: captions that a bound cannot rule out, multiplied singly.

Write e for `slack`. A float32 product of d terms errs by at most d 2**-24 / (1 - d 2**-24) times the product of the
vectors' norms, in any order of summation (Higham 2002, 3.1). So a value of all pairs is within e of the single product,
and at most e above the bound. If k captions have single products of `least` or more, the k-th best of all pairs is at
least least - e; a caption as good has a query whose single product is least - 2 e or more, and whose bounds are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.sbert import ONE
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit

BLOCK = 64  # bounds compared together
_FAST = {"contract", "reassoc", "nsz"}


def slack(d: int) -> np.float32:
    """Of embeddings of d coordinates: the errors of two products of d terms and of a shorter one; and that what is
    within 4e-6 of 1 counts as 1, and lengths are 1 to 1e-3."""
    return np.float32(2 * (d + 72) * 2.0**-24)


class Pair(NamedTuple):
    """What single products are of: the images' queries and the captions, float32 [n, d], with both parts of `rotated`
    of each."""

    queries: np.ndarray
    short: np.ndarray
    long: np.ndarray
    captions: np.ndarray
    captions_short: np.ndarray
    captions_long: np.ndarray


@njit(fastmath=_FAST, cache=True)
def _product(a, b):
    total = np.float32(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@njit(cache=True, inline="always")
def _capped(value):
    """As all pairs have it."""
    return np.float32(1) if value > ONE else value


@njit(cache=True)
def _largest(pair, begin, end, c, gate):
    """The largest product of the queries with a caption; those whose bounds are below the gate do not count."""
    best = np.float32(-1)
    one, two = pair.captions_short[c], pair.captions_long[c]
    rest = one[one.shape[0] - 1]
    for q in range(begin, end):
        bound = _product(pair.short[q], one)
        if bound >= gate:
            bound += _product(pair.long[q], two) - pair.short[q, one.shape[0] - 1] * rest
            if bound >= gate:
                best = max(best, _product(pair.queries[q], pair.captions[c]))
    return _capped(best)


@njit(parallel=True, cache=True)
def leaders(queries, start, vectors, bounds, room):
    """float32 [images, room]: the single products of the captions of the highest bounds."""
    n_images = bounds.shape[0]
    out = np.full((n_images, room), -np.inf, np.float32)
    for b in prange(n_images):
        values, rows, n = np.empty(room, np.float32), np.empty(room, np.int64), 0
        gate = np.float32(-np.inf)
        for at in range(0, bounds.shape[1], BLOCK):
            some = bounds[b, at : at + BLOCK]
            hits = np.uint8(0)
            for j in range(some.shape[0]):
                hits |= np.uint8(some[j] > gate)
            if hits:
                for j in range(some.shape[0]):
                    if some[j] > gate:
                        n = push(some[j], at + j, values, rows, n)
                        if n == room:
                            gate = values[0]
        for k in range(n):
            for q in range(start[b], start[b + 1]):
                out[b, k] = max(out[b, k], _capped(_product(queries[q], vectors[rows[k]])))
    return out


@njit(parallel=True, cache=True)
def count_reaching(bounds, least):
    """int64 [images]: how many captions have a bound of least[image] or more."""
    out = np.zeros(bounds.shape[0], np.int64)
    for b in prange(bounds.shape[0]):
        one, gate, n = bounds[b], least[b], 0
        for c in range(one.shape[0]):
            n += one[c] >= gate
        out[b] = n
    return out


@njit(parallel=True, cache=True)
def fold_rounded(products, start, slack, out):
    """`slack` and the largest of each image's products, the bits of bfloat16 as uint16 [queries, n], float32
    [images, n]."""
    for b in prange(out.shape[0]):
        bits, one = np.empty(out.shape[1], np.uint32), out[b]
        value = bits.view(np.float32)
        one[:] = -np.inf
        for q in range(start[b], start[b + 1]):
            some = products[q]
            for j in range(some.shape[0]):
                bits[j] = np.uint32(some[j]) << np.uint32(16)
            for j in range(some.shape[0]):
                one[j] = max(one[j], value[j])
        for j in range(one.shape[0]):
            one[j] += slack


@njit(parallel=True, cache=True)
def rows_reaching(bounds, least, ptr, rows):
    """Fill the rows of the captions that `count_reaching` counts, an image's from ptr[image] on."""
    for b in prange(bounds.shape[0]):
        one, gate, k = bounds[b], least[b], ptr[b]
        for c in range(one.shape[0]):
            if one[c] >= gate:
                rows[k] = c
                k += 1


@njit(parallel=True, cache=True)
def multiply_reaching(pair, start, bounds, least, ptr, rows, values):
    """Fill the rows of those captions and their values, an image's from ptr[image] on."""
    for b in prange(bounds.shape[0]):
        one, gate, k = bounds[b], least[b], ptr[b]
        for c in range(one.shape[0]):
            if one[c] >= gate:
                rows[k] = c
                values[k] = _largest(pair, start[b], start[b + 1], c, gate)
                k += 1


@njit(cache=True)
def kth(ptr, values, k):
    """float32 [images]: the k-th largest of an image's values, of which there are k or more."""
    out = np.empty(ptr.shape[0] - 1, np.float32)
    for b in range(out.shape[0]):
        some = np.sort(values[ptr[b] : ptr[b + 1]])
        out[b] = some[some.shape[0] - k]
    return out


@njit(cache=True)
def choose(ptr, rows, values, k):
    """The k best captions of each image in no order, equal ones by rising row: int64 and float32 [images, k]."""
    n_images = ptr.shape[0] - 1
    best, of = np.empty((n_images, k), np.float32), np.empty((n_images, k), np.int64)
    for b in range(n_images):
        n = 0
        for x in range(ptr[b], ptr[b + 1]):
            n = push(values[x], rows[x], best[b], of[b], n)
    return of, best


@njit(parallel=True, cache=True)
def multiply_listed(queries, start, vectors, ptr, rows, values):
    """Fill the values of captions rows[ptr[image] : ptr[image + 1]], float32 [len(rows)]."""
    for b in prange(ptr.shape[0] - 1):
        for k in range(ptr[b], ptr[b + 1]):
            best = np.float32(-1)
            for q in range(start[b], start[b + 1]):
                best = max(best, _product(queries[q], vectors[rows[k]]))
            values[k] = _capped(best)
