"""The one rule of outputs: nothing that capgrade did not write is ever deleted or written over.

An output folder has to be new, empty, or written by the same stage: its manifest says so or, after a run was stopped,
its `.stage`. A file has to be new, or of the kind that the command writes. Everything else is an InputError before
anything is touched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from capgrade.schemas.claims import (
    LOCK,
    OPEN,
    STAGE,
    Claims,
    first_process,
    holder,
    only_run,
    opened,
    read_claims,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    COMMAND,
    KEY,
    MANIFEST,
    WORK,
    canonical,
    metadata_of,
    open_arrow,
    package_version,
    parse_manifest,
    read_json,
    remove_temporaries,
    remove_work,
    writing,
)
from capgrade.schemas.inputs import folder_digest

SIGNATURE, WITHIN = "capgrade", 4096
STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
CODE = ("schemas", "pipelines", "measures", "text")  # folders of the package
ANOTHER = "give another --out, or a new or empty folder; nothing was touched"


@contextmanager
def output_folder(out: Path, stage: str) -> Iterator[None]:
    """Hold `out` for a run of `stage`, against other runs too; again within the same process is free.

    Every file that `atomic` writes in it is noted, and refused where a file of somebody else stands. The folder keeps
    its manifest until the first of them. `write_manifest` ends the run and deletes what the run before wrote and this
    one did not. Of the processes of one launcher the first does all this.
    Raises InputError for a folder of another stage, or with files that capgrade did not write.
    """
    if opened(out) is not None or not first_process():
        yield
        return
    if holder(out) is None:
        refuse_foreign(out, stage)
    made = not out.exists()
    try:
        with only_run(out):
            OPEN[out.resolve()] = Claims(out, stage, refuse_foreign(out, stage))  # again: another run may be faster
            yield
    finally:
        OPEN.pop(out.resolve(), None)
        if made:
            with suppress(OSError):  # not empty
                out.rmdir()


@contextmanager
def work_folder(out: Path, stage: str, key: Any) -> Iterator[Path]:
    """`out/.work`, kept until `write_manifest` ends the run it belongs to, emptied when `key` or the code say another
    run.

    No other run may write to `out` meanwhile, and `out` has no manifest: its files may be of either run.
    Raises InputError when another stage wrote `out` or another run is writing there, when the disk is full, or when it
    may not be written.
    """
    work = out / WORK
    name = run_key(key)
    marker = work / KEY
    with writing(out), output_folder(out, stage):
        remove_temporaries(out)
        begin(out)
        if not marker.is_file() or marker.read_bytes() != name.encode():
            remove_work(out)
            (work / "parts").mkdir(parents=True)
            marker.write_text(name, encoding="utf-8")
        yield work


def run_key(made_of: Any) -> str:
    """Of what this code makes of it: other code makes something else, also where the version is the same."""
    return hashlib.sha256(canonical([package_version(), code_digest(), made_of]).encode()).hexdigest()


def code_digest() -> str:
    """SHA-256 over the sources that parts are made by: they may change where the version does not."""
    root = Path(__file__).parents[1]
    return folder_digest(root, [*root.glob("*.py"), *(path for name in CODE for path in (root / name).rglob("*.py"))])


def refuse_foreign(out: Path, stage: str) -> set[str]:
    """The names of the files that an earlier run of `stage` wrote. InputError when the folder is not for this stage."""
    if not out.is_dir():
        if out.exists():
            raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
        return set()
    there = sorted(path.name for path in out.iterdir())
    if LOCK in there and (out / LOCK).is_file() and re.fullmatch(rb"\d{0,22}\n?", (out / LOCK).read_bytes()[:24]):
        there.remove(LOCK)
    if not there:
        return set()
    wrote, names = _who_wrote(out)
    if wrote is None:
        problem = f"holds files that capgrade did not write ({', '.join(there[:3])}{', ...' if there[3:] else ''})"
        raise InputError(problem, file=out, remedy=ANOTHER)
    if wrote != stage:
        problem = f"was written by `{_command(wrote)}`, not by `{_command(stage)}`"
        raise InputError(problem, file=out, remedy=ANOTHER)
    return names


def _who_wrote(out: Path) -> tuple[str | None, set[str]]:
    """The stage that wrote a folder, None where none did, and its files."""
    stage, names = read_claims(out) or (None, set())
    with suppress(InputError, OSError):
        manifest = parse_manifest(out / MANIFEST)
        if stage in (None, stage_of(manifest)):
            stage, names = stage_of(manifest), names | set(manifest["files"])
    return stage or None, names


def stage_of(manifest: dict) -> str:
    """What wrote a folder: its kind, and for regions of other people's files also of which."""
    return str(manifest.get("stage", manifest["kind"]))


def _command(stage: str) -> str:
    return f"capgrade {COMMAND.get(stage, stage)}"


def begin(out: Path, gone: Sequence[str] = ()) -> None:
    """From now on an open folder has no manifest and is known as unfinished; the files of `gone` that an earlier run
    wrote are deleted."""
    claims = opened(out)
    if claims is not None:
        claims.begin()
        for name in claims.names.intersection(gone):
            (out / name).unlink(missing_ok=True)


def written(out: Path) -> set[str]:
    """The names of the files that this run of an open folder or the one before has written, or was about to."""
    claims = opened(out)
    return set() if claims is None else set(claims.names)


def claim_all(out: Path, names: list[str]) -> None:
    """Note files that several processes are going to write in an open folder. InputError as `output_folder`."""
    claims = opened(out)
    if claims is not None:
        claims.add(*names)


Recogniser = Callable[[Path], bool]


def refuse_file(path: Path, what: str, ours: Recogniser) -> None:
    """InputError when a file is there that is not `what`, or one that a finished stage lists as its own."""
    remedy = "give another name; nothing was touched"
    if path.is_dir():
        raise InputError("a folder where a file is to be written", file=path, remedy=remedy)
    if not path.exists() and not path.is_symlink():
        return
    for folder in path.resolve().parents:
        if path.resolve().relative_to(folder).as_posix() in {MANIFEST, STAGE, *_who_wrote(folder)[1]}:
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
    """Pages and pictures that begin so and have the signature, by default that capgrade made them, near their beginning
    or end."""

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
    refuse_file(path, f"picture of {SIGNATURE}", signed(STARTS.get(path.suffix.lower(), STARTS[".png"])))
