"""The one rule of outputs: nothing that capgrade did not write is ever deleted or written over.

An output folder has to be new, empty, or written by the same stage: its manifest says so or, while no run has ended in
it, its `.stage`. A run writes into the folder `unfinished` in it. When it has ended, its files take the place of those
of the run before. A file has to be new, or of the kind that the command writes. Everything else is an InputError before
anything is touched.
"""

import hashlib
import os
import re
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
    STAGE,
    allowed,
    canonical,
    leaves,
    metadata_of,
    open_arrow,
    package_version,
    parse_manifest,
    write_text,
    writing,
)
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.lines import read_json
from capgrade.schemas.locks import LOCK, first_process, holder, only_run
from capgrade.schemas.say import tell

UNFINISHED = "unfinished"  # in an output folder: the files of a run that has not ended
WORK = ".work"  # in `unfinished`: what the run keeps for itself
KEY, BEFORE = "key", "before.json"  # in WORK: what the run is of, and the manifest of the run before
SIGNATURE, WITHIN = "capgrade", 4096
STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
CODE = ("schemas", "pipelines", "measures", "text")  # folders of the package
ANOTHER = "give another --out, or a new or empty folder; nothing was touched"


@contextmanager
def output_folder(out: Path, stage: str, key: str | None = None) -> Iterator[Path]:
    """Hold `out` for a run of `stage`, against other runs; yields the folder in it that the run writes to.

    When the block has ended with a manifest there (`write_manifest`), its files take their places in `out`, the
    manifest last. Until then the result of the run before stays. What a run leaves that did not end is deleted, or with
    a `key` kept for the next run of the same key. Of the processes of one launcher the first does all this.
    Raises InputError for a folder of another stage, or with files that capgrade did not write, and where one of them
    stands in the place of a file of the run; with a `key` for a full disk, or one that may not be written, too.
    """
    folder = out / UNFINISHED
    if not first_process():
        yield folder
        return
    if holder(out) is None:
        refuse_foreign(out, stage)
    made, allow = not out.exists(), allowed(FOLDER.get(stage, "--out"))
    try:
        with writing(out, allow) if key else nullcontext(), only_run(out, allow):
            refuse_foreign(out, stage)  # again: another run may have been faster
            _put_in_place(out)  # what a run had ended before it was killed
            _begin(out, stage, key)
            try:
                yield folder
                _put_in_place(out)
            finally:
                if not ((folder / MANIFEST).is_file() or (key and _has_files(folder))):
                    _delete_unfinished(out)
    finally:
        if made:
            with suppress(OSError):  # not empty
                out.rmdir()


def _begin(out: Path, stage: str, key: str | None) -> None:
    """The folder of the run: as a stopped one of the same key has left it, or empty."""
    marker = out / UNFINISHED / WORK / KEY
    if key and marker.is_file() and marker.read_bytes() == key.encode():
        return
    _delete_unfinished(out)
    write_text(out / STAGE, f"{stage}\n")
    (marker.parent / "parts").mkdir(parents=True)
    write_text(marker, key or "")


def _put_in_place(out: Path) -> None:
    """Move the files of a run that has ended; killed meanwhile, the next run goes on with it. InputError where a file
    of somebody else stands."""
    folder = out / UNFINISHED
    if not (folder / MANIFEST).is_file():
        return
    now = parse_manifest(folder / MANIFEST)
    before = _manifest(out / MANIFEST if (out / MANIFEST).is_file() else folder / WORK / BEFORE)
    own = {MANIFEST, *before["files"]} if before else set()
    for name in (MANIFEST, *now["files"]):
        if name not in own and (folder / name).is_file() and os.path.lexists(out / name):
            (folder / MANIFEST).unlink()
            remedy = "move it away, or give another --out; nothing was written over it"
            raise InputError("it is there and capgrade did not write it", file=out / name, remedy=remedy)
    if (out / MANIFEST).is_file():
        (out / MANIFEST).replace(folder / WORK / BEFORE)
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
    _delete_unfinished(out)


