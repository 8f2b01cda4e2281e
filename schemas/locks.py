"""The one run that may write to a folder: a file lock holds it, which the system frees when its process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import OUT, writing

LOCK = ".lock"


@contextmanager
def only_run(out: Path, allow: str = OUT) -> Iterator[None]:
    """Hold `out` (made if it is not there) against other runs. Raises InputError with the other run's process id, and
    as `writing`."""
    lock = FileLock(out / LOCK, timeout=0)
    with writing(out, allow):
        out.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            problem = f"another run is writing to this folder (process {_written(out) or 'unknown'})"
            raise InputError(problem, file=out, remedy="wait until it has ended, or give another --out") from None
    try:
        (out / LOCK).write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        (out / LOCK).unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
        lock.release()


def first_process() -> bool:
    """Not one that a launcher started beside the first."""
    return os.environ.get("RANK", "0") in ("", "0")


def holder(out: Path) -> int | None:
    """The process that is writing to a folder; None when there is none, 0 when it does not say who it is."""
    if not (out / LOCK).is_file():
        return None
    try:
        with FileLock(out / LOCK, timeout=0):
            return None
    except Timeout:
        return _written(out)


def _written(out: Path) -> int:
    """The process id in a lock file; 0 for none."""
    try:
        text = (out / LOCK).read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # removed meanwhile, or not to be read
        return 0
    return int(text) if text.isdigit() else 0
