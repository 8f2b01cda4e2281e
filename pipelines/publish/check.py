"""Proof that a published folder or repository is what was made: every byte against the manifest, nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from capgrade.labels.published import hub_name
from capgrade.pipelines.publish.tables import FOLDERS, MANIFEST
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import LARGEST_JSON, altered, digest, parse_manifest

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

    from capgrade.labels.hub import Repository

AGAIN = "run `capgrade publish` again, or download it again"
PUSH = "push it again: capgrade publish --push"


class NotPublishedError(InputError):
    """A repository has no manifest that `publish` wrote."""


@dataclass(frozen=True)
class Checked:
    """What was checked, and what is wrong with it: nothing, when it is what was made."""

    name: str
    version: str
    files: int
    bytes: int
    problems: tuple[InputError, ...]


def check(target: str, made: Path | None = None) -> Checked:
    """Check a folder, or a repository USER/NAME or USER/NAME@REVISION on the hub, against its own manifest: sizes,
    SHA-256 of the bytes that are there, and nothing else in the dataset's folders. With `made`, also against the
    folder that was published.

    Raises InputError when it cannot be read at all.
    """
    if Path(target).is_dir():
        name, (manifest, problems) = target, folder_problems(Path(target))
    else:
        name, revision = hub_name(target)
        from capgrade.labels.hub import Repository

        repository = Repository(name)
        commit = repository.head(revision)
        there = repository.files(commit)
        manifest, name = remote_manifest(repository, commit, there), f"{name}@{commit[:7]}"
        sizes = {file: entry.size for file, entry in there.items()}
        problems = _problems(manifest, sizes, lambda file: repository.digest(file, commit), f"{name}/", PUSH)
        version, tags = str(manifest["params"]["version"]), repository.tags()
        if version not in tags:
            problem = f"has no tag {version}, the version of its content"
            problems.append(InputError(problem, file=repository.address, remedy=PUSH))
        elif tags[version] != commit:
            ours, theirs = ({n: f.blob_id for n, f in repository.files(at).items()} for at in (commit, tags[version]))
            for other in [n for n in (MANIFEST, *manifest["files"]) if n not in ours or ours[n] != theirs.get(n)][:1]:
                problem, remedy = f"tag {version} has another {other}", "give it a version of its own"
                problems.append(InputError(problem, file=repository.address, remedy=remedy))
    if made is not None:
        mine, wrong = folder_problems(made)
        names = sorted({*mine["files"], *manifest["files"]})
        differ = [file for file in names if mine["files"].get(file) != manifest["files"].get(file)]
        differ = differ or ([MANIFEST] if mine != manifest else [])
        problems += wrong
        problems += [InputError(f"not the {file} of {made}", file=name, remedy=PUSH) for file in differ]
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    return Checked(name, str(manifest["params"]["version"]), len(manifest["files"]) + 1, size, tuple(problems))


def folder_problems(folder: Path) -> tuple[dict[str, Any], list[InputError]]:
    """The manifest of a folder that `publish` wrote, and its files that are missing, altered, or in the dataset's
    folders without being listed. InputError when it is none."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"no {MANIFEST}: not a finished publish folder", file=folder, remedy="run `capgrade publish`")
    manifest = _of_publish(parse_manifest(path, AGAIN), path)
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return manifest, _problems(manifest, sizes, lambda name: digest(folder / name), f"{folder}/", AGAIN)


def _of_publish(manifest: dict[str, Any], file: Path | str) -> dict[str, Any]:
    params = manifest.get("params")
    if manifest["kind"] != "publish" or not isinstance(params, dict) or "version" not in params:
        raise InputError("not the manifest of a published dataset", file=file, remedy="run `capgrade publish` again")
    return manifest


def _problems(
    manifest: dict[str, Any], sizes: Mapping[str, int], sha256: Callable[[str], str], base: str, remedy: str
) -> list[InputError]:
    extra = sorted(name for name in sizes if name.split("/")[0] in FOLDERS and name not in manifest["files"])
    problem = f"not in {MANIFEST}, though among the dataset's files"  # `datasets` loads what fits the card's patterns
    problems = [*altered(manifest["files"], sizes, base, remedy, sha256)]
    return problems + [InputError(problem, file=base + name, remedy="delete it") for name in extra]


def remote_manifest(repository: Repository, commit: str, there: Mapping[str, RepoFile]) -> dict[str, Any]:
    """The manifest among the files `there` of a commit; NotPublishedError where none that `publish` wrote is there,
    and for one of more than MOST_BYTES, which is not read. InputError when the hub does not give it."""
    file = f"{repository.address}/{MANIFEST}"
    if MANIFEST not in there:
        raise NotPublishedError("missing: not a dataset of capgrade", file=file, remedy=PUSH)
    if there[MANIFEST].size > LARGEST_JSON:
        problem = f"{there[MANIFEST].size} bytes, and of a manifest at most {LARGEST_JSON} are read"
        raise NotPublishedError(problem, file=file, remedy=PUSH)
    with TemporaryDirectory() as folder:
        path = Path(folder) / MANIFEST
        path.write_bytes(repository.read(MANIFEST, commit, LARGEST_JSON))
        try:
            return _of_publish(parse_manifest(path), path)
        except InputError as error:
            raise NotPublishedError(error.problem, file=file, remedy=PUSH) from None
