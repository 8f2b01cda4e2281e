"""One run at a time in an output folder: a file lock that the system takes back from a process that is killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capgrade.schemas.errors import InputError

LOCK = ".lock"
_held: dict[Path, int] = {}  # folder -> descriptor, of this process


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
    _held[folder] = _take(out)
    try:
        yield
    finally:
        (out / LOCK).unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
        os.close(_held.pop(folder))


def first_process() -> bool:
    """Not one that a launcher started beside the first."""
    return os.environ.get("RANK", "0") in ("", "0")


def _take(out: Path) -> int:
    """The descriptor of the locked file that stands at `out/.lock`: one just removed by its holder is no lock."""
    while True:
        descriptor = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _stands(descriptor, out / LOCK):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        except BlockingIOError:
            other = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            problem = f"another run is writing to this folder (process {other})"
            raise InputError(problem, file=out, remedy="wait until it has ended, or give another --out") from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _stands(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def holder(out: Path) -> int | None:
    """The process that is writing to a folder; None when there is none, 0 when it does not say who it is."""
    try:
        with (out / LOCK).open("rb") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f.read(20).strip()
                return int(text) if text.isdigit() else 0
    except (FileNotFoundError, NotADirectoryError):
        pass
    return None


def _leave_to_parent() -> None:
    """A forked worker that outlives its killed parent must not go on holding the parent's folders."""
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
