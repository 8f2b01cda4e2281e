"""A finished stage's folder at a URL: copied here once, every file by its digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from filelock import FileLock

from capgrade.pipelines.execution.exchange import Remote, whole_json, with_digest
from capgrade.pipelines.measures.embeddings import cache_folder
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, MANIFEST, digest, parse_manifest, writing


def fetch_folder(url: str, folder: Path) -> Path:
    """Copy the manifest at the URL and the files it lists, those that the folder does not have. Returns the folder.
    InputError when one is not there, or does not arrive as it was written."""
    remote = Remote(url)
    try:
        remote.get(MANIFEST, folder, whole_json)
        for name, entry in parse_manifest(folder / MANIFEST)["files"].items():
            if not (folder / name).is_file() or digest(folder / name) != entry["sha256"]:
                remote.get(name, folder, with_digest(entry["sha256"]))
    except FileNotFoundError as error:
        problem = f"not a finished folder of a stage ({error})"
        raise InputError(f"{remote}: {problem}", remedy="copy the whole folder there, with its manifest.json") from None
    except OSError as error:
        raise InputError(f"{remote}: {error}", remedy="copy the whole folder there again") from error
    return folder


def here(given: str) -> Path:
    """A folder, itself; that of a URL below `$CAPGRADE_CACHE/fetched`, where each file is copied once. InputError as
    `fetch_folder`, and when the cache cannot be written."""
    if "://" not in given:
        return Path(given)
    copy = cache_folder().with_name("fetched") / hashlib.sha256(given.rstrip("/").encode()).hexdigest()[:16]
    with writing(copy, CACHE):
        copy.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{copy}.lock"):
            return fetch_folder(given, copy)
