"""A stand-in for the Hugging Face hub: dataset repositories in memory, behind the hub's HTTP API on loopback.

It speaks what `huggingface_hub` and `datasets` ask for: create, repository info, refs, tree, validate-yaml, preupload,
the LFS batch and its PUT, commit, tag, and resolve with ranges. `fail` makes a route fail, before or after it has done
its work.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.tools.served import serving

TOKEN = "hf_RecognisableTokenOfTheTests"
LFS = (".parquet", ".png")


@dataclass(frozen=True)
class File:
    """A file of a commit: its bytes, git's id of it, and its SHA-256 if it is an LFS object."""

    data: bytes
    oid: str
    sha256: str | None = None

    @classmethod
    def of(cls, data: bytes, sha256: str | None = None) -> File:
        kept = sha256.encode() if sha256 else b"blob %d\0" % len(data) + data
        return cls(data, hashlib.sha1(kept).hexdigest(), sha256)

    def entry(self, path: str) -> dict[str, Any]:
        size = len(self.data)
        lfs = {"lfs": {"oid": self.sha256, "size": size, "pointerSize": 130}} if self.sha256 else {}
        return {"type": "file", "path": path, "size": size, "oid": self.oid, **lfs}


@dataclass
class Repo:
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    head: str = ""
    private: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    def add(self, files: dict[str, File]) -> str:
        ids = sorted((path, file.oid) for path, file in files.items())
        oid = hashlib.sha1(f"{self.head}{ids}{len(self.commits)}".encode()).hexdigest()
        self.commits[oid], self.head = files, oid
        return oid

    def at(self, revision: str) -> str:
        return self.head if revision == "main" else self.tags.get(revision, revision)


class RefusedError(Exception):
    def __init__(self, status: int, message: str, code: str = "", **more: str) -> None:
        self.status, self.message, self.code, self.more = status, message, code, more


Answer = Any  # JSON, or bytes with headers


