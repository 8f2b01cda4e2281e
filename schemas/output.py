"""The one rule of outputs: nothing that capgrade did not write is ever deleted or written over.

An output folder has to be new, empty, or written by the same stage, as its manifest says. A run
writes into a folder beside it, OUT.unfinished, where `run.json` says what it is of, and a lock that
no other run does so. When it has ended, its files take the place of those of the run before.
Everything else is an InputError before anything is touched. `own_files` has the rule of files.

Under DVC, which deletes a stage's outputs when the record of them was cut short, the work of a run
that has ended is kept, with hard links to its files, until the next run or the stage `report`.
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    ENDED,
    MANIFEST,
    OUT,
    RUN_FILE,
    UNFINISHED,
    allowed,
    canonical,
    command_of,
    ended_work,
    found_manifest,
    leaves,
    output_of,
    package_version,
    unfinished_folder,
    write_json,
    write_text,
    writing,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.locks import HeldError, is_alive, locked, read_lock
from capgrade.schemas.say import first_process, tell

LOCK = ".capgrade.lock"  # in the folder of unfinished work
_PATIENCE = 0.3  # seconds for a run that is ending
WORTH_SAYING = 10**9  # bytes; less is nobody's concern unless it is not there
PARTS = "parts"  # in the folder of a run: finished parts
# There too, while files take their places: the manifest of the run before, and all their names.
BEFORE = "before.json"
MOVING = "moving.txt"  # there too, while its files are moved: the name of the other folder
_OF_RUN = {LOCK, RUN_FILE, ENDED, MOVING}  # files there that are no work
UNDER_DVC = "DVC_STAGE"  # in the environment of a command that DVC runs
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
    whole: MadeOf | None = None,
    afresh: bool = False,
    done: Callable[[Path], str] = done_parts,
) -> Iterator[Path]:
    """Lock `out` for a run of `stage`, and yield OUT.unfinished, the folder that the run writes to.

    When the block has ended with a manifest there, its files take the place of the earlier result.
    What a stopped run leaves is deleted, or with `made_of` kept: a run of the same goes on with it;
    another run, or one `afresh`, sets it aside until it has ended, and says what was `done`. What
    DVC lets a run keep that has ended serves one of the same, and of the same `whole`: what beside
    `made_of` the result depends on. Of the processes of one launcher the first does all this.
    InputError as `refuse_foreign`, where another program's file is in the way, and with `made_of`
    for a disk that is full or may not be written.
    """
    folder = unfinished_folder(out)
    if not first_process():
        yield folder
        return
    allow = allowed(command_of(stage)[1])
    refuse_dangling(out)
    ended = {"code": code_state(), "whole": whole} if made_of is not None else None
    keeps = ended if UNDER_DVC in os.environ and not out.is_mount() else None
    with nullcontext() if made_of is None else writing(out, allow), only_run(out, allow):
        refuse_foreign(out, stage)
        _put_in_place(out, folder, keeps)  # what a run had ended before it was killed
        _begin(out, {"stage": stage, "made_of": made_of}, ended, afresh, done)
        try:
            yield folder
            _put_in_place(out, folder, keeps)
        finally:
            if not ((folder / MANIFEST).is_file() or (made_of is not None and any(_files(folder)))):
                _delete(folder)


def _begin(
    out: Path,
    run: dict[str, Any],
    ended: dict[str, Any] | None,
    afresh: bool,
    done: Callable[[Path], str],
) -> None:
    """Make the folder of the run: empty, or with what a run of the same has left."""
    folder = unfinished_folder(out)
    for path in (folder, *_asides(out)):
        if (path / MOVING).is_file():  # a run was killed while it moved this
            _move(path, path.with_name((path / MOVING).read_text(encoding="utf-8")))
    before, was_kept = read_run(folder), ended_work(folder)
    same = before is not None and _same(before, run)
    same = same and not (was_kept and _ended(folder) != canonical(ended))
    if same and not afresh and any(_files(folder)):
        (folder / ENDED).unlink(missing_ok=True)
        return
    if before and before["made_of"] is not None and any(_files(folder)) and not was_kept:
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


def _ended(folder: Path) -> str:
    """What of the code and the result a run noted when it had ended; nothing of a damaged note."""
    with suppress(InputError):
        return canonical(read_json(folder / ENDED))
    return ""


def code_state() -> str:
    """SHA-256 of the version, and of the times and sizes of capgrade's modules on this machine.

    Other code may give other values, so that what DVC runs again is not taken from before.
    """
    state, package = [package_version()], Path(__file__).parents[1]
    for parent, folders, files in os.walk(package, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                found = Path(parent, name).stat()
                state.append(f"{parent}/{name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(state).encode()).hexdigest()


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

    A file says where to, so that the next run goes on with it when this is killed midway.
    """
    write_text(folder / MOVING, to.name)
    to.mkdir(exist_ok=True)
    write_json(to / RUN_FILE, read_run(folder))
    for path in folder.iterdir():
        if path.name not in _OF_RUN:
            path.replace(to / path.name)
    _delete(folder)


