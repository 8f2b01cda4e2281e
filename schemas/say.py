"""Words on standard error: what the user of a run has to know, each once per process."""

from __future__ import annotations

import sys
from multiprocessing import parent_process

_said: set[str] = set()


def warn(message: str) -> None:
    """Print `warning: message`, unless this process has said it."""
    if message not in _said:
        _said.add(message)
        print(f"warning: {message}", file=sys.stderr, flush=True)


def waiting(message: str) -> None:
    """Print what a first run waits for, unless this process has said it: on a terminal only, not from workers."""
    if message not in _said and sys.stderr.isatty() and parent_process() is None:
        _said.add(message)
        print(message, file=sys.stderr, flush=True)
