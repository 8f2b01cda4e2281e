"""Checks of whole trees of stages' folders: every manifest, file, digest and row, and what stopped runs left."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.schemas.claims import read_claims, temporaries
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    COMMAND,
    MANIFEST,
    MOST_BYTES,
    WORK,
    check_size,
    digest,
    made_again,
    metadata_of,
    open_arrow,
    parse_manifest,
)
from capgrade.schemas.lock import LOCK, holder
from capgrade.trainer.fit import CONFIG, MODEL, STATE, SUMMARY, VOCABULARY

EVALUATION = "metrics.json"
NAMES = {
    CONFIG: "training run",
    EVALUATION: "evaluation",
}  # where there is no manifest: by an earlier version, or unfinished
TABLES = (".arrow", ".parquet")
# Tables that need no manifest, and what writes them.
ALONE = {"judged": "agree", "document_frequencies": "captions --frequencies"}
AGAIN = "run its command again"


@dataclass(frozen=True)
class Found:
    """A folder that a stage wrote: usable when nothing is wrong with it."""

    folder: str
    kind: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where, and what to do about it."""

    file: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem} -> {self.remedy}"


@dataclass
class Report:
    """What a tree holds."""

    usable: list[Found] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """As `capgrade verify --json` prints it."""
        return {"whole": not self.problems, **asdict(self)}


def verify(root: Path) -> Report:
    """Check every folder at and below `root` that a stage wrote.

    With a manifest, its own SHA-256 is checked, and for each file the size, the SHA-256, the rows, and that it can be
    read. Files of training runs and evaluations without a manifest are opened, and so are judged pairs and document
    frequencies. An index is compared with the model it was made from.
    Raises InputError when there is no such folder, or nothing of capgrade in it.
    """
    if root.is_file():
        raise InputError(
            "a file where a folder is needed", file=root, remedy=f"give the folder that holds it: {root.parent}"
        )
    if not root.is_dir():
        raise InputError("no such folder", file=root, remedy="give a folder that capgrade wrote")
    report = Report()
    listed: set[Path] = set()
    for folder in _folders(root):
        problems = list(_leftovers(folder))
        kind = _kind(folder)
        files: list[Path] = []
        if kind is not None:
            files, found = CHECKS[kind](folder)
            listed.update(files)
            problems += found
        problems += _unlisted(folder, listed)
        if kind is not None and not problems:
            name = NAMES.get(kind) or _manifest_kind(folder)
            sizes = [path.stat().st_size for path in files]
            report.usable.append(Found(str(folder), name, len(files), sum(sizes)))
        report.problems += problems
        for alone, wrong in _alone(folder):
            report.usable += [alone] if alone else []
            report.problems += wrong
    if not report.usable and not report.problems:
        raise InputError("nothing that capgrade wrote in it", file=root, remedy="give a folder that capgrade wrote")
    return report


def _folders(root: Path) -> Iterator[Path]:
    """Parents first, in order of name; without the work of unfinished runs, and without links."""
    yield root
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name != WORK:
            yield from _folders(path)


def _kind(folder: Path) -> str | None:
    found = next((name for name in CHECKS if (folder / name).is_file()), None)
    return None if found == CONFIG and not _is_run(folder) else found


def _manifest_kind(folder: Path) -> str:
    return str(parse_manifest(folder / MANIFEST)["kind"])


def _leftovers(folder: Path) -> Iterator[Problem]:
    """What is there while a run is going on, or after it was stopped."""
    process = holder(folder)
    if process is not None:
        yield Problem(str(folder), f"a run is writing here (process {process})", "wait until it has ended")
        return
    claimed = _claimed(folder)
    if (folder / WORK).is_dir() and (folder / MANIFEST).is_file():
        yield Problem(str(folder / WORK), "left by a run that was stopped after it had finished", AGAIN)
    elif claimed is not None and not (folder / MANIFEST).is_file():
        done = len(list((folder / WORK / "parts").glob("*.json")))
        what = f"an unfinished run of `capgrade {COMMAND.get(claimed[0], claimed[0])}`"
        yield Problem(str(folder), what + (f", {done} parts done" if done else ""), f"{AGAIN}, it goes on")
    elif (folder / LOCK).exists():
        yield Problem(str(folder / LOCK), "left by a run that was killed", AGAIN)
    for path in temporaries(folder, claimed[1]) if claimed else ():
        yield Problem(str(path), "a partial file of a run that was killed", AGAIN)


def _claimed(folder: Path) -> tuple[str, set[str]] | None:
    """The stage of an unfinished run and its files."""
    try:
        return read_claims(folder)
    except InputError:
        return "", set()


def _unlisted(folder: Path, listed: set[Path]) -> Iterator[Problem]:
    """Tables beside those of a manifest, and tables of ours whose manifest is gone: neither can be relied on. Tables of
    others in folders of others, and tables that need no manifest, do not count."""
    if _claimed(folder) is not None:
        return
    finished = (folder / MANIFEST).is_file()
    for path in sorted(folder.iterdir()):
        if path.suffix in TABLES and path.is_file() and not path.name.startswith(".") and path not in listed:
            kind = _table_kind(path)
            if kind not in ALONE and (finished or kind is not None):
                problem = f"in no {MANIFEST}: of a run that did not end, or not written by capgrade"
                yield Problem(str(path), problem, "move it elsewhere, or make the folder again under another name")