def _asides(out: Path) -> list[Path]:
    """Folders of unfinished work that were set aside."""
    folder = unfinished_folder(out)
    folders = folder.parent.glob(f"{glob.escape(folder.name)}.*")
    return sorted(path for path in folders if path.suffix[1:].isdigit() and read_run(path))


def _put_in_place(out: Path, folder: Path, keeps: Mapping[str, Any] | None) -> None:
    """Move the files of a run that has ended to `out`, and delete those of the run before.

    The manifest is moved last, so that when this is killed midway the next run goes on with it.
    With `keeps`, a note, `out` gets hard links, and the folder stays. InputError where another
    program's file is in the way.
    """
    if (folder / BEFORE).is_file() and found_manifest(out / MANIFEST):
        (folder / BEFORE).unlink()  # of a run whose files are in their places
    if not (folder / MANIFEST).is_file():
        return
    now = found_manifest(folder / MANIFEST)
    if not now:  # damaged: the run goes on, and writes it again
        (folder / MANIFEST).unlink()
        return
    before, own = _own_names(out, folder)
    for name in (MANIFEST, *now["files"]):
        if name not in own and (folder / name).is_file() and os.path.lexists(out / name):
            (folder / MANIFEST).unlink()
            remedy = "move it away, or give another --out; nothing was written over it"
            problem = "it is there and capgrade did not write it"
            raise InputError(problem, file=out / name, remedy=remedy)
    write_json(folder / BEFORE, {"manifest": before, "names": sorted({*own, *now["files"]})})
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    if before and (changed := differences(before, now)):
        tell(f"{out}: replaced its earlier result of other parameters or inputs: {changed}")
    for name in own - now["files"].keys():
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            (out / name).unlink()
    for name in now["files"]:
        if (folder / name).is_file():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            _place(folder / name, out / name, keeps is not None)
    if keeps is not None:
        write_json(folder / ENDED, keeps)
    (folder / MANIFEST).replace(out / MANIFEST)
    (folder / BEFORE).unlink()
    for path in (*_asides(out), *([folder] if keeps is None else [])):
        _delete(path)


def _own_names(out: Path, folder: Path) -> tuple[dict[str, Any], set[str]]:
    """The manifest of the run before, and the names of all files in `out` that capgrade wrote.

    A run that was killed while its files took their places has noted both.
    """
    if (folder / BEFORE).is_file():
        with suppress(InputError, TypeError, KeyError):
            noted = read_json(folder / BEFORE)
            return dict(noted["manifest"]), {MANIFEST, *map(str, noted["names"])}
    before = found_manifest(out / MANIFEST)
    return before, {MANIFEST, *before["files"]} if before else set()


def _place(file: Path, to: Path, keep: bool) -> None:
    """Move a file, or with `keep` make a hard link where the file system has such."""
    if keep:
        if to.exists() and to.samefile(file):
            return
        with suppress(OSError):
            to.unlink(missing_ok=True)
            to.hardlink_to(file)
            return
    file.replace(to)


def delete_kept(root: Path) -> list[Path]:
    """Delete what runs that have ended kept at and below `root`, but where a run is at work.

    Returns the folders.
    """
    folders = sorted(path.parent for path in root.rglob(f"*{UNFINISHED}/{ENDED}"))
    for folder in folders:
        with suppress(InputError), only_run(output_of(folder)):
            if ended_work(folder) and read_run(folder) and not (folder / MANIFEST).is_file():
                _delete(folder)
    return folders


