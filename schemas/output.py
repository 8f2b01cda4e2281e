"""The one rule of outputs: nothing that capgrade did not write is ever deleted or written over.

An output folder has to be new, empty, or written by the same stage, as its manifest says. A run
writes into a folder beside it, OUT.unfinished, where `run.json` says what it is of. When it has
ended, its files take the place of those of the run before. A file has to be new, or of the kind
that the command writes. Everything else is an InputError before anything is touched.
"""

import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    COMMAND,
    FOLDER,
    MANIFEST,
    RUN_FILE,
    UNFINISHED,
    allowed,
    canonical,
    leaves,
    metadata_of,
    open_arrow,
    parse_manifest,
    unfinished_folder,
    write_json,
    writing,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.locks import LOCK, first_process, only_run
from capgrade.schemas.say import tell
from capgrade.schemas.space import size_of, spoken

PARTS = "parts"  # in the folder of a run: finished parts
BEFORE = "before.json"  # there too: the manifest of the run before, while files take their places
SIGNATURE, WITHIN = "capgrade", 4096
_STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
ANOTHER = "give another --out, or a new or empty folder; nothing was touched"
MadeOf = Mapping[str, Any]  # what the parts of a run depend on: a format version, parameters, digests of inputs


def done_parts(folder: Path) -> str:
    """What of a run is done, in words."""
    parts = len(list((folder / PARTS).glob("[!.]*")))  # those with a dot are being written
    return f"{parts} finished parts" if parts else f"{sum(1 for _ in _files(folder))} files"


@contextmanager
def output_folder(
    out: Path, stage: str, made_of: MadeOf | None = None, *, afresh: bool = False,
    done: Callable[[Path], str] = done_parts,
) -> Iterator[Path]:  # fmt: skip
    """Hold `out` for a run of `stage`, against other runs; yields OUT.unfinished, which the run
    writes to.

    When the block has ended with a manifest there (`write_manifest`), its files take their places
    in `out`, the manifest last. Until then the result of the run before stays. What a run leaves
    that did not end is deleted, or with `made_of` kept for the next run of the same; of another
    one, or where all is to be made `afresh`, it is set aside until this run has ended, and what was
    `done` is said. Of the processes of one launcher the first does all this. Raises InputError as
    `refuse_foreign`, and where somebody's file stands in the place of a file of the run; with
    `made_of` for a full disk, or one that may not be written, too.
    """
    folder = unfinished_folder(out)
    if not first_process():
        yield folder
        return
    allow = allowed(FOLDER.get(stage, "--out"))
    with nullcontext() if made_of is None else writing(out, allow), only_run(out, allow):
        refuse_foreign(out, stage)
        _put_in_place(out, folder)  # what a run had ended before it was killed
        _begin(out, {"stage": stage, "made_of": made_of}, afresh, done)
        try:
            yield folder
            _put_in_place(out, folder)
        finally:
            if not ((folder / MANIFEST).is_file() or (made_of is not None and any(_files(folder)))):
                _delete(folder)


def _begin(out: Path, run: dict[str, Any], afresh: bool, done: Callable[[Path], str]) -> None:
    """The folder of the run: as a stopped one of the same has left it, or empty."""
    folder, before = unfinished_folder(out), read_run(unfinished_folder(out))
    going_on = not afresh and before is not None and _same(before, run)
    if before and not going_on:
        if before["made_of"] is not None and any(_files(folder)):
            aside = _set_aside(folder)
            changed = differences({"params": before["made_of"]}, {"params": run["made_of"] or {}})
            why = "a start afresh was asked for" if _same(before, run) else f"other parameters or inputs: {changed}"
            told = f"{out}: unfinished work ({done(aside)}, {spoken(size_of(aside))}) is not gone on with, {why}; "
            tell(told + f"it is set aside in {aside} until this run has ended")
        else:
            _delete(folder)
    if going_on:
        return
    if not afresh and (again := next((path for path in _asides(out) if _same(read_run(path) or {}, run)), None)):
        _move(again, folder)
    write_json(folder / RUN_FILE, run)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the one's parts are the other's; those of a run that keeps nothing are nobody's."""
    return one.get("made_of") is not None and canonical(one) == canonical(other)


