"""Work done ahead by threads, so that the loop never waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def prefetched(make: Callable[[_In], _Out], items: Iterable[_In], workers: int = 1) -> Iterator[_Out]:
    """`make` of each item, in order, by `workers` threads, one more made ahead than there are threads; without
    workers, when asked.

    An error comes out at its item's turn. Closing the iterator leaves what has not been begun undone.
    """
    if not workers:
        yield from map(make, items)
        return
    rest, waiting = iter(items), deque[Future[_Out]]()
    with ThreadPoolExecutor(workers) as pool:
        try:
            waiting.extend(pool.submit(make, item) for item in islice(rest, workers + 1))
            while waiting:
                made = waiting.popleft().result()
                waiting.extend(pool.submit(make, item) for item in islice(rest, 1))
                yield made
        finally:
            for future in waiting:
                future.cancel()
