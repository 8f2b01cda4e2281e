"""Checks of whole trees of stages' folders: every manifest, file and digest, and what stopped runs
left."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from capgrade.schemas.arrow import ArrowFile, metadata_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    RUN_FILE,
    UNFINISHED,
    altered,
    command_of,
    digest,
    is_unfinished,
    made_again,
    output_of,
    parse_manifest,
    sizes_of,
    stage_of_work,
    unfinished_folder,
    work_folders,
)
from capgrade.schemas.output import LOCK, done_parts, holder
from capgrade.trainer.stages.embed import EMBED

_TABLES = (".arrow", ".parquet")
# tables that need no manifest, and what writes them
_ALONE = {
    "judged": "agree",
    "document_frequencies": "frequencies",
}
_AGAIN = "run its command again"


@dataclass(frozen=True)
class Usable:
    """A folder that a stage wrote: usable when nothing is wrong with it."""

    folder: str
    kind: str
    files: int
    bytes: int


@dataclass
class Report:
    usable: list[Usable] = field(default_factory=list)
    problems: list[InputError] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        usable = [asdict(one) for one in self.usable]
        problems = [
            {"file": str(one.file), "problem": one.problem, "remedy": one.remedy}
            for one in self.problems
        ]
        return {"whole": not self.problems, "usable": usable, "problems": problems}


def verify(root: Path) -> Report:
    """Check every folder at and below `root` that a stage wrote.

    The manifest's own SHA-256 is checked, and the size and the SHA-256 of each file that it lists.
    Judged pairs and document frequencies, which have no manifest, are opened. An index is compared
    with the model it was made from. Raises InputError when there is no such folder, or nothing of
    capgrade in it.
    """
    if root.is_file():
        raise InputError(
            "a file where a folder is needed",
            file=root,
            remedy=f"give the folder that holds it: {root.parent}",
        )
    beside = unfinished_folder(root)
    if not (root.is_dir() or _at_work(beside)):
        raise InputError("no such folder", file=root, remedy="give a folder that capgrade wrote")
    report, listed = Report(), set[Path]()
    for folder in _folders(root) if root.is_dir() else ():
        problems, found = [], None
        if (folder / MANIFEST).is_file():
            found, files, wrong = _check(folder)
            listed.update(files)
            problems += wrong
        for path, kind in _unlisted(folder, listed):
            if kind not in _ALONE:
                problem = f"in no {MANIFEST}: of a run that did not end, or not written by capgrade"
                remedy = "move it elsewhere, or make the folder again under another name"
                problems.append(InputError(problem, file=path, remedy=remedy))
                continue
            try:
                ArrowFile(path)
                report.usable.append(Usable(str(path), kind, 1, path.stat().st_size))
            except InputError as error:
                remedy = f"run `capgrade {_ALONE[kind]}` again"
                report.problems.append(InputError(error.problem, file=path, remedy=remedy))
        report.usable += [found] if found and not problems else []
        report.problems += problems
        for path in sorted(folder.iterdir()):
            report.problems += _unfinished(path) if _at_work(path) else []
    if _at_work(beside) and beside.parent != root:
        report.problems += _unfinished(beside)
    if not report.usable and not report.problems:
        raise InputError(
            "nothing that capgrade wrote in it",
            file=root,
            remedy="give a folder that capgrade wrote",
        )
    return report


def _folders(root: Path, seen: set[Path] | None = None) -> Iterator[Path]:
    """Parents first, in order of name; without those of unfinished runs. A link is followed, as a
    stage's folder may lie on another disk, but each folder is looked into once, by its own name if
    it has one here."""
    seen = set() if seen is None else seen
    seen.add(root.resolve())
    yield root
    for path in sorted(root.iterdir(), key=lambda path: (path.is_symlink(), path)):
        if path.is_dir() and path.resolve() not in seen and not _at_work(path):
            yield from _folders(path, seen)


def _at_work(folder: Path) -> bool:
    """Whether this is a folder of unfinished work."""
    ours = folder.name.endswith(UNFINISHED) and folder.is_dir()
    return ours and ((folder / LOCK).is_file() or bool(work_folders(output_of(folder))))


def _unfinished(folder: Path) -> list[InputError]:
    """What is to be said of such a folder; nothing of work that is kept of a run that has ended."""
    out = output_of(folder)
    process, works = holder(out), work_folders(out)
    if process is not None:
        problem, remedy = f"a run is writing here (process {process})", "wait until it has ended"
        return [InputError(problem, file=out, remedy=remedy)]
    if not works:
        return [InputError("left by a run that was killed", file=folder / LOCK, remedy=_AGAIN)]
    return [
        InputError(
            f"an unfinished run of `capgrade {command_of(stage_of_work(work))[0]}`,"
            f" {done_parts(work)}",
            file=out,
            remedy=f"{_AGAIN}, it goes on",
        )
        for work in works
        if (work / RUN_FILE).is_file()
    ]


def _check(folder: Path) -> tuple[Usable | None, list[Path], list[InputError]]:
    """Of a folder with a manifest: what it is, its files, and what is wrong with them."""
    path = folder / MANIFEST
    try:
        manifest = parse_manifest(
            path, "run the command that wrote this folder again, with another --out"
        )
    except InputError as error:
        return None, sorted(p for p in folder.rglob("*") if p.suffix in _TABLES), [error]
    kind, entries = manifest["kind"], manifest["files"]
    remedy = made_again(kind, folder)
    sizes = sizes_of(folder, entries)
    problems = list(
        altered(entries, sizes, f"{folder}/", remedy, lambda name: digest(folder / name))
    )
    model = folder.parent / str(manifest.get("weights", "model.safetensors"))
    made_from = manifest.get("inputs", {}).get("model")
    if kind == EMBED.name and made_from and model.is_file() and digest(model) != made_from:
        problems.append(
            InputError(f"made from another model than {model}", file=folder, remedy=remedy)
        )
    size = sum(entry["bytes"] for entry in entries.values())
    return (
        Usable(str(folder), str(kind), len(entries), size),
        [folder / name for name in entries],
        problems,
    )


def _unlisted(folder: Path, listed: set[Path]) -> Iterator[tuple[Path, str]]:
    """Tables that no manifest lists, and their kinds: those that need none, such as judged pairs;
    and in a folder where nothing runs those beside a manifest, and ours whose manifest is gone.
    Tables of others elsewhere do not count."""
    finished, at_work = (folder / MANIFEST).is_file(), is_unfinished(folder)
    for path in sorted(folder.iterdir()):
        if (
            path.suffix in _TABLES
            and path.is_file()
            and not path.name.startswith(".")
            and path not in listed
        ):
            kind = _table_kind(path)
            if kind in _ALONE or (not at_work and (finished or kind)):
                yield path, kind or ""


def _table_kind(path: Path) -> str | None:
    """What an Arrow file of ours says that it is, a damaged one too: its schema stands at its
    beginning."""
    try:
        return metadata_of(ArrowFile(path).schema).get("kind")
    except InputError:
        with path.open("rb") as file:
            head = file.read(2**16)
        found = re.search(rb'"kind": "(\w+)"', head) if b"capgrade" in head else None
        return found[1].decode() if found else None
