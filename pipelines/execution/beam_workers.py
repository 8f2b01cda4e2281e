"""What Beam says and does where it has no interface to ask: its texts, its workers' processes, its log.

Written for Beam 2.77. tests/pipelines/execution/test_beam_workers.py fails where another version says it otherwise.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from capgrade.schemas.errors import InputError

ENDED = re.compile(r"Worker subprocess exited with return code (-?\d+)")  # raised in the thread that waits for it
WORKER = b"sdk_worker_main"  # in the command line of a worker


@contextmanager
def workers_watched(out: Path) -> Iterator[None]:
    """InputError when one of Beam's worker processes was killed: Beam would wait for its answer for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    stopped = False

    def told(found: threading.ExceptHookArgs) -> None:
        code = ended(found.exc_value)
        if code is None:
            hook(found)
        elif not stopped and (code < 0 or code >= 128):  # by a signal, and not after an error of its own
            os.kill(os.getpid(), signal.SIGUSR1)

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        _end_workers(os.getpid())
        remedy = "run again, it goes on; fewer workers need less memory"
        raise InputError("a worker process was killed, perhaps because memory ran out", file=out, remedy=remedy)

    hook, handler = threading.excepthook, signal.signal(signal.SIGUSR1, stop)
    threading.excepthook = told
    try:
        yield
    finally:
        if not stopped:  # else the ends of the other workers are still to be told, after the one error
            threading.excepthook = hook
        signal.signal(signal.SIGUSR1, handler)


def ended(error: BaseException | None) -> int | None:
    """The exit status of a worker whose end this error tells; None for any other error."""
    code = ENDED.search(str(error))
    return int(code[1]) if code else None


def _end_workers(process: int) -> None:
    """Kill the workers that a process has started: those that are not connected yet do not hear that all is over, and
    Beam waits for them. Only where there is /proc."""
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # threads and processes end meanwhile
            for child in map(int, listing.read_text(encoding="ascii").split()):
                _end_workers(child)
                if WORKER in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)


@contextmanager
def said_once() -> Iterator[None]:
    """Beam logs what a worker raises with three tracebacks before it is raised here."""
    log = logging.getLogger("apache_beam")
    level = log.level
    if not os.environ.get("CAPGRADE_DEBUG"):
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
