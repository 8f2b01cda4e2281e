"""A compiled loop on several threads.

numba's `prange` does that too, but then LLVM works on the loop's body three times over, and that is most of what a
first run waits for. Here a kernel is compiled once, as it is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import lru_cache
from typing import Any

import numba
from threadpoolctl import ThreadpoolController, threadpool_limits

OPENMP = "OMP_NUM_THREADS"


def in_threads(kernel: Callable[..., None], n: int, *args: Any) -> None:
    """kernel(first, last, *args) for even runs of 0..n, one for each of numba's threads (`numba.set_num_threads`).

    The kernel is compiled with `nogil`, and writes nothing for one number that it reads for another. Raises what it
    raises, when all runs have ended.
    """
    runs = max(1, min(get_num_threads(), n))
    bounds = [n * k // runs for k in range(runs + 1)]
    start, rest = _pool(os.getpid()).submit, zip(bounds[1:-1], bounds[2:], strict=True)
    others = [start(copy_context().run, kernel, *run, *args) for run in rest]  # so threads heed `as_python` too
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


def get_num_threads() -> int:
    """numba's number of threads, which are started here."""
    start()
    return int(numba.get_num_threads())


@lru_cache(maxsize=1)
def start() -> None:
    """Start numba's threads. That sets OpenMP's number of threads for this thread, and torch and its MKL have the same
    OpenMP: products would be made by more threads than they were given, with other last bits. So it is put back."""
    before = {one.filepath for one in ThreadpoolController().lib_controllers}
    with threadpool_limits(1, "openmp"):  # when left, every library that was there has its number again
        numba.get_num_threads()
    wish = os.environ.get(OPENMP, "").partition(",")[0]
    for one in ThreadpoolController().select(user_api="openmp").lib_controllers:
        if one.filepath not in before and wish.isdigit() and int(wish):
            one.set_num_threads(int(wish))
