"""Files between stages: written whole or not at all, the manifest last, every byte accounted for.

A stage's output folder holds a few large Arrow files and `manifest.json`. The manifest is written last, so a
folder that has one is complete; it carries the parameters and inputs that made the folder and the size, rows
and SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.errors import InputError

FORMAT = 1
MANIFEST = "manifest.json"
_METADATA = b"capgrade"


def package_version() -> str:
    return version("capgrade")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys: the same text for the same value, fit for digests and metadata."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as f:
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def with_metadata(schema: pa.Schema, metadata: dict[str, Any]) -> pa.Schema:
    """The schema with `metadata` and the package and format versions under the key `capgrade`, as JSON."""
    text = canonical({"format": FORMAT, "package": package_version(), **metadata})
    return schema.with_metadata({_METADATA: text.encode()})


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """What `with_metadata` stored, or an empty dict."""
    return json.loads((schema.metadata or {}).get(_METADATA, b"{}"))


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write record batches as one uncompressed Arrow IPC file (memory-mappable), atomically; returns its rows."""
    rows = 0
    with (
        atomic(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as out,
    ):
        for batch in batches:
            out.write_batch(batch)
            rows += batch.num_rows
    return rows


def open_arrow(path: Path) -> pa.ipc.RecordBatchFileReader:
    """Memory-map an Arrow IPC file. InputError when it is missing, truncated or not one."""
    if not path.is_file():
        raise InputError("no such file", file=path)
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (pa.ArrowInvalid, OSError) as error:
        raise _not_whole(path, error) from error


def read_arrow(path: Path) -> pa.Table:
    reader = open_arrow(path)
    try:
        return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise _not_whole(path, error) from error


def _not_whole(path: Path, error: Exception) -> InputError:
    remedy = "make it again with the stage that writes it"
    return InputError(f"not a whole Arrow file ({error})", file=path, remedy=remedy)


def write_manifest(
    folder: Path, kind: str, *, params: Any, inputs: dict[str, str], rows: dict[str, int], **facts: Any
) -> dict[str, Any]:
    """Write `manifest.json` for the files named in `rows` (file name -> row count); call it last.

    `inputs` maps a name to the SHA-256 of what the stage read; `facts` are counts worth knowing.
    """
    files = {
        name: {"rows": count, "bytes": (folder / name).stat().st_size, "sha256": digest(folder / name)}
        for name, count in sorted(rows.items())
    }
    manifest = {
        "kind": kind, "format": FORMAT, "package": package_version(),
        "params": params, "inputs": inputs, "files": files, **facts,
    }  # fmt: skip
    write_json(folder / MANIFEST, manifest)
    return manifest


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest of a finished stage's folder, after checking that its files are there at their full size.

    Raises InputError when the folder is no finished `kind` folder, or a file is missing or has another size.
    """
    path = folder / MANIFEST
    remedy = f"run `capgrade {kind}` again with --out {folder}"
    if not path.is_file():
        raise InputError(f"no {MANIFEST}: not a finished {kind} folder", file=folder, remedy=remedy)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not a manifest ({error})", file=path, remedy=remedy) from error
    if manifest.get("kind") != kind:
        raise InputError(f"a {manifest.get('kind')} folder where a {kind} folder is needed", file=folder)
    for name, size in files.items():
        _check_size(folder / name, size, remedy)
    return manifest


def _check_size(path: Path, size: int, remedy: str) -> None:
    if not path.is_file():
        raise InputError("missing, though the manifest lists it", file=path, remedy=remedy)
    if path.stat().st_size != size:
        raise InputError(f"{path.stat().st_size} bytes where the manifest says {size}", file=path, remedy=remedy)


def read_json(path: Path) -> Any:
    """Read a JSON file. InputError when it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except ValueError as error:
        raise InputError(f"not JSON ({error})", file=path) from error
