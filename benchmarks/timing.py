"""Seconds of a piece of work, on a machine that may have other work too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

ROUNDS = 3  # the best is taken, of ours and of the peer's: other work on the machine only adds time
_T = TypeVar("_T")


def timed(work: Callable[[], _T]) -> tuple[float, _T]:
    """Seconds of the best of three runs, after one that warms up and compiles kernels, and the result."""
    result, seconds = work(), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result
