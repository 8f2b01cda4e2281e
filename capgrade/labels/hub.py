"""A dataset repository on the Hugging Face hub: what `push` and `check` ask of it, and what its refusals mean.

Everything that can go wrong becomes one InputError. The token goes to the hub and nowhere else: texts of the hub or of
its client are shown without it, and their exceptions are not handed on.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    HfFileSystem,
    constants,
    get_token,
    set_client_factory,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import _http, httpx, validate_repo_id  # httpx2 from its version 2 on

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version
from capgrade.schemas.hub import hub_source

CONNECT, ANSWER = 20.0, 60.0  # seconds; the client of huggingface_hub itself waits for ever
BLOCK = 2**25  # bytes a request when files are read for their digest
LATER = "run the same command again later: files that have arrived are not sent again"
LOGIN = "log in with `hf auth login`, or set HF_TOKEN, with write access to the repository"
REMEDIES = {
    401: ("refused the token (HTTP 401)", LOGIN),
    403: ("does not allow this with the token given (HTTP 403)", LOGIN),
    404: (
        "has no such repository, revision or file (HTTP 404)",
        "check the name; a private one needs a token: " + LOGIN,
    ),
    409: (
        "says that somebody else is changing it (HTTP 409)",
        "see what changed there, then run the same command again",
    ),
    412: ("says that it has changed meanwhile (HTTP 412)", "see what changed there, then run the same command again"),
    429: ("had too many requests (HTTP 429)", LATER),
}


class Repository:
    """One dataset repository, at the address that HF_ENDPOINT gives. Every method raises InputError."""

    def __init__(self, repo_id: str) -> None:
        try:
            validate_repo_id(repo_id if "/" in repo_id else "")  # the hub would make USER/NAME of NAME, and find none
        except HFValidationError:
            remedy = "write USER/NAME, of letters, digits, _, and single . or - between them"
            raise InputError(f"{repo_id!r} is not a repository", remedy=remedy) from None
        self.id = repo_id
        self.endpoint = constants.ENDPOINT
        self._api = HfApi(self.endpoint, library_name="capgrade", library_version=package_version())
        self._at: dict[str, Any] = {"repo_id": repo_id, "repo_type": "dataset"}

    @property
    def address(self) -> str:
        """The page of the repository."""
        return f"{self.endpoint}/datasets/{self.id}"

    def create(self, *, public: bool = False) -> None:
        """Make it unless it is there; private unless `public`."""
        with self._asking():
            self._api.create_repo(**self._at, private=not public, exist_ok=True)

    def head(self, revision: str | None = None) -> str:
        """The commit of a branch or tag, of `main` when none is named."""
        with self._asking():
            return str(self._api.repo_info(**self._at, revision=revision, timeout=ANSWER).sha)

    def tags(self) -> dict[str, str]:
        """The commit of each tag."""
        with self._asking():
            return {tag.name: tag.target_commit for tag in self._api.list_repo_refs(**self._at).tags}

    def files(self, revision: str) -> dict[str, RepoFile]:
        """The files of a commit by path, with sizes and digests as the hub has them."""
        with self._asking():
            found = self._api.list_repo_tree(**self._at, revision=revision, recursive=True)
            return {entry.path: entry for entry in found if isinstance(entry, RepoFile)}

    def digest(self, path: str, revision: str) -> str:
        """SHA-256 of a file's bytes, read from the hub and not from a cache."""
        with self._open(path, revision) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, path: str, revision: str, most: int) -> bytes:
        """A file's bytes at a commit, the first `most` of them."""
        with self._open(path, revision) as file:
            return file.read(most)

    def commit(self, add: dict[str, Path], delete: Sequence[str], parent: str, message: str) -> str:
        """Upload files and make one commit upon `parent`, which must still be the head; the new commit."""
        operations: list[Any] = [CommitOperationAdd(name, path) for name, path in add.items()]
        operations += [CommitOperationDelete(name) for name in delete]
        with self._asking():
            made = self._api.create_commit(
                **self._at, operations=operations, commit_message=message, parent_commit=parent
            )
        return made.oid

    def download(self, revision: str | None = None) -> Path:
        """A folder, in the client's cache, with the files of a branch, tag or commit: what is there is not asked for
        again. Offline it is what the branch or tag was when it was asked for last."""
        source = hub_source(self.id, "dataset", revision)
        if source != self.id:
            return Path(source)
        commit = None if constants.is_offline_mode() else self.head(revision)
        with self._asking():
            folder = Path(self._api.snapshot_download(**self._at, revision=revision, etag_timeout=ANSWER))
        if commit not in (None, folder.name):  # where the client gets no answer it takes what it has
            raise InputError("the hub gave another commit than it named", file=self.address, remedy="load it again")
        return folder

    def tag(self, name: str, commit: str) -> None:
        """Name a commit."""
        with self._asking():
            self._api.create_tag(**self._at, tag=name, revision=commit)

    @contextmanager
    def _open(self, path: str, revision: str) -> Iterator[Any]:
        with self._asking():
            system = HfFileSystem(endpoint=self.endpoint, skip_instance_cache=True)
            with system.open(f"datasets/{self.id}@{revision}/{path}", "rb", block_size=BLOCK) as file:
                yield file

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """One InputError for whatever goes wrong. The client of huggingface_hub has our limits of time meanwhile."""
        log, factory = logging.getLogger("huggingface_hub.utils._http"), _http._GLOBAL_CLIENT_FACTORY
        log.addFilter(_redact)  # what the client says of its retries
        set_client_factory(_client)
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # of the client, its transport, and the JSON that a broken server sends
            problem, remedy = _meaning(error)
            raise InputError(f"the hub {problem}", file=self.address, remedy=remedy) from None
        finally:
            set_client_factory(factory)
            log.removeFilter(_redact)


