"""Words on standard error: what the user of a run has to know, each once per process."""

from __future__ import annotations

import sys

_said: set[str] = set()


def warn(message: str) -> None:
    """Print `warning: message`, unless this process has said it."""
    tell(f"warning: {message}")


def tell(message: str) -> None:
    """Print the message, unless this process has said it."""
    if message not in _said:
        _said.add(message)
        print(message, file=sys.stderr, flush=True)
