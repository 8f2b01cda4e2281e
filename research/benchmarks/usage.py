"""Processor time and memory of processes."""

import math
import re
import resource
import sys
from pathlib import Path

_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that `getrusage` counts memory in
_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def processor_seconds() -> float:
    """Processor seconds of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mb(pid: int | None = None) -> float:
    """MB (10^6 bytes) in memory at most so far, of this process or another; 0 of one that ended.

    `getrusage` counts the parent's memory too, so Linux's own count is read. Elsewhere it is that
    of `getrusage`, and of other processes not a number.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    if Path("/proc/self/status").exists():
        try:
            match = _HIGH_WATER.search(status.read_text(encoding="utf-8"))
        except (FileNotFoundError, ProcessLookupError):
            match = None
        return int(match[1]) * 1024 / 1e6 if match else 0.0
    return math.nan if pid else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 1e6
