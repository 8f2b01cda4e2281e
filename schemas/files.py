"""Files between stages: written whole or not at all, the manifest last, every byte accounted for.

A stage's output folder holds a few large Arrow files and `manifest.json`. The manifest is written
last, so a folder that has one is complete; it carries the parameters and inputs that made the
folder, the size, rows and SHA-256 of each file, and a SHA-256 of itself.
"""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

MANIFEST = "manifest.json"
# Ends the name of the folder beside an output that a run writes to until it has ended.
UNFINISHED = ".unfinished"
RUN_FILE = "run.json"  # in that folder: which stage writes there, and what its parts depend on
TABLE_FORMAT = 1
MANIFEST_FORMAT = 2  # 1 had no checksum of itself
SELF = "sha256"  # the manifest's own digest, in the manifest
_DIGITS = 5  # at least, of the numbers of numbered files
LARGEST_JSON = 2**26  # bytes of a manifest or another JSON file that is read whole
# By kind the command and the option that names the folder, where they are not the kind and --out.
COMMANDS = {
    "embeddings": ("evaluate --run", "--index"),
    "run": ("train", "--out"),
    "evaluation": ("evaluate", "--out"),
    "tables": ("evaluate --compare", "--out"),
    "alignment": ("search --words", "--words"),
    "review": ("explore --sample", "--sample"),
    "reproduction": ("reproduce", "--out"),
    "pictures": ("report --pictures", "--pictures"),
    "npz": ("regions export --format npz", "--out"),
    "shards_part": ("shards --part", "--out"),
}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
# How errors of libraries that are no OSError, or have no number, say that a disk is full.
_FULL = (
    "No space left on device",
    "requested and",
    "PytorchStreamWriter failed writing",
    "unexpected pos",
)
_AGAIN = "make it again with the stage that writes it"
_METADATA = b"capgrade"
_T = TypeVar("_T")


def allowed(option: str) -> str:
    """The remedy where what an option names may not be written."""
    return f"give an {option} that may be written, or change its permissions"


OUT = allowed("--out")
CACHE = "set CAPGRADE_CACHE to a folder that may be written, or change its permissions"


def package_version() -> str:
    return version("capgrade")


def of_all(k: int, n: int) -> str:
    """Number k, from 0, of n, such as 00003-of-00008; as many digits as n needs, so texts sort."""
    digits = max(_DIGITS, len(str(n)))
    return f"{k:0{digits}d}-of-{n:0{digits}d}"


def in_order(names: Iterable[str]) -> list[str]:
    """Names by the number in them: as text, 100000 would stand before 99999."""
    return sorted(names, key=lambda name: (len(name), name))


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by name, with as many of the folders above as tell it from the others."""
    files = list({path.resolve(): None for path in paths})
    by_name = {}
    for path in files:
        count = 1
        while [other.parts[-count:] for other in files].count(path.parts[-count:]) > 1:
            count += 1
        by_name["/".join(path.parts[-count:])] = digest(path)
    return by_name


def canonical(value: Any) -> str:
    """JSON with sorted keys: the same text for the same value, fit for digests and metadata."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def leaves(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values by their dotted keys, as `--set` takes them; an empty mapping is a value."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        inside = isinstance(value, dict) and value
        values |= leaves(value, f"{above}{key}.") if inside else {f"{above}{key}": value}
    return values


@contextmanager
def atomic(path: Path, allow: str = OUT) -> Iterator[Path]:
    """Yield a temporary path, which takes the place of `path` when the block ends well.

    Else it is deleted. Errors as `writing`; `allow` is the remedy where it may not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with writing(path, allow):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with temporary.open("rb+") as f:
                os.fsync(f.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, allow: str = OUT) -> Iterator[None]:
    """Raise InputError about `path` where the disk is full or may not be written.

    Beam hands on an InputError where it would hide an OSError, and numpy, torch and safetensors
    each have words of their own for a full disk. A file that the block reads is named instead.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, OSError) and number in _NOT_ALLOWED:
            name = error.filename or path
            if not _is_of(name, path):
                problem = f"cannot be read or written ({error.strerror})"
                remedy = "check the path and its permissions"
                raise InputError(problem, file=name, remedy=remedy) from error
        if number in _NOT_ALLOWED:
            remedy = allow
        elif number in NO_ROOM or any(words in str(error) for words in _FULL):
            remedy = "make room and run again; what is finished stays"
        else:
            raise
        problem = os.strerror(number or errno.ENOSPC)
        raise InputError(f"cannot be written ({problem})", file=path, remedy=remedy) from error


