"""What stands between a user's file and the library that reads it: regular files alone are opened,
archives stay within a limit, and whatever the library raises becomes one InputError."""

import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import shorten

from capgrade.schemas.errors import InputError

FETCH_AGAIN = "download or write it again"
# An archive may unpack to so many bytes, or to so many times its own size, whichever is more.
# Numbers and pictures stay far below: only what was made to fill a memory has more.
UNPACKED, TIMES = 2**28, 50
MOST_BYTES = 2**28  # of a picture, or of another member that is read whole
# Bytes that are asked of a member at once: bzip2 and LZMA unpack what they are given altogether.
_STEP = 4096
_KINDS = {stat.S_ISCHR: "a device", stat.S_ISBLK: "a device", stat.S_ISFIFO: "a pipe"}
_SHOWN = 300  # characters of a library's message


def require_file(path: Path) -> None:
    """InputError when there is no file, and for a folder, a device, a pipe or a socket: those have
    no end, or wait for ever."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("no such file", file=path, remedy="check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        problem = f"cannot be read ({reason_of(error)})"
        remedy = "check the path and its permissions"
        raise InputError(problem, file=ascii(str(path))[1:-1], remedy=remedy) from None
    if stat.S_ISDIR(mode):
        problem, remedy = "a folder where a file is needed", "name the file in it"
        raise InputError(problem, file=path, remedy=remedy)
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS.items() if is_kind(mode)), "a socket")
        remedy = "write what it gives to a file, and give that"
        raise InputError(f"{kind} where a file is needed", file=path, remedy=remedy)


@contextmanager
def reading(
    path: str | Path,
    what: str | None = None,
    *,
    row: int | str | None = None,
    remedy: str | None = FETCH_AGAIN,
) -> Iterator[None]:
    """Raise InputError for whatever a library raises in the block, which calls it and does nothing
    else: `not a whole WHAT`, or without `what` that the file cannot be read.

    No list of exceptions: a damaged file makes libraries raise what none of them documents.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        problem = f"not a whole {what}" if what else "cannot be read"
        problem = f"{problem} ({reason_of(error)})"
        raise InputError(problem, file=path, row=row, remedy=remedy) from error


def reason_of(error: Exception) -> str:
    """What an exception says, in one short line."""
    text = getattr(error, "strerror", None) or str(error)
    readable = str(text).encode(errors="replace").decode()
    return shorten(readable, _SHOWN, placeholder=" ...") or type(error).__name__


def refuse_unpacked(unpacked: int, packed: int, path: str | Path, row: str | None = None) -> None:
    """InputError for what unpacks to more bytes than UNPACKED and than TIMES its own."""
    if unpacked > max(UNPACKED, TIMES * packed):
        problem = (
            f"{unpacked:,} bytes when unpacked, of {packed:,}; at most {UNPACKED:,},"
            f" or {TIMES} times as many, are read"
        )
        raise InputError(problem, file=path, row=row, remedy="write it anew, in several files")


def refuse_archive(archive: zipfile.ZipFile, path: Path) -> None:
    """InputError for a zip whose members together are more than `refuse_unpacked` lets pass."""
    refuse_unpacked(sum(one.file_size for one in archive.infolist()), path.stat().st_size, path)


def read_member(archive: zipfile.ZipFile, name: str, path: str | Path) -> bytes:
    """The bytes of a zip's member. InputError for more than MOST_BYTES, and for a damaged one."""
    with reading(path, row=name):
        size = archive.getinfo(name).file_size
        if size > MOST_BYTES:
            problem = f"{size:,} bytes; at most {MOST_BYTES:,} are read"
            raise InputError(problem, file=path, row=name)
        with archive.open(name) as member:
            return b"".join(iter(partial(member.read, _STEP), b""))


def start_of_member(archive: zipfile.ZipFile, name: str, count: int) -> bytes:
    """The first bytes of a zip's member. Errors are whatever zipfile raises."""
    with archive.open(name) as member:
        return member.read(count)
