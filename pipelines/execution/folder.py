"""A folder at any path or URL that fsspec knows: workers read from it and leave their parts in it.

A file is there whole or not at all. A put to an object store is; elsewhere a file is written under
another name and then renamed. A request that fails is sent again by the store's own client (s3fs,
gcsfs, adlfs).
"""

import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    CACHE,
    MANIFEST,
    NO_ROOM,
    OUT,
    atomic,
    cache_folder,
    digest,
    parse_manifest,
    write_text,
    writing,
)
from capgrade.schemas.locks import locked

OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"}
TEMPORARY = re.compile(r"(^|/)\.[^/]+\.tmp$")  # names of files that are being written
TMPDIR = "set TMPDIR to a folder that may be written, or change its permissions"
COPY = "copy the whole folder there, with its manifest.json"
SECRETS = {  # in URLs
    re.compile(r"(?<=://)[^/@:\s]*:[^/@\s]+@"): "***@",
    re.compile(
        r"([?&][^=&\s]*(?:sig|token|secret|credential|password|key)[^=&\s]*=)[^&\s'\"]+", re.I
    ): r"\1***",
}


class Folder:
    """A folder at a path or URL; `local` is its path where it is a folder of this machine."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            if "://" in url:
                self.files, self.root = fsspec.url_to_fs(url)
            else:
                self.files, self.root = LocalFileSystem(), str(Path(url).resolve())
        except (ImportError, ValueError) as error:
            remedy = "give a URL such as gs://bucket/folder and "
            remedy += "install the package that fsspec names for it"
            raise InputError(f"{self}: {without_secrets(str(error))}", remedy=remedy) from error
        self.root = self.root.rstrip("/")
        self.local = Path(self.root) if isinstance(self.files, LocalFileSystem) else None

    def __str__(self) -> str:
        return without_secrets(self.url)

    def names(self, under: str = "") -> set[str]:
        """Names of its files, or of those below one of its folders."""
        with self._errors():
            self.files.invalidate_cache()
            paths = self.files.find(f"{self.root}/{under}".rstrip("/"))
        return {path[len(self.root) + 1 :] for path in paths if not TEMPORARY.search(path)}

    def exists(self, name: str) -> bool:
        with self._errors():
            self.files.invalidate_cache()
            return bool(self.files.exists(f"{self.root}/{name}"))

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Make a file by a function that writes one at a local path, whole or not at all."""
        if self.local:
            write(self.local / name)
            return
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            file = Path(folder) / Path(name).name
            write(file)
            self.put(file, name)

    def put(self, file: Path, name: str) -> None:
        """Copy a local file into the folder."""
        path = f"{self.root}/{name}"
        kinds = self.files.protocol
        with self._errors():
            # A store has no folders to be made: s3fs would make a bucket that is not there.
            if OBJECT_STORES & ({kinds} if isinstance(kinds, str) else set(kinds)):
                self.files.put_file(str(file), path)
            else:
                above, _, last = path.rpartition("/")
                self.files.makedirs(above, exist_ok=True)
                temporary = f"{above}/.{last}.{uuid.uuid4().hex}.tmp"
                self.files.put_file(str(file), temporary)
                self.files.mv(temporary, path)

    def get(self, name: str, file: Path, allow: str = OUT) -> None:
        """Copy one of its files to a local path. `allow` is the remedy where that fails."""
        with atomic(file, allow) as temporary, self._errors():
            self.files.get_file(f"{self.root}/{name}", str(temporary))

    def delete(self, name: str = "") -> None:
        """Delete one of its files, or all of it; another worker may have done so."""
        with self._errors(), suppress(FileNotFoundError):
            self.files.invalidate_cache()
            self.files.rm(f"{self.root}/{name}" if name else self.root, recursive=True)

    def local_copy(self, folders: Iterable[str]) -> Path:
        """Itself where it is local, else a copy of these of its folders: memory maps need files.

        The copy is in the temporary folder of this machine. One process makes it, others wait.
        InputError where it cannot be written.
        """
        if self.local:
            return self.local
        copy = self._copy()
        with writing(copy, TMPDIR):
            copy.mkdir(mode=0o700, exist_ok=True)
            if copy.lstat().st_uid != os.getuid():
                raise InputError(
                    "belongs to another user",
                    file=copy,
                    remedy="set TMPDIR to a folder of your own",
                )
            with locked(copy / ".lock"):
                # It lists the files, as a machine may delete old ones from its temporary folder.
                whole = copy / ".whole"
                if not whole.is_file() or whole.read_text(encoding="utf-8") != _listing(copy):
                    with self._errors():
                        for name in folders:  # the slash at the end asks for what the folder holds
                            self.files.get(f"{self.root}/{name}/", str(copy / name), recursive=True)
                    write_text(whole, _listing(copy), TMPDIR)
        return copy

    def delete_all(self) -> None:
        """Delete it, and the `local_copy` of it on this machine."""
        self.delete()
        shutil.rmtree(self._copy(), ignore_errors=True)

    def _copy(self) -> Path:
        name = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"capgrade-{os.getuid()}-{name}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise an error of a store or its client as InputError; a full disk is this machine's."""
        try:
            yield
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise
            text = without_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
            remedy = (
                "check the URL, who may read and write there, and run again: what is finished stays"
            )
            raise InputError(f"{self}: {text}", remedy=remedy) from error


def _listing(folder: Path) -> str:
    """Names and sizes of a folder's files, but for hidden ones."""
    files = [path for path in folder.rglob("[!.]*") if path.is_file()]
    return "".join(f"{path.relative_to(folder)} {path.stat().st_size}\n" for path in sorted(files))


def fetch_finished(url: str, folder: Path, allow: str = TMPDIR) -> Path:
    """Copy a stage's finished folder from a URL: files that do not stand here as listed there.

    Returns the local folder. InputError when it is not finished, when a file is not as its manifest
    says, and when the local folder may not be written, with `allow` as the remedy.
    """
    source = Folder(url)
    with writing(folder, allow):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(folder / ".lock"):
            if not source.exists(MANIFEST):
                raise InputError(f"{source}: not a finished folder of a stage", remedy=COPY)
            source.get(MANIFEST, folder / MANIFEST, allow)
            for name, entry in parse_manifest(folder / MANIFEST, COPY)["files"].items():
                file, wanted = folder / name, entry["sha256"]
                if file.is_file() and digest(file) == wanted:
                    continue
                source.get(name, file, allow)
                if digest(file) != wanted:
                    raise InputError(f"{source}/{name}: not as its manifest says", remedy=COPY)
    return folder


def put_finished(folder: Path, url: str) -> None:
    """Copy a stage's finished folder to a URL: the files that its manifest lists, then itself."""
    target = Folder(url)
    for name in (*parse_manifest(folder / MANIFEST)["files"], MANIFEST):
        target.put(folder / name, name)


def local_folder(place: str) -> Path:
    """A folder at a path, or of one at a URL its copy below `$CAPGRADE_CACHE/fetched`.

    InputError as `fetch_finished`.
    """
    if "://" not in place:
        return Path(place)
    name = hashlib.sha256(place.rstrip("/").encode()).hexdigest()[:16]
    return fetch_finished(place, cache_folder() / "fetched" / name, allow=CACHE)


def without_secrets(text: str) -> str:
    """The text without passwords and signatures in URLs, which are not for logs."""
    for secret, shown in SECRETS.items():
        text = secret.sub(shown, text)
    return text
