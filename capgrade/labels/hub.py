"""Dataset repositories of the Hugging Face hub: names, errors in one line, and published
folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import httpx, validate_repo_id  # version 2 gives httpx2 by this name

from capgrade.labels.layout import LAYOUT
from capgrade.schemas.errors import InputError
from capgrade.schemas.hub import hub_source

LOGIN = "check the name, and log in with `hf auth login` or set HF_TOKEN"
NETWORK = "check the network and HF_ENDPOINT, unset HF_HUB_OFFLINE, and run it again"
LATER = "run the same command again: files that have arrived are not sent again"
_NO_ANSWER = OfflineModeIsEnabled, LocalEntryNotFoundError, httpx.TransportError, httpx.InvalidURL


def require_repository(repo_id: str) -> None:
    """InputError unless it is USER/NAME; the hub would make USER/NAME of NAME alone."""
    try:
        validate_repo_id(repo_id if "/" in repo_id else "")
    except HFValidationError:
        remedy = "write USER/NAME, of letters, digits, _, and single . or - between them"
        raise InputError(f"{repo_id!r} is not a repository", remedy=remedy) from None


def dataset_page(repo_id: str) -> str:
    """The page of a dataset repository, at the hub that HF_ENDPOINT names."""
    return f"{HfApi().endpoint}/datasets/{repo_id}"


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """One InputError, in the client's own words on one line, for whatever goes wrong in the block:
    a request, a connection, a file, or an answer or a card that is not right."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RuntimeError) as error:
        remedy = LATER
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403, 404):
            remedy = LOGIN
        elif isinstance(error, _NO_ANSWER):
            remedy = NETWORK
        message = shorten(str(error) or type(error).__name__, 400, placeholder=" ...")
        raise InputError(f"the hub: {message}", file=dataset_page(repo_id), remedy=remedy) from None


def download(repo_id: str, revision: str | None = None, files: list[str] | None = LAYOUT) -> Path:
    """A folder, in the client's cache, with the files of a branch, tag or commit that fit the
    patterns, those of what `publish` wrote unless told otherwise; None: every file.

    Without a network it is what the cache has of that revision. InputError as `hub_errors`.
    """
    with hub_errors(repo_id):
        source = hub_source(repo_id, "dataset", revision, files)
        if source == repo_id:
            # Where the hub refuses, snapshot_download would say nothing and take what the cache
            # has.
            if not constants.is_offline_mode():
                HfApi().dataset_info(repo_id, revision=revision)
            source = snapshot_download(
                repo_id, repo_type="dataset", revision=revision, allow_patterns=files
            )
    return Path(source)
