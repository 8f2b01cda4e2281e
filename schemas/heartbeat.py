"""Progress on plain output, as of a batch job: a line now and then instead of a bar that is drawn again."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST, LONGEST = 10.0, 60.0  # seconds to the first line, and between lines of a long run at most
SETTLE = 1.0  # what is counted before is of an earlier run: speed is measured from here


def line(
    what: str, done: int, total: int | None, seconds: float, rate: float, left: float | None, unit: str | None = None
) -> str:
    """One line: how much is done, after how long, how fast where there is a unit, and about how long it will take."""
    of = "" if total is None else f" of {total:,}"
    said = f"{what}: {done:,}{of}{f' {unit}' if unit else ''} after {spoken(seconds)}"
    if unit and rate > 0:
        said += f", {rate:.3g} per second"
    return said + (f", about {spoken(left)} left" if left is not None else "")


def spoken(seconds: float) -> str:
    """A duration: 250 s, 12 min, 3.1 h."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def pause(seconds: float) -> float:
    """How long to wait after so long a run: ten seconds, a tenth of the run, a minute."""
    return min(max(FIRST, seconds / 10), LONGEST)


class Count:
    """Steps done so far, and when the last was."""

    def __init__(self) -> None:
        self.done, self.at = 0, time.monotonic()

    def advance(self, steps: int = 1) -> None:
        """Count so many more."""
        self.done += steps
        self.at = time.monotonic() if steps else self.at

    def speed(self, before: int, since: float) -> float:
        """Steps per second from then to the last one: what goes on now is not counted as time without work."""
        return (self.done - before) / (self.at - since) if self.at > since else 0.0


@contextmanager
def heartbeat(what: str, total: int | None, unit: str | None = None) -> Iterator[Count]:
    """Print `line` on standard error every ten seconds, more rarely in a long run, none in a short one. The clock runs
    whether or not steps are counted: work that stands still shows."""
    count, stop, start = Count(), threading.Event(), time.monotonic()

    def beat() -> None:
        if stop.wait(SETTLE):
            return
        before, since = count.done, time.monotonic()
        while not stop.wait(pause(time.monotonic() - start)):
            now = time.monotonic()
            rate = count.speed(before, since)
            left = None if total is None or not rate else max((total - count.done) / rate - (now - count.at), 0.0)
            print(line(what, count.done, total, now - start, rate, left, unit), file=sys.stderr, flush=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()
