"""Words on standard error: what the user of a run has to know, each once per process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Timer

_said: set[str] = set()


def warn(message: str) -> None:
    """Print `warning: message`, unless this process has said it."""
    _once(f"warning: {message}")


def tell(message: str) -> None:
    """Print what a first run waits for, unless this process has said it, or is another one's worker."""
    if parent_process() is None:
        _once(message)


@contextmanager
def if_silent(message: str, seconds: float = 4.0) -> Iterator[None]:
    """Tell this where the block has lasted so long and nothing has been said."""
    before = len(_said)
    timer = Timer(seconds, lambda: tell(message) if len(_said) == before else None)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        print(message, file=sys.stderr, flush=True)