def _is_of(file: str | Path, path: Path) -> bool:
    """Whether a file is `path`, in or above it, in its unfinished work, or `atomic`'s for it."""
    file, path = Path(file).resolve(), path.resolve()
    return (
        file.is_relative_to(path)
        or path.is_relative_to(file)
        or file.is_relative_to(unfinished_folder(path))
        or (file.parent == path.parent and file.name.startswith(f".{path.name}."))
    )


def reserve(path: Path, size: int) -> None:
    """Take the room of a file that is then filled through a memory map.

    On a full disk a map would end the process, by SIGBUS; this raises OSError.
    """
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def write_text(path: Path, text: str, allow: str = OUT) -> None:
    """Write a text file whole or not at all. Errors as `atomic`."""
    with atomic(path, allow) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys, whole or not at all. Errors as `atomic`."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def by_size(items: Iterable[_T], size: Callable[[_T], int], target: int) -> Iterator[list[_T]]:
    """Runs of consecutive items that add up to `target`, or hardly more."""
    run: list[_T] = []
    total = 0
    for item in items:
        run.append(item)
        total += size(item)
        if total >= target:
            yield run
            run, total = [], 0
    if run:
        yield run


def numpy_type(kind: pa.DataType) -> np.dtype:
    """The NumPy type of Arrow's integers and floats.

    Arrow's own `to_pandas_dtype` needs pandas, which need not be installed.
    """
    return np.dtype(f"{'float' if pa.types.is_floating(kind) else 'int'}{kind.bit_width}")


def with_metadata(schema: pa.Schema, metadata: dict[str, Any]) -> pa.Schema:
    """The schema with `metadata`, and the format's and package's versions, as JSON."""
    text = canonical({"format": TABLE_FORMAT, "package": package_version(), **metadata})
    return schema.with_metadata({_METADATA: text.encode()})


def metadata_of(schema: pa.Schema, file: Path | None = None) -> dict[str, Any]:
    """What `with_metadata` stored, or an empty dict. InputError about `file` for damaged text."""
    try:
        metadata = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
    except (ValueError, RecursionError) as error:
        problem = f"the metadata of an Arrow file are damaged ({error})"
        raise InputError(problem, file=file, remedy=_AGAIN) from error
    return metadata if isinstance(metadata, dict) else {}


def write_arrow(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], allow: str = OUT
) -> int:
    """Write record batches as one Arrow IPC file, uncompressed, so that it can be memory-mapped.

    Returns its rows. Errors as `atomic`.
    """
    rows = 0
    with (
        atomic(path, allow) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as out,
    ):
        for batch in batches:
            out.write_batch(batch)
            rows += batch.num_rows
    return rows


