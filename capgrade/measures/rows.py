"""Rows of a table of numbered items, put together."""

from __future__ import annotations

import numpy as np

from capgrade.kernels import njit


@njit(cache=True)
def merge_largest(rows, without, start, stop, item, value):
    """Items of rows of a table, ascending, each once with its largest value.

    Row r has the items `item[start[r]:stop[r]]`; the row `without` is left out.
    """
    n, used = 0, 0
    for r in rows:
        n += stop[r] - start[r] if r != without else 0
    items, values = np.empty(n, item.dtype), np.empty(n, value.dtype)
    n = 0
    for r in rows:
        if r != without:
            for p in range(start[r], stop[r]):
                items[n], values[n] = item[p], value[p]
                n += 1
    merged, largest = np.empty_like(items), np.empty_like(values)
    for x in np.argsort(items):
        if used and merged[used - 1] == items[x]:
            largest[used - 1] = max(largest[used - 1], values[x])
        else:
            merged[used], largest[used] = items[x], values[x]
            used += 1
    return merged[:used], largest[:used]