def _set_aside(folder: Path) -> Path:
    """Move all but the lock of the folder, which is held."""
    number = next(n for n in range(1, 10**6) if not os.path.lexists(f"{folder}.{n}"))
    aside = Path(f"{folder}.{number}")
    _move(folder, aside)
    return aside


def _move(folder: Path, to: Path) -> None:
    """What says whose it is comes first, and goes last: killed meanwhile, both are known."""
    to.mkdir(exist_ok=True)
    shutil.copyfile(folder / RUN_FILE, to / RUN_FILE)
    for path in folder.iterdir():
        if path.name not in (LOCK, RUN_FILE):
            path.replace(to / path.name)
    _delete(folder)


def _asides(out: Path) -> list[Path]:
    """Folders of unfinished work that were set aside."""
    folder = unfinished_folder(out)
    found = folder.parent.glob(f"{glob.escape(folder.name)}.*")
    return sorted(path for path in found if path.suffix[1:].isdigit() and read_run(path))


def _put_in_place(out: Path, folder: Path) -> None:
    """Move the files of a run that has ended; killed meanwhile, the next run goes on with it.
    InputError where a file of somebody else stands."""
    if not (folder / MANIFEST).is_file():
        return
    now = parse_manifest(folder / MANIFEST)
    before = _manifest(out / MANIFEST if (out / MANIFEST).is_file() else folder / BEFORE)
    own = {MANIFEST, *before["files"]} if before else set()
    for name in (MANIFEST, *now["files"]):
        if name not in own and (folder / name).is_file() and os.path.lexists(out / name):
            (folder / MANIFEST).unlink()
            remedy = "move it away, or give another --out; nothing was written over it"
            raise InputError("it is there and capgrade did not write it", file=out / name, remedy=remedy)
    out.mkdir(parents=True, exist_ok=True)
    if (out / MANIFEST).is_file():
        (out / MANIFEST).replace(folder / BEFORE)
    if before and (changed := differences(before, now)):
        tell(f"{out}: replaced its earlier result of other parameters or inputs: {changed}")
    for name in own - {MANIFEST, *now["files"]}:
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            (out / name).unlink()
    for name in now["files"]:
        if (folder / name).is_file():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).replace(out / name)
    (folder / MANIFEST).replace(out / MANIFEST)
    for path in (*_asides(out), folder):
        _delete(path)


def _delete(folder: Path) -> None:
    """What says whose it is goes last: killed meanwhile, what is left is known. A lock is its
    holder's."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (LOCK, RUN_FILE):
            path.unlink()
    (folder / RUN_FILE).unlink(missing_ok=True)
    with suppress(OSError):  # it holds the lock
        folder.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    """Of a run, but for what says whose it is."""
    return (path for path in folder.rglob("*") if path.is_file() and path.name not in (LOCK, RUN_FILE))


def _manifest(path: Path) -> dict[str, Any]:
    """Empty where there is none, or none that is whole."""
    with suppress(InputError, OSError):
        return parse_manifest(path)
    return {}


def read_run(folder: Path) -> dict[str, Any] | None:
    """What writes to a folder of unfinished work, or wrote there: "stage" and "made_of". None where
    it says nothing."""
    with suppress(InputError, OSError):
        found = read_json(folder / RUN_FILE)
        if isinstance(found, dict) and isinstance(found.get("stage"), str) and "made_of" in found:
            return found
    return None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between the parameters and inputs of two manifests: the first names, short
    values beside them."""
    old, new = (
        {key: canonical(value) for part in parts if isinstance(part, dict) for key, value in leaves(part).items()}
        for parts in ([one.get("params"), one.get("inputs")] for one in (before, now))
    )
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    values = {name: f" {old.get(name, 'absent')} -> {new.get(name, 'absent')}" for name in names[:3]}
    said = [name + (value if len(value) <= 60 else "") for name, value in values.items()]
    return ", ".join([*said, *(["..."] if names[3:] else [])])


