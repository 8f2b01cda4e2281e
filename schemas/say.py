"""Warnings on standard error: what a run does that its user would want to know, once a process."""

from __future__ import annotations

import sys

_said: set[str] = set()


def warn(message: str) -> None:
    """Print `warning: message`, unless this process has said it."""
    if message not in _said:
        _said.add(message)
        print(f"warning: {message}", file=sys.stderr, flush=True)
