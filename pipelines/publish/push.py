"""Upload of a published folder, upon the commit that it was compared with, and a tag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capgrade.labels.layout import FOLDERS
from capgrade.pipelines.publish.check import (
    fetched_manifest,
    folder_problems,
    read_published,
    version_of,
)
from capgrade.schemas.errors import InputError, first_names
from capgrade.schemas.files import MANIFEST, digest, package_version

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo

_EMPTY = {".gitattributes"}  # the hub makes a repository with it
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
    """Make the repository on the hub hold what the folder holds, and tag it with its version.

    A new repository is private unless `public`; one that is there stays as it is. Files are deleted
    that the manifest there lists and the folder lacks; with `replace`, which takes a repository
    that holds something else, all others in the dataset's folders. InputError for a damaged folder,
    for a repository that holds something else, for a version that is published with other content,
    and for what the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    from capgrade.labels.hub import dataset_page, hub_errors, require_repository

    manifest, problems = folder_problems(folder)
    if problems:
        raise InputError(
            f"not uploaded: {problems[0].problem}", file=problems[0].file, remedy=problems[0].remedy
        )
    require_repository(repo_id)
    version, files = version_of(manifest), {MANIFEST, *manifest["files"]}
    api = HfApi(library_name="capgrade", library_version=package_version())
    with hub_errors(repo_id):
        api.create_repo(repo_id, repo_type="dataset", private=not public, exist_ok=True)
        head = api.dataset_info(repo_id, files_metadata=True)
        before = _blobs(head)
        if replace:
            gone = [one for one in before if one not in files and one.split("/")[0] in FOLDERS]
        else:
            gone = _no_longer_listed(repo_id, head, manifest)
        tags = {
            tag.name: tag.target_commit
            for tag in api.list_repo_refs(repo_id, repo_type="dataset").tags
        }
        if version in tags and digest(fetched_manifest(repo_id, tags[version])) != digest(
            folder / MANIFEST
        ):
            # Somebody may have loaded it, so a version keeps its content for ever.
            problem = f"version {version} is already published with other content"
            remedy = (
                "publish this content under a version of its own: publish.version, or --version"
            )
            raise InputError(problem, file=dataset_page(repo_id), remedy=remedy)
        # `upload_folder` may commit in parts, of which only the first is upon this head.
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            *(CommitOperationDelete(one, is_folder=False) for one in gone),
            *(CommitOperationAdd(one, folder / one) for one in sorted(files)),
        ]
        done = api.create_commit(
            repo_id=repo_id,
            repo_type="dataset",
            operations=operations,
            parent_commit=head.sha,
            commit_message=f"Version {version}, by capgrade {package_version()}",
        )
        if version not in tags:
            api.create_tag(repo_id, repo_type="dataset", tag=version, revision=done.oid)
        after = _blobs(api.dataset_info(repo_id, revision=done.oid, files_metadata=True))
    sent = sorted(one for one in after if after[one] != before.get(one))
    deleted = sorted(before.keys() - after.keys())
    return Pushed(dataset_page(repo_id), done.oid, version, tuple(sent), tuple(deleted))


def _blobs(info: DatasetInfo) -> dict[str, str | None]:
    """Git's id of each file of a commit."""
    return {file.rfilename: file.blob_id for file in info.siblings or []}


def _no_longer_listed(repo_id: str, head: DatasetInfo, manifest: dict[str, Any]) -> list[str]:
    """The files of the head that its manifest lists and `manifest` does not.

    InputError where the head holds anything but an earlier version of this dataset.
    """
    from capgrade.labels.hub import dataset_page

    names = _blobs(head).keys()
    if names <= _EMPTY:
        return []
    files, name = {MANIFEST, *manifest["files"]}, manifest["params"]["publish"].get("name")
    gone = sorted(names - files)
    earlier: dict[str, Any] = {}
    if MANIFEST not in names:
        reason = f"has no {MANIFEST}, so it is not a dataset of capgrade"
    else:
        try:
            earlier = read_published(fetched_manifest(repo_id, str(head.sha)))
            other = earlier["params"]["publish"].get("name")
            reason = "" if other == name else f"holds the dataset '{other}', not '{name}'"
        except InputError as error:
            reason = f"its {MANIFEST} cannot be read: {error.problem}"
    if reason:
        inside = [one for one in gone if one.split("/")[0] in FOLDERS]
        lost = {"overwrite": sorted(names & files), "delete": inside}
        would = " and ".join(
            f"{what} {first_names(some, NAMED)}" for what, some in lost.items() if some
        )
        problem = f"{reason}; to push would {would or 'add the dataset to it'}"
        raise InputError(
            problem, file=dataset_page(repo_id), remedy="check the name, or give --replace to do so"
        )
    return [one for one in gone if one in earlier["files"]]