def run_key(made_of: Any) -> str:
    """SHA-256 of what parts depend on."""
    return hashlib.sha256(canonical(made_of).encode()).hexdigest()


def refuse_foreign(out: Path, stage: str) -> None:
    """InputError when the folder, or that of its unfinished work, is not for this stage."""
    if out.exists() and not out.is_dir():
        raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
    folder, manifest = unfinished_folder(out), _manifest(out / MANIFEST)
    run = read_run(folder)
    ended = run is not None and (folder / MANIFEST).is_file()  # its files may be on their way
    wrote = stage_of(manifest) if manifest else run["stage"] if run and ended else None
    for path, by in ((out, wrote), (folder, run["stage"] if run else None)):
        names = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
        there = [name for name in names if name not in (LOCK, UNFINISHED) and not name.startswith(f".{RUN_FILE}.")]
        if there and by is None:
            some = f"{', '.join(there[:3])}{', ...' if there[3:] else ''}"
            raise InputError(f"holds files that capgrade did not write ({some})", file=path, remedy=ANOTHER)
        if there and by != stage:
            problem = f"was written by `{_command(str(by))}`, not by `{_command(stage)}`"
            raise InputError(problem, file=path, remedy=ANOTHER)


def stage_of(manifest: dict) -> str:
    """What wrote a folder: its kind, and for regions of other people's files also of which."""
    return str(manifest.get("stage", manifest["kind"]))


def _command(stage: str) -> str:
    return f"capgrade {COMMAND.get(stage, stage)}"


Recogniser = Callable[[Path], bool]


def refuse_file(path: Path, what: str, ours: Recogniser) -> None:
    """InputError when a file is there that is not `what`, or one that a finished stage lists as its
    own."""
    remedy = "give another name; nothing was touched"
    if path.is_dir():
        raise InputError("a folder where a file is to be written", file=path, remedy=remedy)
    if not path.exists() and not path.is_symlink():
        return
    for folder in path.resolve().parents:
        files = _manifest(folder / MANIFEST).get("files", ())
        if path.resolve().relative_to(folder).as_posix() in {MANIFEST, *files}:
            raise InputError(f"a file of the finished folder {folder}", file=path, remedy=remedy)
    if not (path.is_file() and ours(path)):
        raise InputError(f"it is there and is no {what}", file=path, remedy=remedy)


def starting(start: bytes) -> Recogniser:
    """Files that begin with these very bytes."""

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(start)) == start

    return ours


def signed(start: bytes, signature: str = SIGNATURE) -> Recogniser:
    """Pages and pictures that begin so and have the signature, by default that capgrade made them,
    near their beginning or end."""

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            head, size = file.read(WITHIN), file.seek(0, 2)
            file.seek(max(0, size - WITHIN))
            return head.startswith(start) and signature.encode() in head + file.read()

    return ours


def arrow_of(kind: str) -> Recogniser:
    """Arrow files whose metadata name this kind."""

    def ours(path: Path) -> bool:
        with suppress(InputError):
            return metadata_of(open_arrow(path).schema).get("kind") == kind
        return False

    return ours


def json_with(right: Callable[[object], bool]) -> Recogniser:
    """JSON files whose content is `right`."""

    def ours(path: Path) -> bool:
        with suppress(InputError, AttributeError, KeyError, TypeError, ValueError):
            return bool(right(read_json(path)))
        return False

    return ours


def refuse_picture(path: Path) -> None:
    """InputError when a file is there that capgrade did not draw."""
    refuse_file(path, f"picture of {SIGNATURE}", signed(_STARTS.get(path.suffix.lower(), _STARTS[".png"])))
