"""Kernels of Sentence-BERT's exact tops: captions that a bound cannot rule out, multiplied singly.

Write e for `slack`. A float32 product of d terms errs by at most d 2**-24 / (1 - d 2**-24) times the product of the
vectors' norms, in any order of summation (Higham 2002, 3.1). So a value of all pairs is within e of the single product,
and at most e above the bound. If k captions have single products of `least` or more, the k-th best of all pairs is at
least least - e; a caption as good has a query whose single product is least - 2 e or more, and whose bounds are. That
is the gate: any k captions give one, so it only rises while more captions are seen, and what is below it is not needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.sbert import ONE
from capgrade.pipelines.measures.tops.heap import push
from capgrade.schemas.compiled import njit

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


class Candidates(NamedTuple):
    """Captions of each image that a bound has not ruled out."""

    ptr: np.ndarray  # int64 [images + 1]
    rows: np.ndarray  # int64
    bounds: np.ndarray  # float32
    values: np.ndarray  # float32: single products, NaN where none was computed


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
def _single(queries, begin, end, caption):
    """The largest product of the queries with a caption."""
    best = np.float32(-1)
    for q in range(begin, end):
        best = max(best, _product(queries[q], caption))
    return _capped(best)


@njit(cache=True)
def _largest(pair, begin, end, c, gate):
    """The same; queries whose bounds are below the gate do not count."""
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


@njit(nogil=True, cache=True)
def multiply_leaders(first, last, queries, start, vectors, found, k, room, leads, multiplied):
    """Multiply the `room` candidates of the highest bounds of images first..last, those that were not. Fills the `k`-th
    best value of these, float32 [images], of images that have as many; and how many were multiplied, int64 [images]."""
    for b in range(first, last):
        best, at, n = np.empty(room, np.float32), np.empty(room, np.int64), 0
        for x in range(found.ptr[b], found.ptr[b + 1]):
            n = push(found.bounds[x], x, best, at, n, np.uint64(0), None)
        multiplied[b] = 0
        for j in range(n):
            x = at[j]
            if np.isnan(found.values[x]):
                found.values[x] = _single(queries, start[b], start[b + 1], vectors[found.rows[x]])
                multiplied[b] += 1
            best[j] = found.values[x]
        if n >= k:
            leads[b] = np.sort(best[:n])[n - k]


@njit(nogil=True, cache=True)
def multiply_rest(first, last, queries, start, vectors, found):
    """Multiply the candidates of images first..last that were not."""
    for b in range(first, last):
        for x in range(found.ptr[b], found.ptr[b + 1]):
            if np.isnan(found.values[x]):
                found.values[x] = _single(queries, start[b], start[b + 1], vectors[found.rows[x]])


@njit(nogil=True, cache=True)
def multiply_rest_by_parts(first, last, pair, start, gates, found):
    """The same; -1 where longer bounds are below an image's gate, float32 [images]."""
    for b in range(first, last):
        for x in range(found.ptr[b], found.ptr[b + 1]):
            if np.isnan(found.values[x]):
                found.values[x] = _largest(pair, start[b], start[b + 1], found.rows[x], gates[b])


@njit(cache=True)
def kth(ptr, values, k):
    """float32 [images]: the k-th largest of an image's values, of which there are k or more."""
    out = np.empty(ptr.shape[0] - 1, np.float32)
    for b in range(out.shape[0]):
        some = np.sort(values[ptr[b] : ptr[b + 1]])
        out[b] = some[some.shape[0] - k]
    return out


@njit(cache=True)
def choose(ptr, rows, values, k, seeds, keys):
    """The k best captions of each image in no order, equal ones by the hashes `seeds` of images and `keys` of captions
    (`Ties`): int64 and float32 [images, k], 0 of an image without captions."""
    n_images = ptr.shape[0] - 1
    best, of = np.zeros((n_images, k), np.float32), np.zeros((n_images, k), np.int64)
    for b in range(n_images):
        n = 0
        for x in range(ptr[b], ptr[b + 1]):
            n = push(values[x], rows[x], best[b], of[b], n, seeds[b], keys)
    return of, best
