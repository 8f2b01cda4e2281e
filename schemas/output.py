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
    MANIFEST,
    RUN_FILE,
    UNFINISHED,
    allowed,
    canonical,
    command_of,
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
SIGNATURE = "capgrade"  # in pages and pictures that capgrade made
_SIGNED_WITHIN = 4096  # bytes from their beginning or end
_STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
ANOTHER = "give another --out, or a new or empty folder; nothing was touched"
# What the parts of a run depend on: a format version, parameters, digests of inputs.
MadeOf = Mapping[str, Any]


def done_parts(folder: Path) -> str:
    """What of a run is done, in words."""
    # The name of a part begins with a dot while it is written.
    parts = len(list((folder / PARTS).glob("[!.]*")))
    return f"{parts} finished parts" if parts else f"{sum(1 for _ in _files(folder))} files"


@contextmanager
def output_folder(
    out: Path,
    stage: str,
    made_of: MadeOf | None = None,
    *,
    afresh: bool = False,
    done: Callable[[Path], str] = done_parts,
) -> Iterator[Path]:
    """Lock `out` for a run of `stage`, and yield OUT.unfinished, the folder that the run writes to.

    When the block has ended with a manifest there, its files take the place of the earlier result.
    What a stopped run leaves is deleted, or with `made_of` kept: a run of the same goes on with it;
    another run, or one `afresh`, sets it aside until it has ended, and says what was `done`. Of the
    processes of one launcher the first does all this. InputError as `refuse_foreign`, where another
    program's file is in the way, and with `made_of` for a disk that is full or may not be written.
    """
    folder = unfinished_folder(out)
    if not first_process():
        yield folder
        return
    allow = allowed(command_of(stage)[1])
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
    """Make the folder of the run: empty, or with what a stopped run of the same has left."""
    folder, before = unfinished_folder(out), read_run(unfinished_folder(out))
    same = before is not None and _same(before, run)
    if same and not afresh:
        return
    if before and before["made_of"] is not None and any(_files(folder)):
        aside = _set_aside(folder)
        why = "a start afresh was asked for"
        if not same:
            changed = differences({"params": before["made_of"]}, {"params": run["made_of"] or {}})
            why = f"other parameters or inputs: {changed}"
        work = f"unfinished work ({done(aside)}, {spoken(size_of(aside))})"
        until = f"it is set aside in {aside} until this run has ended"
        tell(f"{out}: {work} is not gone on with, {why}; {until}")
    elif before:
        _delete(folder)
    if not afresh:
        earlier = (path for path in _asides(out) if _same(read_run(path) or {}, run))
        if (again := next(earlier, None)) is not None:
            _move(again, folder)
    write_json(folder / RUN_FILE, run)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs make the same parts. A run without `made_of` keeps none."""
    return one.get("made_of") is not None and canonical(one) == canonical(other)


def _set_aside(folder: Path) -> Path:
    """Move what is in the folder of a run to a new folder beside it."""
    number = next(n for n in range(1, 10**6) if not os.path.lexists(f"{folder}.{n}"))
    aside = Path(f"{folder}.{number}")
    _move(folder, aside)
    return aside


def _move(folder: Path, to: Path) -> None:
    """Move all but the lock, which its holder needs.

    The file that says whose folder it is comes first and goes last, so that when this is killed
    midway both folders are known.
    """
    to.mkdir(exist_ok=True)
    shutil.copyfile(folder / RUN_FILE, to / RUN_FILE)
    for path in folder.iterdir():
        if path.name not in (LOCK, RUN_FILE):
            path.replace(to / path.name)
    _delete(folder)


def _asides(out: Path) -> list[Path]:
    """Folders of unfinished work that were set aside."""
    folder = unfinished_folder(out)
    folders = folder.parent.glob(f"{glob.escape(folder.name)}.*")
    return sorted(path for path in folders if path.suffix[1:].isdigit() and read_run(path))


def _put_in_place(out: Path, folder: Path) -> None:
    """Move the files of a run that has ended to `out`, and delete those of the run before.

    The manifest is moved last, so that when this is killed midway the next run goes on with it.
    InputError where another program's file is in the way.
    """
    if not (folder / MANIFEST).is_file():
        return
    now = parse_manifest(folder / MANIFEST)
    before = _manifest(out / MANIFEST if (out / MANIFEST).is_file() else folder / BEFORE)
    own = {MANIFEST, *before["files"]} if before else set()
    for name in (MANIFEST, *now["files"]):
        if name not in own and (folder / name).is_file() and os.path.lexists(out / name):
            (folder / MANIFEST).unlink()
            remedy = "move it away, or give another --out; nothing was written over it"
            problem = "it is there and capgrade did not write it"
            raise InputError(problem, file=out / name, remedy=remedy)
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
    """Delete the folder of a run, but for a lock that is held there.

    The file that says whose folder it is goes last, so that when this is killed midway the rest is
    known.
    """
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (LOCK, RUN_FILE):
            path.unlink()
    (folder / RUN_FILE).unlink(missing_ok=True)
    with suppress(OSError):  # the lock is in it
        folder.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    """What a run has written to its folder."""
    names = (LOCK, RUN_FILE)
    return (path for path in folder.rglob("*") if path.is_file() and path.name not in names)


def _manifest(path: Path) -> dict[str, Any]:
    """What a manifest says; nothing where there is none, or it is damaged."""
    with suppress(InputError, OSError):
        return parse_manifest(path)
    return {}


def read_run(folder: Path) -> dict[str, Any] | None:
    """What a folder of unfinished work is of, "stage" and "made_of"; None where no file says so."""
    with suppress(InputError, OSError):
        run = read_json(folder / RUN_FILE)
        if isinstance(run, dict) and isinstance(run.get("stage"), str) and "made_of" in run:
            return run
    return None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first parameters and inputs in which two manifests differ, with values that are short."""
    old, new = (
        {
            key: canonical(value)
            for part in (manifest.get("params"), manifest.get("inputs"))
            if isinstance(part, dict)
            for key, value in leaves(part).items()
        }
        for manifest in (before, now)
    )
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    changes = []
    for name in names[:3]:
        values = f" {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        changes.append(name + (values if len(values) <= 60 else ""))
    return ", ".join([*changes, *(["..."] if names[3:] else [])])


