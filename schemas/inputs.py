"""Digests of what a stage reads: of an unfinished run, and in a manifest.

With other content a run starts afresh, and a result says what it was made from. Digests have names,
never folders: those differ between machines.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read once in a process as long as the file is not touched.

    InputError when there is none.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", file=path, remedy="check the path"
        ) from error
    return _digest(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


@lru_cache(maxsize=1024)
def _digest(path: str, *_: int) -> str:
    return digest(Path(path))


def folder_digest(folder: Path, files: Iterable[Path] | None = None) -> str:
    """SHA-256 over the names and digests of a folder's files; None takes all but hidden ones."""
    if files is None:
        files = (
            path for path in folder.rglob("*") if not path.name.startswith(".") and path.is_file()
        )
    named = sorted((path.relative_to(folder).as_posix(), path) for path in files)
    lines = (f"{name} {file_digest(path)}" for name, path in named)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def found_digests(**named: Path | None) -> dict[str, str]:
    """SHA-256 of each path that is there: of a file, or of the manifest of a stage's folder.

    A missing one is refused by its reader, who knows what it should be.
    """
    digests = {}
    for name, path in named.items():
        file = path / MANIFEST if path is not None and path.is_dir() else path
        if file is not None and file.is_file():
            digests[name] = file_digest(file)
    return digests
