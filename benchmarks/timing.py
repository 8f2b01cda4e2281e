"""Seconds of a piece of work, on a machine that may have other work too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

ROUNDS = 3  # the best is taken, of ours and of the peer's: other work on the machine only adds time
TURNS, BUDGET = 5, 30.0  # rounds of what takes turns, at most; seconds that they may take
_T = TypeVar("_T")


def timed(work: Callable[[], _T]) -> tuple[float, _T]:
    """Seconds of the best of three runs, after one that warms up and compiles kernels, and the result."""
    result, seconds = work(), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


class Round(NamedTuple):
    """One run of a piece of work: seconds by the clock, and of processors, which other work on the machine adds less
    to."""

    seconds: float
    processor: float


def in_turn(
    works: Sequence[Callable[[], _T]], warm_up: Sequence[Callable[[], _T]]
) -> tuple[list[list[Round]], list[_T]]:
    """Rounds of each piece of work, and the results. The works take turns, so that a slow minute of the machine is
    everyone's; after `warm_up`, which does the same work, there are as many as `BUDGET` holds, 1 to `TURNS`."""
    start = time.perf_counter()
    results = [work() for work in warm_up]
    warm = time.perf_counter() - start
    found: list[list[Round]] = [[] for _ in works]
    for _ in range(max(1, min(TURNS, int(BUDGET / warm)))):
        for work, mine in zip(works, found, strict=True):
            start, busy = time.perf_counter(), time.process_time()
            work()
            mine.append(Round(time.perf_counter() - start, time.process_time() - busy))
    return found, results
