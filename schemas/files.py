"""Files between stages: written whole or not at all, the manifest last, every byte accounted for.

A stage's output folder holds a few large files and `manifest.json`. The manifest is written last,
so a folder that has one is complete; it carries the parameters and inputs that made the folder, the
size, rows and SHA-256 of each file, and a SHA-256 of itself. Digests of inputs have names, never
folders: those differ between machines.
"""

import errno
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from platformdirs import user_cache_path

from capgrade.schemas.errors import InputError
from capgrade.schemas.reading import require_file
from capgrade.schemas.say import warn

MANIFEST = "manifest.json"
# Ends the name of the folder beside an output that a run writes to until it has ended.
UNFINISHED = ".unfinished"
RUN_FILE = "run.json"  # in a folder of unfinished work: what it is made of
ENDED = "ended.json"  # the same note, where the run has ended and its work is kept
_WORK = re.compile(r"(.+)-[0-9a-f]{16}")  # such a folder's name: its stage, and the key
# Groups of entry points, by which other packages bring measures and stages.
MEASURES_OF_OTHERS, STAGES_OF_OTHERS = "capgrade.measures", "capgrade.stages"
MANIFEST_FORMAT = 2  # 1 had no checksum of itself
SELF = "sha256"  # the manifest's own digest, in the manifest
_DIGITS = 5  # at least, of the numbers of numbered files
LARGEST_JSON = 2**26  # bytes of a manifest or another JSON file that is read whole
# By kind the command and the option that names the folder, where they are not the kind and --out.
COMMANDS = {
    "review": ("explore sample", "--out"),
    "pictures": ("report --charts", "--charts"),
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
# The remedy where nothing says which command wrote a folder.
MAKE_AGAIN = "make it again with the stage that writes it"
_T = TypeVar("_T")


def allowed(option: str) -> str:
    """The remedy where what an option names may not be written."""
    return f"give an {option} that may be written, or change its permissions"


OUT = allowed("--out")
CACHE = "set CAPGRADE_CACHE to a folder that may be written, or change its permissions"


def cache_folder() -> Path:
    """Where what is made once is kept: `$CAPGRADE_CACHE`, else in the user's cache folder."""
    return Path(os.environ.get("CAPGRADE_CACHE") or user_cache_path("capgrade"))


def package_version() -> str:
    return version("capgrade")


def versions_of_others() -> dict[str, str]:
    """By name, the versions of other packages that bring measures or stages by entry points."""
    groups = MEASURES_OF_OTHERS, STAGES_OF_OTHERS
    points = (point for group in groups for point in entry_points(group=group))
    return dict(sorted(found for point in points if (found := package_of(point))))


def package_of(point: EntryPoint) -> tuple[str, str] | None:
    """Name and version of the package of an entry point; None for capgrade, and for what has no
    name, as an installation that is broken."""
    if point.dist is None or not {"Name", "Version"} <= {*point.dist.metadata}:
        return None
    name, release = (point.dist.metadata[key] for key in ("Name", "Version"))
    return None if name == "capgrade" else (name, release)


def of_all(k: int, n: int) -> str:
    """Number k, from 0, of n, such as 00003-of-00008; as many digits as n needs, so texts sort."""
    digits = max(_DIGITS, len(str(n)))
    return f"{k:0{digits}d}-of-{n:0{digits}d}"


def in_order(names: Iterable[str]) -> list[str]:
    """Names by the number in them: as text, 100000 would stand before 99999."""
    return sorted(names, key=lambda name: (len(name), name))


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. InputError as `require_file`."""
    require_file(path)
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by name, with as many of the folders above as tell it from the others."""
    files = {path.resolve(): path for path in paths}
    by_name = {}
    for path, given in files.items():
        count = 1
        while [other.parts[-count:] for other in files].count(path.parts[-count:]) > 1:
            count += 1
        by_name["/".join(path.parts[-count:])] = digest(given)
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
    manifest = _manifest_of(kind, files, params=params, inputs=inputs, **facts)
    write_json(folder / MANIFEST, manifest)
    return manifest


def entry_of(file: Path, **more: int) -> dict[str, Any]:
    """The entry of a file in a manifest."""
    return {"bytes": file.stat().st_size, "sha256": file_digest(file), **more}


def _manifest_of(kind: str, files: dict[str, Any], **facts: Any) -> dict[str, Any]:
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
    if kind == "shards_part":  # in OUT.parts/2-of-3
        out, part = str(folder.parent).removesuffix(".parts"), folder.name.replace("-of-", "/")
        return f"run `capgrade shards --part {part}` again with --out {out}"
    if kind == "reproduction":  # in OUT/RECIPE, by no command of the product
        return f"run `python -m research.reproduce {folder.name}` again with --out {folder.parent}"
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


def work_folders(out: Path) -> list[Path]:
    """The folders of unfinished work of an output, also what is kept of a run that has ended."""
    folder = unfinished_folder(out)
    found = folder.iterdir() if folder.is_dir() else ()
    folders = (path for path in found if path.is_dir() and not path.is_symlink())
    return sorted(path for path in folders if _WORK.fullmatch(path.name))


def stage_of_work(work: Path) -> str:
    """The stage that writes to a folder of unfinished work."""
    match = _WORK.fullmatch(work.name)
    return match[1] if match else ""


def is_unfinished(out: Path) -> bool:
    """Whether a run writes to this output, or was stopped."""
    return any((work / RUN_FILE).is_file() for work in work_folders(out))


def output_of(folder: Path) -> Path:
    """The output whose unfinished work lies in this folder, or in the one above."""
    if not folder.name.endswith(UNFINISHED):
        folder = folder.parent
    if folder.name == UNFINISHED:
        return folder.parent
    return folder.with_name(folder.name.removesuffix(UNFINISHED))


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
    if is_unfinished(folder):
        warn(f"{folder}: read as it was before a run that has not ended; {remedy}")
    check_sizes(folder, manifest["files"], remedy)
    return manifest


def parse_manifest(path: Path, remedy: str = MAKE_AGAIN) -> dict[str, Any]:
    """A manifest whose own checksum is right and whose files' names are of files in its folder.

    Manifests of format 1 have no checksum. InputError otherwise.
    """
    require_file(path)
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
    except OSError:  # a disk's, of a file that is not at fault
        raise
    except Exception as error:
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


def found_manifest(path: Path) -> dict[str, Any]:
    """What a manifest says; nothing where there is none, or it is damaged."""
    with suppress(InputError, OSError):
        return parse_manifest(path)
    return {}
