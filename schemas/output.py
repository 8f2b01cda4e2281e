"""The one rule of outputs: nothing that capgrade did not write is ever deleted or written over.

An output folder has to be new, empty, or written by the same stage, as its manifest says. A run
writes into a folder beside it, OUT.unfinished, where `run.json` says what it is of, and a lock that
no other run does so. When it has ended, its files take the place of those of the run before.
Everything else is an InputError before anything is touched. `own_files` has the rule of files.
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    OUT,
    RUN_FILE,
    UNFINISHED,
    allowed,
    canonical,
    command_of,
    found_manifest,
    leaves,
    parse_manifest,
    unfinished_folder,
    write_json,
    writing,
)
from capgrade.schemas.say import first_process, tell

LOCK = ".capgrade.lock"  # in the folder of unfinished work
_PATIENCE = 0.3  # seconds for a run that is ending
WORTH_SAYING = 10**9  # bytes; less is nobody's concern unless it is not there
PARTS = "parts"  # in the folder of a run: finished parts
BEFORE = "before.json"  # there too: the manifest of the run before, while files take their places
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
    before = found_manifest(out / MANIFEST if (out / MANIFEST).is_file() else folder / BEFORE)
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


def refuse_foreign(out: Path, stage: str) -> None:
    """InputError when the folder, or that of its unfinished work, is not for this stage."""
    if out.exists() and not out.is_dir():
        raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
    folder, manifest = unfinished_folder(out), found_manifest(out / MANIFEST)
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


@contextmanager
def only_run(out: Path, allow: str = OUT) -> Iterator[None]:
    """Hold `out` against other runs, by a lock in the folder of its unfinished work.

    That folder is made, and deleted where it is empty in the end. Raises InputError with the other
    run's process id, and as `writing`.
    """
    folder = unfinished_folder(out)
    lock = FileLock(folder / LOCK, timeout=_PATIENCE)
    with writing(out, allow):
        try:
            _acquire(lock, folder)
        except Timeout:
            problem = (
                f"another run is writing to this folder (process {_written(folder) or 'unknown'})"
            )
            raise InputError(
                problem, file=out, remedy="wait until it has ended, or give another --out"
            ) from None
    try:
        (folder / LOCK).write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        # Removed while the lock is held, so that nobody else's is removed.
        (folder / LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            folder.rmdir()
        lock.release()


def _acquire(lock: FileLock, folder: Path) -> None:
    for _ in range(100):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # a run that has ended meanwhile took the folder away
            lock.acquire()
            return
    raise Timeout(lock.lock_file)


def holder(out: Path) -> int | None:
    """The process that is writing to a folder; None where there is none.

    The lock itself is not touched: a run that starts at this moment would be refused.
    """
    process = _written(unfinished_folder(out))
    try:
        os.kill(process, 0) if process else None
    except ProcessLookupError:
        return None
    except OSError:  # it is there, and somebody else's
        pass
    return process or None


def _written(folder: Path) -> int:
    """The process id in a lock file; 0 for none."""
    try:
        text = (folder / LOCK).read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # removed meanwhile, or not to be read
        return 0
    return int(text) if text.isdigit() else 0


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