def _delete(folder: Path) -> None:
    """Delete the folder of a run, but for a lock that is held there.

    The file that says whose folder it is goes last, so that when this is killed midway the rest is
    known.
    """
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (LOCK, RUN_FILE):
            path.unlink(missing_ok=True)
    (folder / RUN_FILE).unlink(missing_ok=True)
    with suppress(OSError):  # the lock is in it
        folder.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    """What a run has written to its folder."""
    return (path for path in folder.rglob("*") if path.is_file() and path.name not in _OF_RUN)


def read_run(folder: Path) -> dict[str, Any] | None:
    """What a folder of unfinished work is of, "stage" and "made_of"; None where no file says so."""
    with suppress(ValueError, RecursionError, OSError):
        run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
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


def refuse_dangling(out: Path) -> None:
    """InputError for an output that is a link to what is not there."""
    if out.is_symlink() and not out.exists():
        remedy = f"make the folder {out.readlink()}, remove the link, or give another --out"
        raise InputError("a link to what is not there", file=out, remedy=remedy)


def refuse_foreign(out: Path, stage: str) -> None:
    """InputError when the folder, or that of its unfinished work, is not for this stage."""
    refuse_dangling(out)
    if out.exists() and not out.is_dir():
        raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
    folder, manifest = unfinished_folder(out), found_manifest(out / MANIFEST)
    run = read_run(folder)
    # A run that has ended was killed while its files were moved: some of them are in `out`.
    ended = run is not None and any((folder / name).is_file() for name in (MANIFEST, BEFORE))
    wrote = stage_of(manifest) if manifest else run["stage"] if run and ended else None
    for path, by in ((out, wrote), (folder, run["stage"] if run else None)):
        # Of a run.json that is being written, the name begins with a dot.
        names = {one.name for one in path.iterdir()} if path.is_dir() else set()
        passing = {name for name in names if name.startswith(f".{RUN_FILE}.")}
        others = sorted(names - passing - {LOCK, UNFINISHED})
        if path == folder and RUN_FILE in others and run is None:
            problem = f"damaged, so that nothing says whose work is in {folder}"
            remedy = "move that folder away, and run again; nothing was touched"
            raise InputError(problem, file=folder / RUN_FILE, remedy=remedy)
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


@contextmanager
def only_run(out: Path, allow: str = OUT) -> Iterator[None]:
    """Hold `out` against other runs, by a lock in the folder of its unfinished work.

    That folder is made, and deleted where it is empty in the end. Raises InputError with the other
    run's process id, and as `writing`.
    """
    folder = unfinished_folder(out)
    with ExitStack() as stack:
        with writing(out, allow):
            try:
                stack.enter_context(locked(folder / LOCK, _PATIENCE, remove=True))
            except HeldError as held:
                by = f"process {held.process or 'unknown'}"
                by += f" of {held.host}" if held.host and not held.certain else ""
                remedy = "wait until it has ended, or give another --out"
                if not held.certain:
                    remedy += f"; if there is no such run, delete {folder / LOCK}"
                problem = f"another run is writing to this folder ({by})"
                raise InputError(problem, file=out, remedy=remedy) from None
        yield


def holder(out: Path) -> int | None:
    """The process that is writing to a folder; None where there is none.

    The lock itself is not touched: a run that starts at this moment would be refused.
    """
    process, _ = read_lock(unfinished_folder(out) / LOCK)
    return process if process and is_alive(process) else None


def require_space(out: Path, result: int, *, parts: int = 0, done: int = 0) -> None:
    """Say what `out` will need at most, from a gigabyte on: bytes of the result, and of parts that
    stay beside it until the end. `done` of them are there, of a run that was stopped.

    InputError when the disk has less free.
    """
    folder = out.absolute()
    while not folder.is_dir():
        folder = folder.parent
    free, needed = shutil.disk_usage(folder).free, result + parts - done
    while_running = f"about {spoken(needed)} of disk" + (
        ", parts and result together" if parts else ""
    )
    if needed > free:
        remedy = (
            "make room, or give an --out on another disk; a smaller split or fewer measures need"
            " less"
        )
        raise InputError(
            f"needs {while_running}, and {spoken(free)} are free", file=out, remedy=remedy
        )
    if needed >= WORTH_SAYING:
        tell(f"needs {while_running}" + (f"; {spoken(result)} in the end" if parts else ""))


def spoken(size: int) -> str:
    """Bytes in a unit that is easily read: 12 kB, 3.4 GB."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{size / 10**power:.3g} {unit}"
    return f"{size / 1000:.3g} kB"


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; none where there is no folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