class ArrowFile:
    """An Arrow IPC file in memory map.

    A record batch is validated when it is taken out, as a damaged offset would end the process.
    That reads offsets and texts, but no numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InputError("no such file", file=path, remedy=f"check the path, or {_AGAIN}")
        with self.refuse_damaged():
            self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
            self.schema: pa.Schema = self._reader.schema
            self.num_record_batches: int = self._reader.num_record_batches
            self.columns = dict(zip(self.schema.names, self.schema.types, strict=True))
        metadata_of(self.schema, path)  # Damaged ones are refused here, where the file is known.

    def get_batch(self, k: int) -> pa.RecordBatch:
        """One record batch. InputError for a damaged one."""
        with self.refuse_damaged():
            batch = self._reader.get_batch(k)
            batch.validate(full=True)
        return batch

    def read_all(self) -> pa.Table:
        """The whole table. InputError for a damaged one."""
        batches = [self.get_batch(k) for k in range(self.num_record_batches)]
        return pa.Table.from_batches(batches, self.schema)

    def need(self, columns: pa.Schema, metadata: Iterable[str] = ()) -> None:
        """InputError when a column is not there or of another type, or the metadata lack a key."""
        for field in columns:
            if self.columns.get(field.name) != field.type:
                problem = f"no column '{field.name}' of type {field.type}"
                raise InputError(problem, file=self.path, remedy=_AGAIN)
        for key in metadata:
            if key not in metadata_of(self.schema):
                raise InputError(f"its metadata have no '{key}'", file=self.path, remedy=_AGAIN)

    @contextmanager
    def refuse_damaged(self) -> Iterator[None]:
        """Raise InputError for what the block raises over a damaged file."""
        try:
            yield
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            TypeError,
            OverflowError,
            MemoryError,
        ) as error:
            text = " ".join(str(error).split())
            problem = f"not a whole Arrow file ({text})"
            raise InputError(problem, file=self.path, remedy=_AGAIN) from error


def open_arrow(path: Path) -> ArrowFile:
    """Memory-map an Arrow IPC file. InputError when it is missing, damaged or no such file."""
    return ArrowFile(path)


def read_arrow(path: Path) -> pa.Table:
    """The whole table of an Arrow IPC file. InputError as `open_arrow`."""
    return open_arrow(path).read_all()


def write_manifest(
    folder: Path,
    kind: str,
    *,
    params: Any,
    inputs: dict[str, str],
    rows: dict[str, int],
    **facts: Any,
) -> dict[str, Any]:
    """Write `manifest.json` for the files named in `rows` (file name -> row count); call it last.

    `inputs` maps a name to the SHA-256 of what the stage read; `facts` are counts worth knowing.
    """
    files = {name: entry_of(folder / name, rows=count) for name, count in sorted(rows.items())}
    manifest = manifest_of(kind, files, params=params, inputs=inputs, **facts)
    write_json(folder / MANIFEST, manifest)
    return manifest


def entry_of(file: Path, **more: int) -> dict[str, Any]:
    """The entry of a file in a manifest."""
    return {"bytes": file.stat().st_size, "sha256": digest(file), **more}


def manifest_of(kind: str, files: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A manifest, from the entry of each file by its name, params, inputs and other facts."""
    versions = {"format": MANIFEST_FORMAT, "package": package_version()}
    manifest = {"kind": kind, **versions, "files": files, **facts}
    return {**manifest, SELF: self_digest(manifest)}


def self_digest(manifest: dict[str, Any]) -> str:
    """SHA-256 of a manifest's canonical text without the entry that holds it."""
    content = json.loads(json.dumps(manifest))
    content.pop(SELF, None)
    return hashlib.sha256(canonical(content).encode("utf-8", "surrogatepass")).hexdigest()


def command_of(kind: str) -> tuple[str, str]:
    """The command that writes folders of a kind, and the option that names the folder."""
    return COMMANDS.get(kind, (kind, "--out"))


def made_again(kind: str, folder: Path) -> str:
    """How to make such a folder anew, in words."""
    if kind == "shards_parquet":
        return "empty the folder, and run the pipeline with `WriteShards` again"
    if kind == "shards_part":  # in OUT.parts/2-of-3
        out, part = str(folder.parent).removesuffix(".parts"), folder.name.replace("-of-", "/")
        return f"run `capgrade shards --part {part}` again with --out {out}"
    command, option = command_of(kind)
    return f"run `capgrade {command}` again with {option} {folder}"


def unfinished_folder(out: Path) -> Path:
    """The folder that a run writes to until it has ended.

    It is beside the output, which whoever runs pipelines may delete before a stage starts, but
    inside an `out` that is a mounted file system, as nothing can be moved into that from outside.
    """
    if out.is_mount():
        return out / UNFINISHED
    named = out if out.name not in ("", "..") and not out.is_symlink() else out.resolve()
    return named.with_name(named.name + UNFINISHED)


def unfinished_work(folder: Path) -> bool:
    """Whether a run writes to this folder, or did until it was stopped."""
    return (folder / RUN_FILE).is_file()


