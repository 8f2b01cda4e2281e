"""The one run that may write to a folder, by a file lock that the system frees with its process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import OUT, unfinished_folder, writing

LOCK = ".capgrade.lock"  # in the folder of unfinished work
_PATIENCE = 0.3  # seconds for a run that is ending


@contextmanager
def only_run(out: Path, allow: str = OUT) -> Iterator[None]:
    """Hold `out` against other runs, by a lock in the folder of its unfinished work.

    That folder is made, and deleted where it is empty in the end. Raises InputError with the other
    run's process id, and as `writing`.
    """
    folder = unfinished_folder(out)
    lock = FileLock(folder / LOCK, timeout=_PATIENCE)
    with writing(out, allow):
        try:
            _acquire(lock, folder)
        except Timeout:
            problem = (
                f"another run is writing to this folder (process {_written(folder) or 'unknown'})"
            )
            raise InputError(
                problem, file=out, remedy="wait until it has ended, or give another --out"
            ) from None
    try:
        (folder / LOCK).write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        # Removed while the lock is held, so that nobody else's is removed.
        (folder / LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            folder.rmdir()
        lock.release()


def _acquire(lock: FileLock, folder: Path) -> None:
    for _ in range(100):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # a run that has ended meanwhile took the folder away
            lock.acquire()
            return
    raise Timeout(lock.lock_file)


def first_process() -> bool:
    """Whether this is the first of the processes that a launcher started, or the only one."""
    return os.environ.get("RANK", "0") in ("", "0")


def holder(out: Path) -> int | None:
    """The process that is writing to a folder; None where there is none.

    The lock itself is not touched: a run that starts at this moment would be refused.
    """
    process = _written(unfinished_folder(out))
    try:
        os.kill(process, 0) if process else None
    except ProcessLookupError:
        return None
    except OSError:  # it is there, and somebody else's
        pass
    return process or None


def _written(folder: Path) -> int:
    """The process id in a lock file; 0 for none."""
    try:
        text = (folder / LOCK).read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # removed meanwhile, or not to be read
        return 0
    return int(text) if text.isdigit() else 0
