"""Words on standard error: what the user of a run has to know, each once per process."""

import sys
from multiprocessing import parent_process

_said: set[str] = set()


def warn(message: str) -> None:
    """Print `warning: message`, unless this process has said it."""
    _once(f"warning: {message}")


def tell(message: str) -> None:
    """Print what a first run waits for, unless this process has said it, or is another one's worker."""
    if parent_process() is None:
        _once(message)


def _once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        print(message, file=sys.stderr, flush=True)
