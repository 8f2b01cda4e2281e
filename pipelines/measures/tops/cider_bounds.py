"""What a caption gains at most from the n-grams that are not walked (CIDEr-D's exact tops).

Let an image's references be folded into a table: a caption of length class d that has n-gram g, t times, gains
table[g, t, d] / norm(caption, order). With u = t idf(g) / norm, a component of the caption's unit vector of that order,
the gain is q(g, t, d) u, where q = table / (t idf). So from a set of n-grams a caption gains at most the sum over
orders of sqrt(sum of q^2) times the norm of the caption's own part in the set, which is at most 1 (Cauchy and Schwarz).
Nothing is negative, so a bound computed in float32 errs by a relative part only, which `SLACK` covers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.tops.cider_index import LEVELS, ORDERS, UNITS
from capgrade.schemas.compiled import njit

# A bound and a value add up at most 2**14 non-negative float32 terms of a few roundings each, and packed norms are only
# rounded up: none is too low by more than (2**14 + 8) 2**-24 < 2**-9 of itself, in any order of summation.
SLACK = np.float32(1 + 2**-8)


class Lists(NamedTuple):
    """The n-grams of an image that weigh, by level: those of level 0 are in the fewest captions."""

    begin: np.ndarray  # int64 [n-grams]: first term
    end: np.ndarray  # int64 [n-grams]: behind the last
    stop: np.ndarray  # int64 [levels]: how many n-grams are not above the level
    size: np.ndarray  # int64 [levels]: how many postings these have
    rest: np.ndarray  # float32 [levels, ORDERS, classes]: of those above, in units, what a caption gains at most


@njit(cache=True)
def lists_of(ix, im):
    """The lists of an image."""
    n_terms, n, gram, share, most = im.term.shape[0], 0, im.gram, im.share, ix.most_of_level
    begin, end, level = np.empty(n_terms, np.int64), np.empty(n_terms, np.int64), np.empty(n_terms, np.int64)
    stop, size = np.zeros(len(LEVELS), np.int64), np.zeros(len(LEVELS), np.int64)
    k = 0
    while k < n_terms:
        begin[n], df = k, 0
        while k < n_terms and gram[k] == gram[begin[n]]:
            df += im.end[k] - im.begin[k]
            k += 1
        if share[begin[n]] > 0:
            end[n], level[n] = k, 0
            for x in range(len(LEVELS)):
                level[n] += df > most[x]
            stop[level[n]] += 1
            size[level[n]] += df
            n += 1
    stop, size = np.cumsum(stop), np.cumsum(size)
    order = _sorted(level[:n], stop)
    rest = _rest(begin, end, order, stop, im.table, share, im.orders, np.float32(UNITS / im.full))
    return Lists(begin[order], end[order], stop, size, rest)


@njit(cache=True)
def _sorted(level, stop):
    """Places by rising level; `stop` int64 [levels]: how many are not above it."""
    order, at = np.empty(level.shape[0], np.int64), stop.copy()
    for x in range(level.shape[0]):
        at[level[x]] -= 1
        order[at[level[x]]] = x
    return order


@njit(cache=True)
def _rest(begin, end, order, stop, table, share, orders, units):
    """`Lists.rest`: q of an n-gram is the largest of any count."""
    n_classes, x = table.shape[1], order.shape[0]
    squares, q = np.zeros((ORDERS, n_classes), np.float32), np.empty(n_classes, np.float32)
    rest = np.empty((len(LEVELS), ORDERS, n_classes), np.float32)
    for level in range(len(LEVELS) - 1, -1, -1):
        while x > stop[level]:
            x -= 1
            q[:] = 0
            for k in range(begin[order[x]], end[order[x]]):
                for d in range(n_classes):
                    q[d] = max(q[d], table[k, d] * share[k])
            o = orders[begin[order[x]]]
            for d in range(n_classes):
                squares[o, d] += q[d] * q[d]
        for o in range(ORDERS):
            for d in range(n_classes):
                rest[level, o, d] = np.sqrt(squares[o, d]) * units
    return rest


@njit(cache=True, inline="always")
def bound(parts, most, d):
    """What a caption of class d with these norms, a byte an order, gains at most: `most` float32 [ORDERS, classes]
    where they are 1."""
    total = np.float32(0)
    for o in range(ORDERS):
        total += most[o, d] * np.float32((parts >> np.uint32(8 * o)) & np.uint32(255))
    return total * np.float32(1 / 255)
