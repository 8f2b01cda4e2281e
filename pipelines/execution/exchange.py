"""Where workers on other machines get the fitted measures from and leave their parts: a folder of an object store.

Any URL that fsspec knows (gs://, s3://, abfs://, with its package installed), or a folder that all see. A file is
there whole or not at all: object stores see to that, elsewhere it is copied under another name and then renamed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic

WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"}  # no file there is ever half written
PARTIAL = ".partial"


class Remote:
    """A folder at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self.files, self.root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            remedy = "give a URL such as gs://bucket/folder and install the package that fsspec names for it"
            raise InputError(f"{url}: {error}", remedy=remedy) from error

    def put(self, folder: Path, names: Iterable[str]) -> None:
        """Copy files of a local folder, in this order."""
        for name in names:
            path = f"{self.root}/{name}"
            self._do(self.files.makedirs, path.rsplit("/", 1)[0], exist_ok=True)
            if WHOLE.intersection(_protocols(self.files)):
                self._do(self.files.put_file, str(folder / name), path)
            else:
                temporary = f"{path}.{uuid.uuid4().hex}{PARTIAL}"
                self._do(self.files.put_file, str(folder / name), temporary)
                self._do(self.files.mv, temporary, path)

    def get(self, name: str, folder: Path) -> None:
        """Copy a file into a local folder. FileNotFoundError when it is not there."""
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic(folder / name) as temporary, _missing():
            self._do(self.files.get_file, f"{self.root}/{name}", str(temporary))

    def has(self, name: str) -> bool:
        """Whether a file is there now."""
        self.files.invalidate_cache()
        return bool(self._do(self.files.exists, f"{self.root}/{name}"))

    def names(self, under: str, depth: int | None = None) -> set[str]:
        """Files in a folder of the folder and below, so many folders deep at most."""
        self.files.invalidate_cache()
        found = self._do(self.files.find, f"{self.root}/{under}", maxdepth=depth)
        return {path[len(self.root.rstrip("/")) + 1 :] for path in found if not path.endswith(PARTIAL)}

    def delete(self, name: str) -> None:
        """A file or a whole folder, if it is there: another worker may delete it too."""
        with suppress(FileNotFoundError), _missing():
            self.files.invalidate_cache()
            self._do(self.files.rm, f"{self.root}/{name}" if name else self.root, recursive=True)

    def clear(self) -> None:
        """Delete the folder, and its copy on this machine."""
        self.delete("")
        shutil.rmtree(self._copy, ignore_errors=True)

    def mirror(self, folders: Iterable[str]) -> Path:
        """A local copy of some folders, one a machine; a second worker finds it there."""
        copy = self._copy
        if copy.exists() and copy.stat().st_uid != os.getuid():
            raise InputError("belongs to another user", file=copy, remedy="set TMPDIR to a folder of your own")
        if not copy.is_dir():
            fresh = Path(tempfile.mkdtemp(prefix="capgrade-"))
            for file in sorted(file for folder in folders for file in self.names(folder)):
                self.get(file, fresh)
            try:
                fresh.replace(copy)
            except OSError:  # another worker was faster
                shutil.rmtree(fresh)
        return copy

    @property
    def _copy(self) -> Path:
        name = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"capgrade-{os.getuid()}-{name}"

    def _do(self, action: Any, *args: Any, **options: Any) -> Any:
        """What a store or its client raises, as InputError."""
        try:
            return action(*args, **options)
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"{self.url}: {text}", remedy="check the URL and who may write there") from error


def _protocols(files: fsspec.AbstractFileSystem) -> set[str]:
    return {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)


@contextmanager
def _missing() -> Iterator[None]:
    """FileNotFoundError as itself, for those who expect it."""
    try:
        yield
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        raise