def run_key(made_of: Any) -> str:
    """SHA-256 of what parts depend on."""
    return hashlib.sha256(canonical(made_of).encode()).hexdigest()


def refuse_foreign(out: Path, stage: str) -> None:
    """InputError when the folder, or that of its unfinished work, is not for this stage."""
    if out.exists() and not out.is_dir():
        raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
    folder, manifest = unfinished_folder(out), _manifest(out / MANIFEST)
    run = read_run(folder)
    # A run that has ended was killed while its files were moved: some of them are in `out`.
    ended = run is not None and (folder / MANIFEST).is_file()
    wrote = stage_of(manifest) if manifest else run["stage"] if run and ended else None
    for path, by in ((out, wrote), (folder, run["stage"] if run else None)):
        # Of a run.json that is being written, the name begins with a dot.
        names = {one.name for one in path.iterdir()} if path.is_dir() else set()
        passing = {name for name in names if name.startswith(f".{RUN_FILE}.")}
        others = sorted(names - passing - {LOCK, UNFINISHED})
        if others and by is None:
            some = f"{', '.join(others[:3])}{', ...' if others[3:] else ''}"
            problem = f"holds files that capgrade did not write ({some})"
            raise InputError(problem, file=path, remedy=ANOTHER)
        if others and by != stage:
            other, this = command_of(str(by))[0], command_of(stage)[0]
            problem = f"was written by `capgrade {other}`, not by `capgrade {this}`"
            raise InputError(problem, file=path, remedy=ANOTHER)


def stage_of(manifest: dict) -> str:
    """The stage that wrote a folder. Regions of other people's files say it beside their kind."""
    return str(manifest.get("stage", manifest["kind"]))


Recogniser = Callable[[Path], bool]


def refuse_file(path: Path, what: str, ours: Recogniser) -> None:
    """InputError when there is a file that `ours` does not recognise as `what`.

    Also when it is a file of a stage's finished folder.
    """
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
    """Pages and pictures that begin so, with the signature near their beginning or end."""

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            head, size = file.read(_SIGNED_WITHIN), file.seek(0, 2)
            file.seek(max(0, size - _SIGNED_WITHIN))
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
    start = _STARTS.get(path.suffix.lower(), _STARTS[".png"])
    refuse_file(path, f"picture of {SIGNATURE}", signed(start))