@dataclass
class Asked:
    """A request: what its path names, its query and its body."""

    name: str
    revision: str
    path: str
    query: dict[str, list[str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


DATASET = r"(?P<name>[^/]+/[^/]+?)"
ROUTES: list[tuple[str, str, str]] = []  # method, path, and the Hub's method that answers; the first that fits
OPEN = ("info", "refs", "tree", "resolve", "upload")  # without a token; an upload's address is signed


def route(method: str, path: str) -> Callable[[Any], Any]:
    return lambda answer: ROUTES.append((method, path, answer.__name__)) or answer


class Hub:
    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}  # LFS objects by SHA-256
        self.failures: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, str]] = []  # route, and the file or repository it was asked for
        self.lock = threading.RLock()
        self.address = ""

    def fail(self, route: str, **how: Any) -> None:
        """What it answers instead of its work, or `after` it, the first `times`: a `status`, a broken connection
        (`drop`), or a late one (`delay`, seconds)."""
        self.failures[route] = {"times": 10**9, **how}

    def asked(self, route: str) -> list[str]:
        return [what for name, what in self.log if name == route]

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        found = self.repos[repo]
        return {path: file.data for path, file in found.commits[found.at(revision)].items()}

    def change(self, repo: str, path: str, data: bytes | None) -> None:
        """A commit of somebody else."""
        files = dict(self.repos[repo].commits[self.repos[repo].head])
        if data is None:
            del files[path]
        else:
            files[path] = File.of(data)
        self.repos[repo].add(files)

    def repo(self, name: str, revision: str = "main") -> tuple[Repo, str]:
        if name not in self.repos:
            raise RefusedError(404, "Repository not found", "RepoNotFound")
        found = self.repos[name]
        if found.at(revision) not in found.commits:
            raise RefusedError(404, "Invalid rev id: " + revision, "RevisionNotFound")
        return found, found.at(revision)

    # the API, a method a route

    @route("POST", r"/api/repos/create")
    def create(self, asked: Asked) -> Answer:
        body = asked.json
        name = f"{body['organization']}/{body['name']}"
        url = f"{self.address}/datasets/{name}"
        if name in self.repos:
            raise RefusedError(409, "You already created this dataset repo", url=url)
        self.repos[name] = Repo(private=body.get("private", body.get("visibility") == "private"))
        self.repos[name].add({".gitattributes": File.of(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")})
        return {"url": url, "name": name}

    @route("POST", r"/api/validate-yaml")
    def validate(self, asked: Asked) -> Answer:
        return {"errors": [], "warnings": []}

    @route("GET", rf"/api/datasets/{DATASET}(/revision/(?P<revision>[^/]+))?")
    def info(self, asked: Asked) -> Answer:
        repo, commit = self.repo(asked.name, asked.revision)
        siblings = [{"rfilename": path} for path in repo.commits[commit]]
        return {"id": asked.name, "sha": commit, "siblings": siblings, "private": repo.private}

    @route("GET", rf"/api/datasets/{DATASET}/refs")
    def refs(self, asked: Asked) -> Answer:
        repo, _ = self.repo(asked.name)
        tags = [{"name": k, "ref": f"refs/tags/{k}", "targetCommit": v} for k, v in repo.tags.items()]
        return {"branches": [], "tags": tags, "converts": []}

    @route("GET", rf"/api/datasets/{DATASET}/tree/(?P<revision>[^/]+)(/(?P<path>.+))?")
    def tree(self, asked: Asked) -> Answer:
        repo, commit = self.repo(asked.name, asked.revision)
        prefix, recursive = asked.path + "/" if asked.path else "", asked.query["recursive"] == ["true"]
        files = {path: file for path, file in repo.commits[commit].items() if path.startswith(prefix)}
        folders = {folder.as_posix() for path in files for folder in PurePosixPath(path).parents[:-1]}
        found = [{"type": "directory", "path": one, "oid": "0" * 40, "size": 0} for one in sorted(folders)]
        found += [files[path].entry(path) for path in sorted(files)]
        inside = [(one, one["path"].removeprefix(prefix)) for one in found if one["path"].startswith(prefix)]
        return [one for one, rest in inside if recursive or "/" not in rest]

    @route("POST", rf"/api/datasets/{DATASET}/preupload/(?P<revision>[^/]+)")
    def preupload(self, asked: Asked) -> Answer:
        repo, commit = self.repo(asked.name, asked.revision)
        files = []
        for file in asked.json["files"]:
            there = repo.commits[commit].get(file["path"])
            mode = "lfs" if file["path"].endswith(LFS) else "regular"
            oid = (there.sha256 or there.oid) if there else None
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": files}

    @route("POST", rf"/datasets/{DATASET}\.git/info/lfs/objects/batch")
    def batch(self, asked: Asked) -> Answer:
        self.repo(asked.name)
        objects = []
        for wanted in asked.json["objects"]:
            oid, size = wanted["oid"], wanted["size"]
            upload = {"upload": {"href": f"{self.address}/lfs/{oid}?signature=Secret{oid[:6]}"}}
            objects.append({"oid": oid, "size": size, **({} if oid in self.objects else {"actions": upload})})
        return {"transfer": "basic", "objects": objects}

    @route("PUT", r"/lfs/(?P<path>\w+)")
    def upload(self, asked: Asked) -> Answer:
        if hashlib.sha256(asked.body).hexdigest() != asked.path:
            raise RefusedError(400, "the bytes are not those of the oid")
        self.objects[asked.path] = asked.body
        return {}

    @route("POST", rf"/api/datasets/{DATASET}/commit/main")
    def commit(self, asked: Asked) -> Answer:
        repo, head = self.repo(asked.name)
        lines = [json.loads(line) for line in asked.body.splitlines()]
        parent = lines[0]["value"].get("parentCommit")
        if parent != head:
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repo.commits[head])
        for line in lines[1:]:
            key, value = line["key"], line["value"]
            if key == "file":
                files[value["path"]] = File.of(base64.b64decode(value["content"]))
            elif key == "lfsFile":
                if value["oid"] not in self.objects:
                    raise RefusedError(400, f"LFS object of {value['path']} was not uploaded")
                files[value["path"]] = File.of(self.objects[value["oid"]], value["oid"])
            elif key == "deletedFile":
                del files[value["path"]]
        oid = repo.add(files)
        return {"commitUrl": f"{self.address}/datasets/{asked.name}/commit/{oid}", "commitOid": oid}

    @route("POST", rf"/api/datasets/{DATASET}/tag/(?P<revision>[^/]+)")
    def tag(self, asked: Asked) -> Answer:
        repo, commit = self.repo(asked.name, asked.revision)
        if asked.json["tag"] in repo.tags:
            raise RefusedError(409, "Tag already exists")
        repo.tags[asked.json["tag"]] = commit
        return {}

    @route("GET", rf"/datasets/{DATASET}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
    def resolve(self, asked: Asked) -> Answer:
        repo, commit = self.repo(asked.name, asked.revision)
        if asked.path not in repo.commits[commit]:
            raise RefusedError(404, "Entry not found", "EntryNotFound")
        file = repo.commits[commit][asked.path]
        return file.data, {"ETag": f'"{file.sha256 or file.oid}"', "X-Repo-Commit": commit}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        split = urlsplit(self.path)
        method = "GET" if self.command == "HEAD" else self.command
        for wanted, pattern, route in ROUTES:
            found = re.fullmatch(pattern, split.path)
            if wanted == method and found:
                name, revision, path = (
                    unquote(found.groupdict().get(part) or "") for part in ("name", "revision", "path")
                )
                self._route(route, Asked(name, revision or "main", path, parse_qs(split.query), body))
                return
        self._send(404, b'{"error": "no such route"}', {})

    do_GET = do_POST = do_PUT = do_HEAD = _serve  # noqa: N815

    def _route(self, route: str, asked: Asked) -> None:
        hub = self.hub
        with hub.lock:
            hub.log.append((route, asked.path or asked.name))
            failure = hub.failures.get(route)
            if failure:
                failure["times"] -= 1
                if not failure["times"]:
                    del hub.failures[route]
        if failure and not failure.get("after"):
            self._fail(**failure)
            return
        try:
            if route not in OPEN and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusedError(401, "Invalid username or password.")
            with hub.lock:
                answer = getattr(hub, route)(asked)
        except RefusedError as refused:
            self._refuse(refused)
            return
        if failure:
            self._fail(**failure)
        elif isinstance(answer, tuple):
            self._send_file(*answer)
        else:
            self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _fail(self, status: int = 500, drop: bool = False, delay: float = 0.0, **_: Any) -> None:
        time.sleep(delay)
        if drop or delay:
            self.close_connection = True
        else:
            self._refuse(RefusedError(status, "made to fail"))

    def _refuse(self, refused: RefusedError) -> None:
        """A careless server: it repeats what it was given, the token with it."""
        text = f"{refused.message} (you sent {self.headers.get('Authorization')})"
        headers = {"X-Error-Message": text, **({"X-Error-Code": refused.code} if refused.code else {})}
        self._send(refused.status, json.dumps({"error": text, **refused.more}).encode(), headers)

    def _send_file(self, data: bytes, headers: dict[str, str]) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, data, {**headers, "Accept-Ranges": "bytes"})
            return
        first, part = int(wanted[1]), data[int(wanted[1]) :][: int(wanted[2] or len(data)) - int(wanted[1]) + 1]
        span = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        self._send(206, part, {**headers, "Content-Range": span, "Accept-Ranges": "bytes"})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    with serving(type("Handler", (_Handler,), {"hub": hub})) as hub.address:
        yield hub