def _table_kind(path: Path) -> str | None:
    """What an Arrow file of ours says that it is, a damaged one too: its schema stands at its beginning."""
    try:
        return metadata_of(open_arrow(path).schema).get("kind")
    except InputError:
        with path.open("rb") as file:
            head = file.read(2**16)
        found = re.search(rb'"kind": "(\w+)"', head) if b"capgrade" in head else None
        return found[1].decode() if found else None


def _alone(folder: Path) -> Iterator[tuple[Found | None, list[Problem]]]:
    """Tables of ours that stand by themselves, such as judged pairs."""
    for path in sorted(folder.glob("*.arrow")):
        kind = _table_kind(path)
        if kind in ALONE:
            _, problems = _opened(folder, [path.name], [], f"run `capgrade {ALONE[kind]}` again")
            yield None if problems else Found(str(path), kind, 1, path.stat().st_size), problems


def _check_manifest(folder: Path) -> tuple[list[Path], list[Problem]]:
    path = folder / MANIFEST
    try:
        manifest = parse_manifest(path, "run the command that wrote this folder again, with another --out")
    except InputError as error:
        return sorted(p for p in folder.rglob("*") if p.suffix in TABLES), [_problem(path, error)]
    kind = manifest["kind"]
    remedy = made_again(kind, folder)
    problems = []
    for name, entry in manifest["files"].items():
        try:
            _check_file(folder / name, entry, remedy)
        except InputError as error:
            problems.append(_problem(folder / name, error, remedy))
    weights = manifest["params"].get("weights") if isinstance(manifest.get("params"), dict) else None
    model = folder.parent / (weights or "model.safetensors")
    made_from = manifest.get("inputs", {}).get("model")
    if kind == "embeddings" and made_from and model.is_file() and digest(model) != made_from:
        problems.append(Problem(str(folder), f"made from another model than {model}", remedy))
    return [folder / name for name in manifest["files"]], problems


def _check_file(path: Path, entry: dict[str, Any], remedy: str) -> None:
    check_size(path, entry["bytes"], remedy)
    if digest(path) != entry.get("sha256"):
        raise InputError("damaged: its SHA-256 is not the manifest's", file=path, remedy=remedy)
    rows = readable(path)
    if rows is not None and rows != entry.get("rows"):
        raise InputError(f"{rows} rows where the manifest says {entry.get('rows')}", file=path, remedy=remedy)


def _check_run(folder: Path) -> tuple[list[Path], list[Problem]]:
    """A training run: ended with a summary, or going on from its state."""
    names = (CONFIG, VOCABULARY, MODEL, SUMMARY)
    problems = []
    if not (folder / SUMMARY).is_file():
        what = "an unfinished training run"
        what += ", with a state to go on from" if (folder / STATE).is_file() else ""
        problems.append(Problem(str(folder), what, "run `capgrade train` again, it goes on"))
    remedy = f"train again: `capgrade train --restart --out {folder}`"
    present = [name for name in names if (folder / name).is_file()]
    if not problems:
        problems = [Problem(str(folder / n), "missing", remedy) for n in names if n not in present]
    return _opened(folder, present, problems, remedy)


def _check_evaluation(folder: Path) -> tuple[list[Path], list[Problem]]:
    names = [EVALUATION, *sorted(path.name for path in folder.glob("curves_*.json"))]
    names += ["per_query.npz"] if (folder / "per_query.npz").is_file() else []
    return _opened(folder, names, [], f"run `capgrade evaluate` again with --out {folder}")


def _opened(folder: Path, names: list[str], problems: list[Problem], remedy: str) -> tuple[list[Path], list[Problem]]:
    for name in names:
        try:
            readable(folder / name)
        except InputError as error:
            problems.append(_problem(folder / name, error, remedy))
    return [folder / name for name in names], problems


def readable(path: Path) -> int | None:
    """The rows of a file of a known kind, None where it has none. InputError when it cannot be read."""
    reader = READABLE.get(path.suffix)
    if reader is None:
        return None
    try:
        return reader(path)
    except InputError:
        raise
    except Exception as error:  # a dozen kinds, of as many libraries
        text = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot be read ({text})", file=path) from error


def _arrow(path: Path) -> int:
    reader = open_arrow(path)
    return sum(reader.get_batch(k).num_rows for k in range(reader.num_record_batches))


def _parquet(path: Path) -> int:
    import pyarrow.parquet as pq

    return sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches())


def _npy(path: Path) -> int:
    return len(np.load(path, mmap_mode="r", allow_pickle=False))


def _npz(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        bad = archive.testzip()
    if bad:
        raise InputError(f"damaged: {bad!r} does not match its checksum", file=path)


def _safetensors(path: Path) -> None:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        file.keys()


def _json(path: Path) -> None:
    if path.stat().st_size < MOST_BYTES:
        json.loads(path.read_text(encoding="utf-8"))


def _is_run(folder: Path) -> bool:
    """Other software's models have a config.json too."""
    return any((folder / name).is_file() for name in (VOCABULARY, STATE, SUMMARY))


READABLE: dict[str, Callable[[Path], int | None]] = {
    ".arrow": _arrow, ".parquet": _parquet, ".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".json": _json,
}  # fmt: skip
CHECKS: dict[str, Callable[[Path], tuple[list[Path], list[Problem]]]] = {
    MANIFEST: _check_manifest, CONFIG: _check_run, EVALUATION: _check_evaluation,
}  # fmt: skip


def _problem(path: Path, error: InputError, remedy: str = "") -> Problem:
    return Problem(str(error.file or path), error.problem, remedy or error.remedy or "make it again")
