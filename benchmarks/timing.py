"""Seconds of a piece of work, on a machine that may have other work too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


def in_turn(
    works: Sequence[Callable[[], _T]], rounds: int = 5, budget: float = 25.0
) -> tuple[list[list[float]], list[_T]]:
    """Seconds of each round of each piece of work, and the results. The works take turns, so that a slow minute of the
    machine is everyone's; after a round that warms up there are as many as `budget` seconds hold, 1 to `rounds`."""
    start = time.perf_counter()
    results = [work() for work in works]
    warm = time.perf_counter() - start
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(max(1, min(rounds, int(budget / warm)))):
        for work, mine in zip(works, seconds, strict=True):
            start = time.perf_counter()
            work()
            mine.append(time.perf_counter() - start)
    return seconds, results
