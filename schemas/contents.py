"""Digests of what lies at a path: of the bytes, not of names above it, sizes or dates.

Digests of files are kept in `cache_folder` by path, size, times and inode, so that large data are
read once. A file that has just been written is read again, as it may change within a clock's tick.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, cache_folder, canonical, digest, write_text
from capgrade.schemas.progress import progress
from capgrade.schemas.tars import expand_braces

_TICK = 2 * 10**9  # ns: of two writes within it, a file system's clock may see one
_THREADS = 8
_MISSING = "missing"


def content_digest(place: str, named: Iterable[Path] = ()) -> str | None:
    """SHA-256 of a file; of a folder, or of the files of a pattern such as {00000..00331}.tar, over
    their names in it and digests; None where nothing is there.

    FOLDER#split is its folder. `named` are further files that the content names. The digest is the
    same wherever the place lies. InputError for a file that may not be read.
    """
    files = list(_files_at(place))
    files += [(str(k), path) for k, path in enumerate(named, start=len(files))]
    if not files:
        return None
    digests = _kept_digests(place, [path for _, path in files])
    if len(files) == 1 and files[0][0] == "":
        return digests[0]
    lines = (f"{name} {one}" for (name, _), one in zip(files, digests, strict=True))
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _files_at(place: str) -> Iterator[tuple[str, Path]]:
    """Files with the names that they have in a folder or pattern; a single file has none."""
    path = Path(place)
    if path.is_file():
        yield "", path
    elif path.is_dir():
        for file in sorted(walk_files(path)):
            yield file.relative_to(path).as_posix(), file
    elif "{" in place:
        yield from ((str(k), Path(one)) for k, one in enumerate(expand_braces(place)))
    elif "#" in place:
        yield from _files_at(place.partition("#")[0])


def walk_files(folder: Path) -> Iterator[Path]:
    """Files below a folder, without hidden ones and Python's caches. Links are followed."""
    seen = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # A link to a folder above would never end.
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [
            name for name in folders if not name.startswith(".") and name != "__pycache__"
        ]
        for name in files:
            if not name.startswith(".") and (path := Path(parent, name)).is_file():
                yield path


def _kept_digests(place: str, paths: list[Path]) -> list[str]:
    """The digest of each file, read where it is not kept or the file has changed."""
    known, now = _Kept(place), time.time_ns()
    stamps = [_stamp(path) for path in paths]
    todo = [
        k
        for k, (path, stamp) in enumerate(zip(paths, stamps, strict=True))
        if stamp and known.digest(path, stamp) is None
    ]
    found: dict[int, str] = {}
    if todo:
        with (
            ThreadPoolExecutor(_THREADS) as threads,
            progress(f"reading {Path(place).name}", len(todo), unit="files") as advance,
        ):
            for k, one in zip(todo, threads.map(lambda k: _read(paths[k]), todo), strict=True):
                found[k] = one
                advance()
    digests = []
    for k, (path, stamp) in enumerate(zip(paths, stamps, strict=True)):
        digests.append(found.get(k) or (known.digest(path, stamp) if stamp else None) or _MISSING)
    for k, one in found.items():
        if (stamp := stamps[k]) and max(stamp[1:3]) < now - _TICK:
            known.entries[str(paths[k].absolute())] = [*stamp, one]
    if found:
        known.write({str(path.absolute()) for path in paths})
    return digests


def _stamp(path: Path) -> list[int] | None:
    """What tells a file from a changed one; None where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read(path: Path) -> str:
    try:
        return digest(path)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(problem, file=path, remedy="check the path") from error


class _Kept:
    """Digests of the files of one place, as an earlier look left them."""

    def __init__(self, place: str) -> None:
        key = hashlib.sha256(str(Path(place).absolute()).encode("utf-8", "surrogateescape"))
        self.file = cache_folder() / "digests" / f"{key.hexdigest()[:24]}.json"
        self.entries: dict[str, list] = {}
        # What is damaged is made again.
        with suppress(OSError, ValueError, RecursionError, AttributeError):
            read = json.loads(self.file.read_text(encoding="utf-8"))
            self.entries = {
                path: entry
                for path, entry in read.items()
                if isinstance(entry, list) and len(entry) == 5 and isinstance(entry[4], str)
            }

    def digest(self, path: Path, stamp: list[int]) -> str | None:
        entry = self.entries.get(str(path.absolute()))
        return entry[4] if entry and entry[:4] == stamp else None

    def write(self, paths: set[str]) -> None:
        """Keep the digests of these files."""
        kept = {path: entry for path, entry in self.entries.items() if path in paths}
        write_text(self.file, canonical(kept), CACHE)