def _delete_unfinished(out: Path) -> None:
    """What says whose it is goes last: killed meanwhile, what is left is known."""
    if (out / UNFINISHED).exists():
        shutil.rmtree(out / UNFINISHED)
    (out / STAGE).unlink(missing_ok=True)


def _has_files(folder: Path) -> bool:
    return any(path.is_file() and path.name != KEY for path in folder.rglob("*"))


def _manifest(path: Path) -> dict[str, Any]:
    """Empty where there is none, or none that is whole."""
    with suppress(InputError, OSError):
        return parse_manifest(path)
    return {}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between the parameters and inputs of two manifests: the first names, short values beside them."""
    old, new = (
        {key: canonical(value) for part in parts if isinstance(part, dict) for key, value in leaves(part).items()}
        for parts in ([one.get("params"), one.get("inputs")] for one in (before, now))
    )
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    values = {name: f" {old.get(name, 'absent')} -> {new.get(name, 'absent')}" for name in names[:3]}
    said = [name + (value if len(value) <= 60 else "") for name, value in values.items()]
    return ", ".join([*said, *(["..."] if names[3:] else [])])


def run_key(made_of: Any) -> str:
    """Of what this code makes of it: other code makes something else, also where the version is the same."""
    return hashlib.sha256(canonical([package_version(), code_digest(), made_of]).encode()).hexdigest()


def code_digest() -> str:
    """SHA-256 over the sources that parts are made by: they may change where the version does not."""
    root = Path(__file__).parents[1]
    return folder_digest(root, [*root.glob("*.py"), *(path for name in CODE for path in (root / name).rglob("*.py"))])


def refuse_foreign(out: Path, stage: str) -> None:
    """InputError when the folder is not for this stage."""
    if not out.is_dir():
        if out.exists():
            raise InputError("a file where a folder is to be written", file=out, remedy=ANOTHER)
        return
    there = sorted(path.name for path in out.iterdir())
    if LOCK in there and (out / LOCK).is_file() and re.fullmatch(rb"\d{0,22}\n?", (out / LOCK).read_bytes()[:24]):
        there.remove(LOCK)
    if not there:
        return
    wrote = who_wrote(out)
    foreign = there if wrote is None else [UNFINISHED] if UNFINISHED in there and STAGE not in there else []
    if foreign:
        problem = f"holds files that capgrade did not write ({', '.join(foreign[:3])}{', ...' if foreign[3:] else ''})"
        raise InputError(problem, file=out, remedy=ANOTHER)
    if wrote != stage:
        problem = f"was written by `{_command(str(wrote))}`, not by `{_command(stage)}`"
        raise InputError(problem, file=out, remedy=ANOTHER)


def who_wrote(out: Path) -> str | None:
    """The stage that wrote a folder, or is writing it; None where there is none."""
    if manifest := _manifest(out / MANIFEST):
        return stage_of(manifest)
    return unfinished(out)


def unfinished(out: Path) -> str | None:
    """The stage of a run that is going on in a folder, or was stopped; None where there is none."""
    with suppress(OSError, UnicodeDecodeError):
        return (out / STAGE).read_text(encoding="utf-8").partition("\n")[0] or None
    return None


def stage_of(manifest: dict) -> str:
    """What wrote a folder: its kind, and for regions of other people's files also of which."""
    return str(manifest.get("stage", manifest["kind"]))


def _command(stage: str) -> str:
    return f"capgrade {COMMAND.get(stage, stage)}"


Recogniser = Callable[[Path], bool]


def refuse_file(path: Path, what: str, ours: Recogniser) -> None:
    """InputError when a file is there that is not `what`, or one that a finished stage lists as its own."""
    remedy = "give another name; nothing was touched"
    if path.is_dir():
        raise InputError("a folder where a file is to be written", file=path, remedy=remedy)
    if not path.exists() and not path.is_symlink():
        return
    for folder in path.resolve().parents:
        files = _manifest(folder / MANIFEST).get("files", ())
        if path.resolve().relative_to(folder).as_posix() in {MANIFEST, STAGE, *files}:
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
