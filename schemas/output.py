"""The one rule of outputs: nothing that capgrade did not write is ever deleted or written over.

An output folder has to be new, empty, or written by the same stage, as its manifest says. A run
writes into OUT.unfinished/STAGE-KEY, beside it; KEY is a digest of what its parts are made of. A
part that is there is whole, and a run of the same key goes on with it. When a run has ended, its
files take the place of those of the run before, and unfinished work of other keys is deleted. A
lock in OUT.unfinished says that a run is at work. Everything else is an InputError before anything
is touched. `out_files` has the rule of files.

Files take their places one by one, since a folder may hold files of the user, be the current folder
of a shell, or be a mounted file system, so that it cannot be exchanged as a whole.

Under DVC, which deletes a stage's outputs when the record of them was cut short, the work of a run
that has ended is kept, with hard links to its files, until the next run or the stage `report`.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
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
    found_manifest,
    leaves,
    output_of,
    package_version,
    stage_of_work,
    unfinished_folder,
    versions_of_others,
    work_folders,
    write_json,
    writing,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.locks import HeldError, is_alive, locked, read_lock
from capgrade.schemas.say import first_process, spoken_number, tell

LOCK = ".capgrade.lock"  # in the folder of unfinished work
_PATIENCE = 0.3  # seconds for a run that is ending
WORTH_SAYING = 10**9  # bytes; less is nobody's concern unless it is not there
PARTS = "parts"  # in the folder of a run: finished parts
# There too, while files take their places: the manifest of the run before, and all their names.
BEFORE = "before.json"
_NOTES = {RUN_FILE, ENDED}  # files there that are no work
UNDER_DVC = "DVC_STAGE"  # in the environment of a command that DVC runs
ANOTHER = "give another --out, or a new or empty folder; nothing was touched"
# What the parts of a run depend on: a format version, parameters, digests of inputs, packages.
MadeOf = Mapping[str, Any]


def work_folder(out: Path, stage: str, made_of: MadeOf | None) -> Path:
    """Where a run of `stage` writes: the work of other parameters or inputs is elsewhere."""
    return unfinished_folder(out) / f"{stage}-{run_key(made_of)[:16]}"


def done_parts(work: Path) -> str:
    """What of a run is done, in words."""
    # The name of a part begins with a dot while it is written.
    parts = len(list((work / PARTS).glob("[!.]*")))
    return f"{parts} finished parts" if parts else f"{sum(1 for _ in _files(work))} files"


@contextmanager
def output_folder(
    out: Path,
    stage: str,
    made_of: MadeOf | None = None,
    *,
    whole: MadeOf | None = None,
    afresh: bool = False,
) -> Iterator[Path]:
    """Lock `out` for a run of `stage`, and yield the folder that the run writes to.

    When the block has ended with a manifest there, its files take the place of the earlier result.
    What a stopped run leaves is deleted, or with `made_of` kept: a run of the same goes on with it,
    unless it begins `afresh`. What DVC lets a run keep that has ended serves one of the same, and
    of the same `whole`: what beside `made_of` the result depends on. Of the processes of one
    launcher the first does all this. InputError as `refuse_foreign`, where another program's file
    is in the way, and with `made_of` for a disk that is full or may not be written.
    """
    work = work_folder(out, stage, made_of)
    if not first_process():
        yield work
        return
    allow = allowed(command_of(stage)[1])
    _refuse_dangling(out)
    keep = UNDER_DVC in os.environ and made_of is not None and not out.is_mount()
    run = {"made_of": made_of, "whole": whole, "code": code_state() if keep else None}
    with nullcontext() if made_of is None else writing(out, allow), only_run(out, allow):
        refuse_foreign(out, stage)
        for earlier in work_folders(out):  # what a run had ended before it was killed
            if _put_in_place(out, earlier, keep) and earlier != work:
                _delete(earlier)
        _begin(out, work, run, afresh)
        try:
            yield work
            if _put_in_place(out, work, keep):
                for other in work_folders(out):
                    if not (keep and other == work):
                        _delete(other)
        finally:
            keeps = made_of is not None and any(_files(work))
            if not keeps and not (work / MANIFEST).is_file():
                _delete(work)


def _begin(out: Path, work: Path, run: dict[str, Any], afresh: bool) -> None:
    """Make the folder of a run: empty, or with what a run of the same has left.

    Deletes what runs that have ended kept, but where it serves this one. Says of unfinished work
    that it does not serve.
    """
    for other in work_folders(out):
        if other == work:
            continue
        if not (other / RUN_FILE).is_file():  # of a run that has ended, or half deleted
            _delete(other)
        elif any(_files(other)):
            changed = differences({"params": _noted(other)}, {"params": run["made_of"] or {}})
            tell(
                f"{out}: {_told(other)} of other parameters or inputs"
                f" ({changed or 'no note says which'}) stays in {other} until this run has ended"
            )
    stopped = (work / RUN_FILE).is_file() and not (work / ENDED).is_file()
    if afresh and stopped and any(_files(work)):
        tell(f"{out}: {_told(work)} is deleted, as a start afresh was asked for")
    serves = stopped or _is_same(work / ENDED, run)
    if afresh or not serves or run["made_of"] is None:
        _delete(work)
    write_json(work / RUN_FILE, run)
    (work / ENDED).unlink(missing_ok=True)


def _told(work: Path) -> str:
    size = sum(path.stat().st_size for path in _files(work))
    return f"unfinished work ({done_parts(work)}, {spoken_size(size)})"


def _is_same(note: Path, run: Mapping[str, Any]) -> bool:
    """Whether a note says the same of a run; nothing is said by a damaged one."""
    with suppress(InputError):
        return canonical(read_json(note)) == canonical(run)
    return False


def _noted(work: Path) -> dict[str, Any]:
    """What a run noted that its parts are made of, for a message alone."""
    with suppress(InputError, KeyError, TypeError, ValueError):
        return dict(read_json(work / RUN_FILE)["made_of"])
    return {}


def code_state() -> str:
    """SHA-256 of the version, and of the times and sizes of capgrade's modules on this machine.

    Other code may give other values, so that what DVC runs again is not taken from before.
    """
    state = [package_version(), canonical(versions_of_others())]
    package = Path(__file__).parents[1]
    for parent, folders, files in os.walk(package, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                found = Path(parent, name).stat()
                state.append(f"{parent}/{name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(state).encode()).hexdigest()


def _put_in_place(out: Path, work: Path, keep: bool) -> bool:
    """Put the files of a run that has ended to `out`, and delete those of the run before.

    The manifest goes last, so that when this is killed midway the next run goes on with it, and the
    work is whole until then. Returns whether the run had ended; with `keep` it is noted as that.
    InputError where another program's file is in the way.
    """
    if (work / BEFORE).is_file() and found_manifest(out / MANIFEST):
        (work / BEFORE).unlink()  # of a run whose files are in their places
    if not (work / MANIFEST).is_file():
        return False
    now = found_manifest(work / MANIFEST)
    if not now:  # damaged: the run goes on, and writes it again
        (work / MANIFEST).unlink()
        return False
    before, own = _own_names(out, work)
    for name in (MANIFEST, *now["files"]):
        if name not in own and (work / name).is_file() and os.path.lexists(out / name):
            if not (work / BEFORE).is_file():
                (work / MANIFEST).unlink()  # nothing is in its place, and another run may begin
            remedy = "move it away, or give another --out; nothing was written over it"
            problem = "it is there and capgrade did not write it"
            raise InputError(problem, file=out / name, remedy=remedy)
    write_json(work / BEFORE, {"manifest": before, "names": sorted({*own, *now["files"]})})
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    if before and (changed := differences(before, now)):
        tell(f"{out}: replaced its earlier result of other parameters or inputs: {changed}")
    for name in own - now["files"].keys():
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            (out / name).unlink()
    for name in now["files"]:
        if (work / name).is_file():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            _place(work / name, out / name)
    if keep and (work / RUN_FILE).is_file():
        (work / RUN_FILE).replace(work / ENDED)
    (work / MANIFEST).replace(out / MANIFEST)
    (work / BEFORE).unlink()
    return True


def _own_names(out: Path, work: Path) -> tuple[dict[str, Any], set[str]]:
    """The manifest of the run before, and the names of all files in `out` that capgrade wrote.

    A run that was killed while its files took their places has noted both.
    """
    if (work / BEFORE).is_file():
        with suppress(InputError, TypeError, KeyError):
            noted = read_json(work / BEFORE)
            return dict(noted["manifest"]), {MANIFEST, *map(str, noted["names"])}
    before = found_manifest(out / MANIFEST)
    return before, {MANIFEST, *before["files"]} if before else set()


def _place(file: Path, to: Path) -> None:
    """Make a hard link, or move the file where the file system has no such."""
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
    kept = sorted(path.parent for path in root.rglob(f"*{UNFINISHED}/*/{ENDED}"))
    for work in kept:
        with suppress(InputError), only_run(output_of(work)):
            if (work / ENDED).is_file() and not (work / MANIFEST).is_file():
                _delete(work)
    return kept


def _delete(work: Path) -> None:
    """Delete the folder of a run, its notes first: of what has none, nothing is gone on with."""
    if work.is_dir():
        for name in _NOTES:
            (work / name).unlink(missing_ok=True)
        shutil.rmtree(work)


def _files(work: Path) -> Iterator[Path]:
    """What a run has written to its folder."""
    return (path for path in work.rglob("*") if path.is_file() and path.name not in _NOTES)


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


def _refuse_dangling(out: Path) -> None:
    """InputError for an output that is a link to what is not there."""
    if out.is_symlink() and not out.exists():
        remedy = f"make the folder {out.readlink()}, remove the link, or give another --out"
        raise InputError("a link to what is not there", file=out, remedy=remedy)


def refuse_foreign(out: Path, stage: str) -> None:
    """InputError when the folder, or that of its unfinished work, is not for this stage."""
    _refuse_dangling(out)
    if out.exists() and not out.is_dir():
        raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
    folder, works = unfinished_folder(out), work_folders(out)
    manifest = found_manifest(out / MANIFEST)
    # A run that has ended was killed while its files were moved: some of them are in `out`.
    moving = [work for work in works if (work / MANIFEST).is_file() or (work / BEFORE).is_file()]
    by = stage_of_folder(manifest) if manifest else stage_of_work(moving[0]) if moving else None
    _refuse(out, _names(out) - {UNFINISHED}, by, stage)
    _refuse(folder, _names(folder) - {LOCK} - {work.name for work in works}, None, stage)
    for work in works:
        _refuse(folder, {work.name}, stage_of_work(work), stage)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _refuse(folder: Path, names: set[str], by: str | None, stage: str) -> None:
    """InputError where files of these names are not by the stage; None wrote those of others."""
    if names and by is None:
        some = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
        problem = f"holds files that capgrade did not write ({some})"
        raise InputError(problem, file=folder, remedy=ANOTHER)
    if names and by != stage:
        other, this = command_of(str(by))[0], command_of(stage)[0]
        problem = f"was written by `capgrade {other}`, not by `capgrade {this}`"
        raise InputError(problem, file=folder, remedy=ANOTHER)


def stage_of_folder(manifest: dict) -> str:
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
    while_running = f"about {spoken_size(needed)} of disk" + (
        ", parts and result together" if parts else ""
    )
    if needed > free:
        remedy = (
            "make room, or give an --out on another disk; a smaller split or fewer measures need"
            " less"
        )
        raise InputError(
            f"needs {while_running}, and {spoken_size(free)} are free", file=out, remedy=remedy
        )
    if needed >= WORTH_SAYING:
        tell(f"needs {while_running}" + (f"; {spoken_size(result)} in the end" if parts else ""))


def spoken_size(size: int) -> str:
    """Bytes in a unit that is easily read: 12 kB, 3.4 GB."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{spoken_number(size / 10**power)} {unit}"
    return f"{spoken_number(size / 1000)} kB"


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; none where there is no folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
