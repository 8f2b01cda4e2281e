"""Counts of a slice of captions by window of a measure: vector passes for the edges that lie between its values."""

from __future__ import annotations

import numpy as np

from capgrade.schemas.compiled import njit

MANY = 64  # edges between a slice's values from which on each value is looked up
TOGETHER = 4  # edges
LAST_BITS = np.int32(2**31 - 1)


@njit(cache=True)
def extremes(bits, out):
    """Fill int32 [2]: bits of the lowest and of the highest value, from those of all. A NaN may be either."""
    low, high = LAST_BITS, np.int32(-(2**31))
    for c in range(bits.shape[0]):
        rising = np.int32(bits[c] ^ ((bits[c] >> np.int32(31)) & LAST_BITS))
        low = rising if rising < low else low
        high = rising if rising > high else high
    out[0] = low ^ ((low >> np.int32(31)) & LAST_BITS)
    out[1] = high ^ ((high >> np.int32(31)) & LAST_BITS)


@njit(cache=True)
def _reached(values, edge):
    """How many values have reached an edge."""
    found = np.int32(0)
    for c in range(values.shape[0]):
        found = np.int32(found + np.int32(values[c] >= edge))  # numba would add them as int64
    return np.int64(found)


@njit(cache=True)
def _passed(values, edges, k, reached, passed):
    """Fill reached[k : k + TOGETHER]: the values that have reached these edges; add to `passed` how many each has."""
    last = edges.shape[0] - 1
    one, two, three, four = edges[k], edges[min(k + 1, last)], edges[min(k + 2, last)], edges[min(k + 3, last)]
    ones, twos, threes, fours = np.uint32(0), np.uint32(0), np.uint32(0), np.uint32(0)
    for c in range(values.shape[0]):
        v = values[c]
        a, b = np.uint32(v >= one), np.uint32(v >= two)
        x, y = np.uint32(v >= three), np.uint32(v >= four)
        ones, twos = np.uint32(ones + a), np.uint32(twos + b)
        threes, fours = np.uint32(threes + x), np.uint32(fours + y)
        passed[c] = np.uint32(passed[c] + np.uint32(np.uint32(a + b) + np.uint32(x + y)))
    reached[k], reached[k + 1], reached[k + 2], reached[k + 3] = ones, twos, threes, fours


@njit(cache=True)
def edges_reached(edges, m, value):
    """How many of the ascending edges[m], the last of them left out, a value has reached."""
    first, behind = 0, edges.shape[1] - 1
    while first < behind:
        middle = (first + behind) // 2
        if value >= edges[m, middle]:
            first = middle + 1
        else:
            behind = middle
    return first


@njit(cache=True)
def count_ended(values, ends, edges, m, total, reached, ended):
    """Add to total[k] how many of the values have reached k of the ascending edges[m], of which the last is none.
    `ends`: the lowest and the highest value. Fill reached[k]: the values that have reached edge k, and ended uint32
    [captions]: the edges that a value has reached, beside those that all have, whose number is returned."""
    upper = edges[m]
    n, n_edges, common = values.shape[0], upper.shape[0] - 1, 0
    while common < n_edges and upper[common] <= ends[0]:
        reached[common] = n
        common += 1
    ended[:] = 0
    reached[common:] = 0
    if edges_reached(edges, m, ends[1]) - common > MANY:
        for c in range(n):
            passed = edges_reached(edges, m, values[c])
            ended[c] = np.uint32(passed - common)
            reached[common:passed] += 1
    else:
        for k in range(common, n_edges, TOGETHER):
            if upper[k] <= ends[1]:
                _passed(values, upper, k, reached, ended)
    before = n
    for k in range(n_edges):
        total[k] += before - reached[k]
        before = reached[k]
    total[n_edges] += before
    return common


@njit(cache=True)
def count_begun(values, ends, lower, total, upper, reached):
    """As `count_ended`, of lower edges; many of them are upper ones too, which `reached` counts. A NaN has reached no
    edge, not even the first, at which all others have begun. Returns in how many windows a value is at most."""
    n_edges, at, most, before = lower.shape[0] - 1, 0, 0, values.shape[0]
    for k in range(n_edges + 1):
        last = at
        while at < n_edges and upper[at] <= lower[k]:
            at += 1
        if lower[k] > ends[1]:
            now = 0
        elif at > last and upper[at - 1] == lower[k]:
            now = reached[at - 1]
        elif k > 0 and lower[k] <= ends[0]:
            now = before
        else:
            now = _reached(values, lower[k])
        total[k] += before - now
        if before > now:  # values in the last k windows begun, less those that all of them are behind
            while last < n_edges and reached[last] >= before:
                last += 1
            most = max(most, k - last)
        before = now
    return most
