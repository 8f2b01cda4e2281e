"""One run at a time in an output folder: a file lock, which the system frees when its process is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from capgrade.schemas.errors import InputError

LOCK = ".lock"
_held: set[Path] = set()  # folders that this process writes to


@contextmanager
def only_run(out: Path) -> Iterator[None]:
    """Hold `out` (made if it is not there) against other runs; again within the same process is free.

    Of the processes of one launcher the first holds it for all. Raises InputError with the other run's process id.
    """
    folder = out.resolve()
    if folder in _held or not first_process():
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    lock = _take(out)
    _held.add(folder)
    try:
        (out / LOCK).write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        _held.discard(folder)
        (out / LOCK).unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
        lock.release()


def first_process() -> bool:
    """Not one that a launcher started beside the first."""
    return os.environ.get("RANK", "0") in ("", "0")


def holder(out: Path) -> int | None:
    """The process that is writing to a folder; None when there is none, 0 when it does not say who it is."""
    if not (out / LOCK).is_file():
        return None
    lock = FileLock(out / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return _written(out)
    lock.release()
    return None


def _take(out: Path) -> FileLock:
    lock = FileLock(out / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        problem = f"another run is writing to this folder (process {_written(out) or 'unknown'})"
        raise InputError(problem, file=out, remedy="wait until it has ended, or give another --out") from None
    return lock


def _written(out: Path) -> int:
    """The process id in a lock file; 0 for none."""
    try:
        text = (out / LOCK).read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # removed meanwhile, or not to be read
        return 0
    return int(text) if text.isdigit() else 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.clear)  # a worker holds nothing; filelock closes its locks there
