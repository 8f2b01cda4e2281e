"""Whether a published folder or repository is what was made, by its manifest.

Every byte is checked, and nothing else may stand in the dataset's folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from capgrade.labels.layout import FOLDERS, LAYOUT, hub_name
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, altered, digest, parse_manifest

AGAIN = "run `capgrade publish` again, or download it again"
PUSH = "push it again: capgrade publish push"


@dataclass(frozen=True)
class Checked:
    """What was checked, and the problems that were found: none, when it is what was made."""

    name: str
    version: str
    files: int
    bytes: int
    problems: tuple[InputError, ...]


def check(target: str, made: Path | None = None) -> Checked:
    """Check a folder, or a repository USER/NAME or USER/NAME@REVISION, against its own manifest.

    That is sizes, SHA-256 of the bytes that are there, and that nothing else is in the dataset's
    folders. With `made`, it is also held against the folder that was published. A repository's
    files are fetched anew. Raises InputError when it cannot be read at all.
    """
    if Path(target).is_dir():
        name, (manifest, problems) = target, folder_problems(Path(target))
    else:
        from huggingface_hub import snapshot_download

        from capgrade.labels.hub import hub_errors

        repo_id, revision = hub_name(target)
        with TemporaryDirectory() as cache:
            with hub_errors(repo_id):
                folder = Path(
                    snapshot_download(
                        repo_id,
                        repo_type="dataset",
                        revision=revision,
                        cache_dir=cache,
                        allow_patterns=LAYOUT,
                    )
                )
            name = f"{repo_id}@{folder.name[:7]}"
            manifest, problems = folder_problems(folder, name, PUSH)
            problems += _tag_problems(repo_id, version_of(manifest), folder / MANIFEST)
    if made is not None:
        mine, wrong = folder_problems(made)
        names = sorted({*mine["files"], *manifest["files"]})
        differ = [file for file in names if mine["files"].get(file) != manifest["files"].get(file)]
        differ = differ or ([MANIFEST] if mine != manifest else [])
        problems += wrong
        problems += [
            InputError(f"not the {file} of {made}", file=name, remedy=PUSH) for file in differ
        ]
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    return Checked(name, version_of(manifest), len(manifest["files"]) + 1, size, tuple(problems))


def folder_problems(
    folder: Path, name: str | None = None, remedy: str = AGAIN
) -> tuple[dict[str, Any], list[InputError]]:
    """The manifest of a folder that `publish` wrote, and what is wrong with its files.

    Problems are files that are missing, altered, or in the dataset's folders without being listed.
    Errors call the folder `name`. InputError when `publish` has not written it.
    """
    name = name or str(folder)
    if not (folder / MANIFEST).is_file():
        problem = f"no {MANIFEST}: not a finished publish folder"
        raise InputError(problem, file=name, remedy="run `capgrade publish`")
    try:
        manifest = read_published(folder / MANIFEST)
    except InputError as error:
        raise InputError(error.problem, file=f"{name}/{MANIFEST}", remedy=remedy) from None
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    extra = sorted(
        one for one in sizes if one.split("/")[0] in FOLDERS and one not in manifest["files"]
    )
    # `datasets` would load it, as it fits the card's patterns.
    problem = f"not in {MANIFEST}, though among the dataset's files"
    problems = [
        *altered(manifest["files"], sizes, f"{name}/", remedy, lambda one: digest(folder / one))
    ]
    return manifest, problems + [
        InputError(problem, file=f"{name}/{one}", remedy="delete it") for one in extra
    ]


def read_published(path: Path) -> dict[str, Any]:
    """The manifest in a file; InputError where `publish` has not written it."""
    manifest = parse_manifest(path, AGAIN)
    params = manifest.get("params")
    block = params.get("publish") if isinstance(params, dict) else None
    if manifest["kind"] != "publish" or not isinstance(block, dict) or "version" not in block:
        raise InputError(
            "not the manifest of a published dataset",
            file=path,
            remedy="run `capgrade publish` again",
        )
    return manifest


def version_of(manifest: Mapping[str, Any]) -> str:
    """The version of the dataset that has this manifest."""
    return str(manifest["params"]["publish"]["version"])


def fetched_manifest(repo_id: str, commit: str) -> Path:
    """The manifest of a commit, in the cache of the hub's client."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repo_id, MANIFEST, repo_type="dataset", revision=commit))


def _tag_problems(repo_id: str, version: str, manifest: Path) -> list[InputError]:
    """A problem where a version's tag is missing, or has another manifest than this one.

    The manifest has the digest of every other file.
    """
    from huggingface_hub import HfApi

    from capgrade.labels.hub import dataset_page, hub_errors

    with hub_errors(repo_id):
        tags = {
            tag.name: tag.target_commit
            for tag in HfApi().list_repo_refs(repo_id, repo_type="dataset").tags
        }
        if version not in tags:
            problem, remedy = f"has no tag {version}, the version of its content", PUSH
        elif digest(fetched_manifest(repo_id, tags[version])) != digest(manifest):
            problem = f"tag {version} has another {MANIFEST}"
            remedy = "give it a version of its own"
        else:
            return []
    return [InputError(problem, file=dataset_page(repo_id), remedy=remedy)]
