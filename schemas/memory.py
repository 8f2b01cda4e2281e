"""The most memory that a process has had, and what of it is its own."""

from __future__ import annotations

import math
import re
import resource
import sys
from pathlib import Path

UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that `getrusage` counts memory in
HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


def peak_mb(pid: int | None = None) -> float:
    """MB (10^6 bytes) in memory at most so far, of this process or another, 0 of one that has ended.

    What `getrusage` says of a process begins with its parent's: this is Linux's own count. Elsewhere it is that of
    `getrusage`, and of other processes not a number.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    if Path("/proc/self/status").exists():
        try:
            found = HIGH_WATER.search(status.read_text(encoding="utf-8"))
        except (FileNotFoundError, ProcessLookupError):
            found = None
        return int(found[1]) * 1024 / 1e6 if found else 0.0
    return math.nan if pid else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e6


def anonymous_mb() -> float:
    """MB in memory of this process now that are no mapped file: those no other process shares. Not a number where the
    system does not say, as elsewhere than on Linux."""
    try:
        found = ANONYMOUS.search(Path("/proc/self/status").read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = None
    return int(found[1]) * 1024 / 1e6 if found else math.nan
