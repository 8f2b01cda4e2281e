"""Work in a process of its own that is ended before one of its file operations."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

NEVER = 10**9
EVERY = "CAPGRADE_EVERY_KILL"  # in the environment: before each operation
# What is written to a file under another name is nothing yet, so that writing is no operation.
_OPERATIONS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link"}


def no_sync() -> None:
    """From here on this process does not wait for the disk: tests lose processes alone."""
    os.fsync = lambda _: None  # type: ignore[assignment]


def moments() -> Iterator[int]:
    """Numbers of operations to be killed before, rising: about each fourth, or each where $CAPGRADE_EVERY_KILL is set."""
    draw, at = Random(7), 0
    while True:
        at += 1 if EVERY in os.environ else draw.randint(1, 7)
        yield at


def counted(work: Callable[[], object], folder: Path, at: int = NEVER) -> int:
    """Do the work; returns how many file operations below `folder` it has. Killed with -9 before
    the one of number `at`, from 1."""
    done, watching = 0, True

    def count(event: str, given: tuple) -> None:  # a hook stays for ever
        nonlocal done
        if watching and event in _OPERATIONS and str(given[0]).startswith(str(folder)):
            done += 1
            if done == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    work()
    watching = False
    return done


def ended(work: Callable[[], object], folder: Path, at: int = NEVER) -> bool:
    """Whether the work, in a fork that is killed before its operation of this number, has ended.
    Ask for it in a process of few threads: none is in a fork, and what gRPC's held there ends it."""
    child, status = os.fork(), 1
    if not child:
        try:
            counted(work, folder, at)
            status = 0
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code == 0
