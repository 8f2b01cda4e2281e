"""Folders at URLs: where workers on other machines get the fitted measures from and leave their parts.

Any URL that fsspec knows (gs://, s3://, abfs://, with its package installed), or a folder that all see. A file is
there whole or not at all: object stores see to that, elsewhere it is copied under another name and then renamed.

A request that fails is sent again by the store's own client (s3fs with botocore, gcsfs, adlfs), after growing pauses.
Sent again here is only what no client sees: what did not arrive as it was written.
"""

import hashlib
import json
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from capgrade.measures.embeddings import cache_folder
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.files import CACHE, MANIFEST, NO_ROOM, OUT, atomic, digest, entry_of, parse_manifest, writing

WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"}  # no file there is ever half written
PARTIAL = ".partial"
TEMPORARY = "set TMPDIR to a folder that may be written, or change its permissions"
COPY = "copy the whole folder there, with its manifest.json"
PAUSES = (0.1, 0.4, 1.6)  # seconds before a file is fetched again
CUT = re.compile("Payload|Incomplete|Streaming|Checksum")  # in the names of errors for a body that is cut or changed
SECRETS = {  # in URLs
    re.compile(r"(?<=://)[^/@:\s]*:[^/@\s]+@"): "***@",
    re.compile(r"([?&][^=&\s]*(?:sig|token|secret|credential|password|key)[^=&\s]*=)[^&\s'\"]+", re.I): r"\1***",
}


class Remote:
    """A folder at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        with needs("beam"):
            import fsspec
        try:
            self.files, self.root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            remedy = "give a URL such as gs://bucket/folder and install the package that fsspec names for it"
            raise InputError(f"{self}: {without_secrets(str(error))}", remedy=remedy) from error

    def __str__(self) -> str:
        return without_secrets(self.url)

    def put(self, folder: Path, names: Iterable[str]) -> None:
        """Copy files of a local folder, in this order."""
        for name in names:
            path = f"{self.root}/{name}"
            kinds = self.files.protocol
            if WHOLE & {kinds} if isinstance(kinds, str) else WHOLE.intersection(kinds):  # s3fs would make a bucket
                self._do(self.files.put_file, str(folder / name), path)
            else:
                self._do(self.files.makedirs, path.rsplit("/", 1)[0], exist_ok=True)
                temporary = f"{path}.{uuid.uuid4().hex}{PARTIAL}"
                self._do(self.files.put_file, str(folder / name), temporary)
                self._do(self.files.mv, temporary, path)

    def write(self, name: str, write: Callable[[Path], object]) -> dict[str, Any]:
        """Write a file there, by way of a folder of its own: another worker may be at the same one. Returns its size
        and digest."""
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            file = Path(folder) / name
            write(file)
            self.put(Path(folder), [name])
            return entry_of(file)

    def get_listed(self, manifest: str, folder: Path, allow: str = OUT) -> None:
        """Copy a manifest into a local folder, and those of its files that are not there as it says. OSError as
        `get`, and for what is no manifest."""
        self.get(manifest, folder, allow=allow)
        try:
            files = parse_manifest(folder / manifest)["files"]
        except InputError as error:
            raise OSError(f"{self}/{manifest}: {error.problem}") from error
        for name, entry in files.items():
            if not (folder / name).is_file() or digest(folder / name) != entry["sha256"]:
                self.get(name, folder, entry["sha256"], allow)

    def get(self, name: str, folder: Path, sha: str | None = None, allow: str = OUT) -> None:
        """Copy a file into a local folder, again if its SHA-256 is another, or it is no JSON where none is given.
        FileNotFoundError when it is not there, OSError when it never arrives as it should; `allow` is the remedy where
        the folder may not be written."""
        for pause in (*PAUSES, None):
            try:
                with atomic(folder / name, allow) as temporary, _as_raised():
                    self._do(self.files.get_file, f"{self.root}/{name}", str(temporary))
                    if sha is None:
                        json.loads(temporary.read_text(encoding="utf-8"))
                    elif digest(temporary) != sha:
                        raise OSError("not the file of this digest")
                return
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                if pause is None:
                    raise OSError(f"{self}/{name}: not as it was written") from error
            except InputError as error:
                if pause is None or not CUT.search(type(error.__cause__).__name__):
                    raise
            time.sleep(pause)

    def has(self, name: str) -> bool:
        """Whether a file is there now."""
        self.files.invalidate_cache()
        return bool(self._do(self.files.exists, f"{self.root}/{name}"))

    def names(self, under: str = "", depth: int | None = None) -> set[str]:
        """Files in a folder of the folder and below, so many folders deep at most."""
        self.files.invalidate_cache()
        found = self._do(self.files.find, f"{self.root}/{under}".rstrip("/"), maxdepth=depth)
        return {path[len(self.root.rstrip("/")) + 1 :] for path in found if not path.endswith(PARTIAL)}

    def delete(self, name: str) -> None:
        """A file or a whole folder, if it is there: another worker may delete it too."""
        with suppress(FileNotFoundError), _as_raised():
            self.files.invalidate_cache()
            self._do(self.files.rm, f"{self.root}/{name}" if name else self.root, recursive=True)

    def drop_partial(self, names: Container[str]) -> None:
        """What killed workers have left of these files, under other names."""
        self.files.invalidate_cache()
        for path in self._do(self.files.find, self.root):
            if path.endswith(PARTIAL) and path.rsplit("/", 1)[-1][: -len(PARTIAL) - 33] in names:
                self._do(self.files.rm_file, path)

    def _do(self, action: Any, *args: Any, **options: Any) -> Any:
        """What a store or its client raises, as InputError."""
        try:
            return action(*args, **options)
        except Exception as error:
            text = without_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
            remedy = "check the URL, who may read and write there, and run again: what is finished stays"
            raise InputError(f"{self}: {text}", remedy=remedy) from error


def fetch_folder(url: str, folder: Path, remedy: str = COPY, allow: str = TEMPORARY, last: str = "") -> Path:
    """Copy the manifest at the URL and the files it lists, those that the folder does not have. Returns the folder.
    Of those who do it together one fetches; `last` is a folder in it that is made then, and where it is nothing is read
    again. InputError when a file is not there, or does not arrive as it was written; `allow` is the remedy where the
    folder may not be written."""
    with writing(folder, allow):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if last and (folder / last).is_dir():
                return folder
            remote = Remote(url)
            try:
                remote.get_listed(MANIFEST, folder, allow)
            except FileNotFoundError as error:
                raise InputError(f"{remote}: not a finished folder of a stage ({error})", remedy=remedy) from None
            except OSError as error:
                raise InputError(str(error), remedy=remedy) from error
            (folder / last).mkdir(exist_ok=True)
    return folder


def here(given: str) -> Path:
    """A folder, itself; that of a URL below `$CAPGRADE_CACHE/fetched`, where each file is copied once. InputError as
    `fetch_folder`, and when the cache cannot be written."""
    if "://" not in given:
        return Path(given)
    name = hashlib.sha256(given.rstrip("/").encode()).hexdigest()[:16]
    return fetch_folder(given, cache_folder().with_name("fetched") / name, allow=CACHE)


def without_secrets(text: str) -> str:
    """Passwords and signatures in URLs are not for logs."""
    for secret, shown in SECRETS.items():
        text = secret.sub(shown, text)
    return text


@contextmanager
def _as_raised() -> Iterator[None]:
    """FileNotFoundError and a full disk as themselves, for those who expect them."""
    try:
        yield
    except InputError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError) or (isinstance(cause, OSError) and cause.errno in NO_ROOM):
            raise cause from None
        raise