def _client() -> httpx.Client:
    def offline(request: httpx.Request) -> None:
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled

    hooks: dict[str, Any] = {"request": [offline]}
    return httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=httpx.Timeout(ANSWER, connect=CONNECT))


def _meaning(error: BaseException) -> tuple[str, str]:
    """What went wrong, as the end of "the hub ...", and what to do."""
    cause = _root(error)
    if isinstance(cause, HfHubHTTPError):
        status = cause.response.status_code
        if status == 401 and not get_token():
            return "wants a token, or has no such repository (HTTP 401)", f"check the name, and {LOGIN}"
        if status >= 500:
            return f"has a fault (HTTP {status})", LATER
        said = f"refuses this (HTTP {status}: {redacted(cause.server_message or '')})"
        return REMEDIES.get(status, (said, "change what it names, and run again"))
    if isinstance(cause, OfflineModeIsEnabled):
        return "is out of reach: HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"
    if isinstance(cause, httpx.TimeoutException):
        return f"gave no answer within {ANSWER:g} s", LATER
    if isinstance(cause, (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return "cannot be reached (no connection)", "check the network and HF_ENDPOINT, then run the same command again"
    if isinstance(cause, httpx.TransportError):
        return f"broke the connection off ({type(cause).__name__})", LATER
    return f"gave an answer that is not understood ({type(cause).__name__}: {redacted(str(cause))})", LATER


def _root(error: BaseException) -> BaseException:
    """The exception of the transport below those that the client wraps around it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (HfHubHTTPError, httpx.TransportError, OfflineModeIsEnabled)):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


def redacted(text: str) -> str:
    """A text of the hub on one line, without the token and without the signatures of upload addresses."""
    token = get_token()
    text = text.replace(token, "<token>") if token else text
    text = re.sub(r"hf_\w+", "<token>", re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text))
    return shorten(" ".join(text.split()), 300, placeholder=" ...")


def _redact(record: logging.LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True
