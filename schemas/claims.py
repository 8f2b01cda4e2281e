"""Whose an output folder is: the one run that may write to it, and which of its files its stage has written.

A file lock holds the folder; the system frees it when its process is killed. `.stage` is there until the manifest
names the files. Its first line is the stage, every other the name of a file, written before the file is. So a run that
was stopped is known as ours, and what it did not write is known as somebody else's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout

from capgrade.schemas.errors import InputError

MANIFEST, WORK, STAGE, LOCK = "manifest.json", ".work", ".stage", ".lock"


class Claims:
    def __init__(self, folder: Path, stage: str, names: set[str]) -> None:
        self.folder, self.stage, self.names = folder, stage, names
        self.begun = False
        self.before: dict[str, Any] = {}  # the manifest that stood here

    def begin(self) -> None:
        """From now on the folder has no manifest: its files may be of this run or of the one before."""
        if not self.begun:
            self.begun = True
            temporary = self.folder / f"{STAGE}.tmp"
            temporary.write_text("".join(f"{line}\n" for line in (self.stage, *sorted(self.names))), encoding="utf-8")
            temporary.replace(self.folder / STAGE)
            with suppress(OSError, ValueError, TypeError, RecursionError):
                self.before = dict(json.loads((self.folder / MANIFEST).read_bytes()))
            (self.folder / MANIFEST).unlink(missing_ok=True)

    def add(self, *names: str) -> None:
        """InputError when one of them is there, and neither this run nor the one before has written it."""
        new = [name for name in names if name not in self.names]
        for name in new:
            if os.path.lexists(self.folder / name):
                remedy = "move it away, or give another --out; nothing was written over it"
                raise InputError("it is there and capgrade did not write it", file=self.folder / name, remedy=remedy)
        self.begin()
        with (self.folder / STAGE).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in new)
        self.names.update(new)


OPEN: dict[Path, Claims] = {}  # by folder, of this process


def opened(folder: Path) -> Claims | None:
    """The claims of an output folder that this process has open."""
    return OPEN.get(folder.resolve())


def finish_claims(folder: Path, keep: set[str]) -> None:
    """The manifest is there: what was written and is not among its files goes, and so does `.stage`."""
    claims, noted = opened(folder), read_claims(folder)
    for name in (noted[1] if noted else set()) - keep:
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            (folder / name).unlink()
    (folder / STAGE).unlink(missing_ok=True)
    if claims is not None:
        claims.names, claims.begun, claims.before = set(keep), False, {}


def claim(path: Path) -> None:
    """Note a file that is about to be written, where it lies in an open output folder; not what an unfinished run
    keeps for itself, nor the manifest."""
    whole = path.parent.resolve() / path.name
    for folder, claims in OPEN.items():
        if whole.is_relative_to(folder):
            name = whole.relative_to(folder)
            if name.parts[0] != WORK and name.as_posix() != MANIFEST:
                claims.add(name.as_posix())


def read_claims(folder: Path) -> tuple[str, set[str]] | None:
    """The stage of an unfinished run and the files it has written or was about to; None where there is none.

    InputError when a name in it is not one of a file in the folder.
    """
    try:
        stage, *names = (folder / STAGE).read_text(encoding="utf-8").split("\n")[:-1] or [""]
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        stage, names = "", []
    for name in names:
        if not inside(name):
            problem = f"names {name!r}, which is not a file of its folder"
            raise InputError(problem, file=folder / STAGE, remedy="give another --out")
    return stage, set(names)


def inside(name: str) -> bool:
    """Whether this names a file of a folder or of a folder in it."""
    path = PurePosixPath(name)
    return name.isprintable() and "\\" not in name and bool(path.parts) and not {"/", ".."} & set(path.parts)


def temporaries(folder: Path, names: set[str]) -> list[Path]:
    """What `atomic` left of these files, and of the manifest, when it was killed."""
    left, names = [], {MANIFEST, *names}
    for place in {(folder / name).parent for name in names}:
        for path in place.glob(".*.tmp"):
            own = re.fullmatch(r"\.(.+?)\.\d+(\.\d+)?\.tmp", path.name)  # of a process and a thread
            if own and (path.parent / own[1]).relative_to(folder).as_posix() in names:
                left.append(path)
    return sorted(left)


@contextmanager
def only_run(out: Path) -> Iterator[None]:
    """Hold `out` (made if it is not there) against other runs. Raises InputError with the other run's process id."""
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / LOCK, timeout=0)
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
