"""Upload of a published folder: one commit with what changed, upon the commit it was compared with, and a tag."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from capgrade.pipelines.publish.check import NotPublishedError, folder_problems, remote_manifest
from capgrade.pipelines.publish.tables import FOLDERS, MANIFEST
from capgrade.schemas.errors import InputError, first_of
from capgrade.schemas.files import digest, package_version

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

    from capgrade.labels.hub import Repository

Files: TypeAlias = "Mapping[str, RepoFile]"
EMPTY = {".gitattributes"}  # the hub makes a repository with it
NAMED = 3  # files named in one message


@dataclass(frozen=True)
class Pushed:
    address: str
    commit: str
    version: str
    sent: tuple[str, ...]
    deleted: tuple[str, ...]

    def __str__(self) -> str:
        sent = f"{len(self.sent)} file(s) sent, {len(self.deleted)} deleted"
        what = sent if self.sent or self.deleted else "no change"
        return f"{what}: {self.address} at {self.version} (commit {self.commit[:7]})"


def push(folder: Path, repo_id: str, *, public: bool = False, replace: bool = False) -> Pushed:
    """Make the repository on the Hugging Face hub hold what the folder holds, and tag it with its version. A new
    repository is private unless `public`; one that is there stays as it is.

    Only files that differ are sent, all in one commit: a failure before it leaves the repository as it was, and what
    had been uploaded is not sent again. Deleted is only what the manifest there lists and the folder lacks. With
    `replace`, a repository that holds something else is taken too, and what lies in the dataset's own folders goes.
    Raises InputError, which says what state the repository is in: a damaged folder, a repository that holds something
    else, a version that is published with other content, no access, a conflict, no answer.
    """
    from capgrade.labels.hub import Repository

    manifest, problems = folder_problems(folder)
    if problems:
        raise InputError(f"not uploaded: {problems[0].problem}", file=problems[0].file, remedy=problems[0].remedy)
    ours, repository, head = _Local(folder, manifest), Repository(repo_id), None
    try:
        repository.create(public=public)
        head = repository.head()
        there = repository.files(head)
        add, delete = ours.differing(there), _to_delete(ours, repository, head, there, replace)
        tagged = repository.tags().get(ours.version)
        if tagged and (differ := ours.differing(repository.files(tagged))):
            # somebody may have loaded it: a version keeps its content for ever
            problem = f"version {ours.version} is already published with other content ({min(differ)} differs)"
            remedy = "publish this content under a version of its own: --set publish.version=VERSION"
            raise InputError(problem, file=repository.address, remedy=remedy)
        commit = _commit(ours, repository, head, add, delete) if add or delete else head
    except InputError as error:
        raise InputError(f"{error.problem}; {_state(repository, head)}", file=error.file, remedy=error.remedy) from None
    try:
        lacking = ours.differing(repository.files(commit)) if add else {}
        if tagged is None and not lacking:
            repository.tag(ours.version, commit)
    except InputError as error:
        problem = f"{error.problem}; the content is there whole (commit {commit[:7]}), only its tag is missing"
        remedy = f"{error.remedy}; it sends nothing again and sets tag {ours.version}"
        raise InputError(problem, file=error.file, remedy=remedy) from None
    if lacking:
        problem = f"commit {commit[:7]} lacks {min(lacking)} as it was checked, so it got no tag"
        remedy = "look for a .gitignore there that names it, leave the folder as it is while it is sent, and push again"
        raise InputError(problem, file=repository.address, remedy=remedy)
    return Pushed(repository.address, commit, ours.version, tuple(add), tuple(delete))


class _Local:
    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.name, self.version = manifest["params"].get("name"), str(manifest["params"]["version"])
        self.sha256 = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        self.sha256[MANIFEST] = digest(folder / MANIFEST)
        self.files = {name: folder / name for name in self.sha256}

    def differing(self, there: Files) -> dict[str, Path]:
        """The files that a commit has not, or has with another content."""
        return {name: path for name, path in self.files.items() if not self.same(name, there.get(name))}

    def same(self, name: str, there: RepoFile | None) -> bool:
        from huggingface_hub.utils.sha import git_hash

        if there is None:
            return False
        if there.lfs:
            return self.sha256[name] == there.lfs.sha256
        data = self.files[name].read_bytes()  # of a small file, which the hub keeps in git
        return hashlib.sha256(data).hexdigest() == self.sha256[name] and git_hash(data) == there.blob_id


def _to_delete(ours: _Local, repository: Repository, head: str, there: Files, replace: bool) -> list[str]:
    """What the manifest at the head lists and the folder lacks. InputError where the head is not of this dataset; with
    `replace`, whatever lies in the dataset's folders."""
    gone = [name for name in there if name not in ours.files]
    inside = [name for name in gone if name.split("/")[0] in FOLDERS]
    if replace:
        return inside
    if there.keys() <= EMPTY or ours.same(MANIFEST, there.get(MANIFEST)):
        return []
    try:
        found = remote_manifest(repository, head, there)
        name = found["params"].get("name")
        reason = "" if name == ours.name else f"holds the dataset '{name}', not '{ours.name}'"
    except NotPublishedError as error:
        reason = f"its {MANIFEST} cannot be read: {error.problem}"
        reason = reason if MANIFEST in there else f"has no {MANIFEST}, so it is not a dataset of capgrade"
    if reason:
        over = [name for name in sorted(ours.differing(there)) if name in there]
        lost = [
            f"{what} {first_of(names, NAMED)}" for what, names in (("overwrite", over), ("delete", inside)) if names
        ]
        would = " and ".join(lost) or f"add the dataset to {first_of(sorted(there), NAMED)}"
        remedy = "check the name, or give --replace to do so"
        raise InputError(f"{reason}; to push would {would}", file=repository.address, remedy=remedy)
    return [name for name in gone if name in found["files"]]


def _commit(ours: _Local, repository: Repository, head: str, add: dict[str, Path], delete: list[str]) -> str:
    """The new commit, also of one that went through and whose answer was lost on the way."""
    try:
        return repository.commit(add, delete, head, f"Version {ours.version}, by capgrade {package_version()}")
    except InputError:
        with suppress(InputError):
            now = repository.head()
            there = repository.files(now)
            if now != head and not ours.differing(there) and not there.keys() & set(delete):
                return now
        raise


def _state(repository: Repository, head: str | None) -> str:
    """What the repository is like after a failure, by asking it if it can be asked; `head` is the commit before."""
    if head is None:
        return "nothing was sent"
    with suppress(InputError):
        if (now := repository.head()) == head:
            return f"the repository is as it was (commit {now[:7]})"
        return f"nothing of this folder was committed, the repository has a commit of somebody else ({now[:7]})"
    return f"it was at commit {head[:7]}, and running the command again finds out whether it still is"
