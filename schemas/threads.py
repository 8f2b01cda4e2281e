"""A compiled loop on several threads.

numba's `prange` does that too, but then LLVM works on the loop's body three times over, and that is most of what a
first run waits for. Here a kernel is compiled once, as it is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numba


def in_threads(kernel: Callable[..., None], n: int, *args: Any) -> None:
    """kernel(first, last, *args) for even runs of 0..n, one for each of numba's threads (`numba.set_num_threads`).

    The kernel is compiled with `nogil`, and writes nothing for one number that it reads for another. Raises what it
    raises, when all runs have ended.
    """
    runs = max(1, min(numba.get_num_threads(), n))
    bounds = [n * k // runs for k in range(runs + 1)]
    others = [_pool(os.getpid()).submit(kernel, *run, *args) for run in zip(bounds[1:-1], bounds[2:], strict=True)]
    try:
        kernel(0, bounds[1], *args)
    finally:
        problems = [other.exception() for other in others]
    for problem in problems:
        if problem is not None:
            raise problem


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of the one that it was forked from are not here."""
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "kernel")
