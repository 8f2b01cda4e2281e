"""A file that one process holds at a time, and that names this process.

The lock is `flock`'s, which ends with its process. Where a file system has none, a file is held as
long as the process that it names is alive.
"""

import errno
import fcntl
import math
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.say import tell

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_NO_FILE = {errno.ELOOP, errno.EISDIR, errno.ENXIO}  # a link, a folder, a pipe
_OURS = re.compile(rb"(?:(\d+)(?: (\S+))?)?\n?")  # a process, and the machine that it runs on
_PAUSE = 0.02  # seconds between two tries
_held: dict[int, Path] = {}  # by descriptor


class HeldError(Exception):
    """Another process holds the file. `certain` is False where only the file's text says so."""

    def __init__(self, process: int, host: str, certain: bool) -> None:
        super().__init__(process, host, certain)
        self.process, self.host, self.certain = process, host, certain


def _let_go() -> None:
    """A forked worker would hold the lock after its parent has died."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def locked(file: Path, wait: float = math.inf, *, remove: bool = False) -> Iterator[None]:
    """Hold `file`, which is made with its folder. With `remove` it is deleted in the end, and the
    folder where it is empty.

    Raises HeldError where another process holds it for longer than `wait` seconds, and InputError
    where the file is somebody else's: it has another content or another name, or is a link.
    """
    until = time.monotonic() + wait
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = _take(file)
        except HeldError:
            if time.monotonic() > until:
                raise
        else:
            if descriptor is not None:
                break
        time.sleep(_PAUSE)
    _held[descriptor] = file
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {_host()}\n".encode(), 0)
        yield
    finally:
        if descriptor in _held:  # a forked worker has none
            if remove:  # while it is held, so that nobody else's is removed
                file.unlink(missing_ok=True)
                with suppress(OSError):  # not empty
                    file.parent.rmdir()
            del _held[descriptor]
            os.close(descriptor)


def _take(file: Path) -> int | None:
    """The descriptor of the file, locked; None where the file was removed meanwhile.

    Errors as `locked`.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(file, flags, 0o644)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _foreign(file) from None
        raise
    kept = False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise _foreign(file)
        text = os.pread(descriptor, 4096, 0)
        if not _OURS.fullmatch(text):
            raise _foreign(file)
        process, host = _parse(text)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    raise HeldError(process, host, certain=True) from None
                raise
            mine = process == os.getpid() and file not in _held.values()
            if process and not mine and (host not in ("", _host()) or is_alive(process)):
                raise HeldError(process, host, certain=False) from None
            tell(
                f"{file.parent}: this file system has no locks (flock), so start no second run with"
                " this output on another machine"
            )
        try:
            kept = os.path.samestat(found, file.lstat())
        except FileNotFoundError:
            return None
        return descriptor if kept else None
    finally:
        if not kept:
            os.close(descriptor)


def _foreign(file: Path) -> InputError:
    return InputError(
        "it is there and capgrade did not write it",
        file=file,
        remedy="move it away; nothing was written over it",
    )


def read_lock(file: Path) -> tuple[int, str]:
    """The process that a lock's file names, 0 for none, and its machine."""
    try:
        return _parse(file.read_bytes()[:4096])
    except OSError:  # removed meanwhile, or not to be read
        return 0, ""


def _parse(text: bytes) -> tuple[int, str]:
    match = _OURS.fullmatch(text)
    return (int(match[1] or 0), (match[2] or b"").decode(errors="replace")) if match else (0, "")


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True


def _host() -> str:
    return re.sub(r"\s", "", socket.gethostname())
