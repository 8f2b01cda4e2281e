"""Where workers on other machines get the fitted measures from and leave their parts: a folder of an object store.

Any URL that fsspec knows (gs://, s3://, abfs://, with its package installed), or a folder that all see. An object is
there whole or not at all, so what is there needs no second look until its digest is checked on the way back.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec

from schemas.errors import InputError


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
            self._do(self.files.makedirs, f"{self.root}/{name}".rsplit("/", 1)[0], exist_ok=True)
            self._do(self.files.put_file, str(folder / name), f"{self.root}/{name}")

    def get(self, name: str, folder: Path) -> None:
        """Copy a file into a local folder."""
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        self._do(self.files.get_file, f"{self.root}/{name}", str(folder / name))

    def names(self, under: str) -> set[str]:
        """Files in a folder of the folder and below."""
        self.files.invalidate_cache()
        found = self._do(self.files.find, f"{self.root}/{under}")
        return {path[len(self.root.rstrip("/")) + 1 :] for path in found}

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._do(self.files.rm_file, f"{self.root}/{name}")

    def clear(self) -> None:
        """Delete the folder, and its copy on this machine."""
        self._do(self.files.rm, self.root, recursive=True)
        shutil.rmtree(self._place, ignore_errors=True)

    def mirror(self, folders: Iterable[str]) -> Path:
        """A local copy of some folders, one a machine; a second worker finds it there."""
        place = self._place
        if place.exists() and place.stat().st_uid != os.getuid():
            raise InputError("belongs to another user", file=place, remedy="set TMPDIR to a folder of your own")
        if not place.is_dir():
            fresh = Path(tempfile.mkdtemp(prefix="capgrade-"))
            for file in sorted(file for folder in folders for file in self.names(folder)):
                self.get(file, fresh)
            try:
                fresh.replace(place)
            except OSError:  # another worker was faster
                shutil.rmtree(fresh)
        return place

    @property
    def _place(self) -> Path:
        name = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"capgrade-{os.getuid()}-{name}"

    def _do(self, action: Any, *args: Any, **options: Any) -> Any:
        """What a store or its client raises, as InputError."""
        try:
            return action(*args, **options)
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"{self.url}: {text}", remedy="check the URL and who may write there") from error