def output_of(folder: Path) -> Path:
    """The output whose unfinished work a folder holds."""
    return (
        folder.parent
        if folder.name == UNFINISHED
        else folder.with_name(folder.name.removesuffix(UNFINISHED))
    )


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest of a finished stage's folder, whose files are there at their full size.

    Raises InputError when the folder is no finished `kind` folder, when the manifest is not what
    was written, and when a file is missing or has another size.
    """
    if folder.is_file():
        raise InputError(
            f"a file where a folder of {kind} is needed",
            file=folder,
            remedy="give what --out named",
        )
    remedy = made_again(kind, folder)
    if not folder.exists():
        problem = f"no such folder: not a finished {kind} folder"
        raise InputError(problem, file=folder, remedy=f"check the path, or {remedy}")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"no {MANIFEST}: not a finished {kind} folder", file=folder, remedy=remedy)
    manifest = parse_manifest(folder / MANIFEST, remedy)
    if manifest["kind"] != kind:
        raise InputError(
            f"a folder of {manifest['kind']} where one of {kind} is needed", file=folder
        )
    if unfinished_work(unfinished_folder(folder)):
        warn(f"{folder}: read as it was before a run that has not ended; {remedy}")
    check_sizes(folder, manifest["files"], remedy)
    return manifest


def parse_manifest(path: Path, remedy: str = _AGAIN) -> dict[str, Any]:
    """A manifest whose own checksum is right and whose files' names are of files in its folder.

    Manifests of format 1 have no checksum. InputError otherwise.
    """
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ValueError(f"{path.stat().st_size} bytes")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        kind, old = manifest["kind"], manifest.get("format", 1) == 1 and SELF not in manifest
        right = old or manifest[SELF] == self_digest(manifest)
        whole = bool(manifest["files"]) and isinstance(kind, str)
        for entry in manifest["files"].values():
            numbers = type(entry["bytes"]) is type(entry.get("rows", 0)) is int
            whole &= numbers and type(entry.get("sha256", "")) is str
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"not a manifest ({type(error).__name__}: {error})", file=path, remedy=remedy
        ) from error
    if not right:
        raise InputError(
            "damaged: its content does not match its own SHA-256", file=path, remedy=remedy
        )
    if not whole:
        raise InputError(
            "not a manifest (its files lack sizes, rows or digests)", file=path, remedy=remedy
        )
    for name in manifest["files"]:
        if not inside(name):
            raise InputError(
                f"lists {name!r}, which is not a file of its folder", file=path, remedy=remedy
            )
    return manifest


def inside(name: str) -> bool:
    """Whether this names a file of a folder or of a folder in it."""
    path = PurePosixPath(name)
    return (
        name.isprintable()
        and "\\" not in name
        and bool(path.parts)
        and not {"/", ".."} & set(path.parts)
    )


def sizes_of(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Bytes of those of the files that are there."""
    return {name: (folder / name).stat().st_size for name in names if (folder / name).is_file()}


def altered(
    files: Mapping[str, Any],
    sizes: Mapping[str, int],
    base: str,
    remedy: str,
    sha256: Callable[[str], str] | None = None,
) -> Iterator[InputError]:
    """Problems of a manifest's files that are missing, have another size, or other bytes.

    `sizes` are of the files that are there. `sha256` reads one, or None leaves bytes unread. An
    error names a file with `base` before it.
    """
    for name, entry in files.items():
        try:
            if name not in sizes:
                problem = "missing, though the manifest lists it"
            elif sizes[name] != entry["bytes"]:
                problem = f"{sizes[name]} bytes where the manifest says {entry['bytes']}"
            elif sha256 is not None and sha256(name) != entry.get("sha256"):
                problem = "altered: its SHA-256 is not the manifest's"
            else:
                continue
            yield InputError(problem, file=base + name, remedy=remedy)
        except InputError as error:  # `sha256` asks a hub, which may not give the file
            yield error


def check_sizes(folder: Path, files: Mapping[str, Any], remedy: str) -> None:
    """InputError when one of a manifest's files is missing, or has another size."""
    for problem in altered(files, sizes_of(folder, files), f"{folder}/", remedy):
        raise problem
