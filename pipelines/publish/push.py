"""Upload of a published folder: one commit with what changed, upon the commit it was compared with, and a tag."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from capgrade.pipelines.publish.check import NotPublishedError, folder_problems, read_published, remote_manifest
from capgrade.pipelines.publish.contents import FOLDERS, MANIFEST
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, package_version

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

    from capgrade.labels.hub import Repository

Files: TypeAlias = "Mapping[str, RepoFile]"
EMPTY = {".gitattributes"}  # the hub makes a repository with it
NO_MANIFEST = f"has no {MANIFEST}, so it is not a dataset of capgrade"
NAMED = 3  # files named in one message


@dataclass(frozen=True)
class Pushed:
    """Where the folder is now, and what it took."""

    address: str
    commit: str
    version: str
    sent: tuple[str, ...]
    deleted: tuple[str, ...]

    def __str__(self) -> str:
        what = (
            f"{len(self.sent)} file(s) sent, {len(self.deleted)} deleted" if self.sent or self.deleted else "no change"
        )
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

    manifest = read_published(folder)
    problems = folder_problems(folder, manifest)
    if problems:
        raise InputError(f"not uploaded: {problems[0]}", remedy="run `capgrade publish` again")
    files = {name: folder / name for name in [*manifest["files"], MANIFEST]}
    return _Push(Repository(repo_id), files, manifest, public, replace).run()


class _Push:
    def __init__(
        self, repository: Repository, files: dict[str, Path], manifest: dict[str, Any], public: bool, replace: bool
    ) -> None:
        self.repository, self.files, self.public, self.replace = repository, files, public, replace
        self.name, self.version = manifest["params"].get("name"), str(manifest["params"]["version"])
        self.sha256 = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        self.sha256[MANIFEST] = digest(files[MANIFEST])
        self.head: str | None = None  # before this push

    def run(self) -> Pushed:
        try:
            self.repository.create(public=self.public)
            self.head = self.repository.head()
            there = self.repository.files(self.head)
            add, delete = self._to_send(there), self._to_delete(there)
            tagged = self.repository.tags().get(self.version)
            self._refuse_another(tagged)
            commit = self._commit(add, delete) if add or delete else self.head
        except InputError as error:
            raise InputError(f"{error.problem}; {self._state()}", file=error.file, remedy=error.remedy) from None
        if tagged is None:
            self._tag(commit)
        return Pushed(self.repository.address, commit, self.version, tuple(add), tuple(delete))

    def _to_send(self, there: Files) -> dict[str, Path]:
        return {name: path for name, path in self.files.items() if not self._same(name, there.get(name))}

    def _to_delete(self, there: Files) -> list[str]:
        """What the manifest at the head lists and the folder lacks. InputError where the head is not of this dataset;
        with `replace`, whatever lies in the dataset's folders."""
        gone = [name for name in there if name not in self.files]
        inside = [name for name in gone if name.split("/")[0] in FOLDERS]
        if self.replace:
            return inside
        if there.keys() <= EMPTY or self._same(MANIFEST, there.get(MANIFEST)):
            return []
        listed = self._listed(there, inside)
        return [name for name in gone if name in listed]

    def _listed(self, there: Files, inside: list[str]) -> dict[str, Any]:
        """The files in the manifest at the head."""
        assert self.head is not None
        try:
            found = remote_manifest(self.repository, self.head, there)
        except NotPublishedError as error:
            reason = f"its {MANIFEST} cannot be read: {error.problem}"
            self._refuse_foreign(reason if MANIFEST in there else NO_MANIFEST, there, inside)
        if found["params"].get("name") != self.name:
            reason = f"holds the dataset '{found['params'].get('name')}', not '{self.name}'"
            self._refuse_foreign(reason, there, inside)
        return dict(found["files"])

    def _refuse_foreign(self, reason: str, there: Files, inside: list[str]) -> NoReturn:
        over = [name for name in sorted(self._to_send(there)) if name in there]
        lost = [f"{what} {_some(names)}" for what, names in (("overwrite", over), ("delete", inside)) if names]
        would = " and ".join(lost) or f"add the dataset to {_some(sorted(there))}"
        remedy = "check the name, or give --replace to do so"
        raise InputError(f"{reason}; to push would {would}", file=self.repository.address, remedy=remedy)

    def _same(self, name: str, there: RepoFile | None) -> bool:
        if there is None or there.size != self.files[name].stat().st_size:
            return False
        return self.sha256[name] == there.lfs.sha256 if there.lfs else git_id(self.files[name]) == there.blob_id

    def _refuse_another(self, tagged: str | None) -> None:
        """A version that somebody may have loaded keeps its content for ever."""
        differ = self._to_send(self.repository.files(tagged)) if tagged else {}
        if differ:
            problem = f"version {self.version} is already published with other content ({min(differ)} differs)"
            remedy = "give this content a version of its own: --set publish.version=VERSION"
            raise InputError(problem, file=self.repository.address, remedy=remedy)

    def _commit(self, add: dict[str, Path], delete: list[str]) -> str:
        assert self.head is not None
        message = f"Version {self.version}, by capgrade {package_version()}"
        try:
            return self.repository.commit(add, delete, self.head, message)
        except InputError:
            arrived = self._arrived(delete)
            if arrived is None:
                raise
            return arrived

    def _arrived(self, delete: list[str]) -> str | None:
        """The new head when a commit went through whose answer was lost on the way."""
        try:
            now = self.repository.head()
            there = self.repository.files(now)
        except InputError:
            return None
        return None if now == self.head or self._to_send(there) or there.keys() & set(delete) else now

    def _state(self) -> str:
        """What the repository is like after a failure, by asking it if it can be asked."""
        if self.head is None:
            return "nothing was sent"
        try:
            now = self.repository.head()
        except InputError:
            return f"it was at commit {self.head[:7]}, and running the command again finds out whether it still is"
        if now == self.head:
            return f"the repository is as it was (commit {now[:7]})"
        return f"nothing of this folder was committed, the repository has a commit of somebody else ({now[:7]})"

    def _tag(self, commit: str) -> None:
        try:
            self.repository.tag(self.version, commit)
        except InputError as error:
            problem = f"{error.problem}; the content is there whole (commit {commit[:7]}), only its tag is missing"
            remedy = f"{error.remedy}; it sends nothing again and sets tag {self.version}"
            raise InputError(problem, file=error.file, remedy=remedy) from None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def git_id(path: Path) -> str:
    """The id git gives to a file's content (of the small files that the hub keeps in git itself)."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
