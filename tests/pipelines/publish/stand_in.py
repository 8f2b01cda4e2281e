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
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.tools.served import serving

TOKEN = "hf_RecognisableTokenOfTheTests"
LFS = (".parquet", ".png")
LICENCES = {"cc-by-4.0", "apache-2.0", "other"}
TASKS = {"text-retrieval", "image-to-text"}


@dataclass(frozen=True)
class Blob:
    """A file of a commit: bytes kept in git, or the SHA-256 of an LFS object."""

    size: int
    oid: str
    sha256: str | None = None

    def entry(self, path: str) -> dict[str, Any]:
        lfs = {"lfs": {"oid": self.sha256, "size": self.size, "pointerSize": 130}} if self.sha256 else {}
        return {"type": "file", "path": path, "size": self.size, "oid": self.oid, **lfs}


@dataclass
class Repo:
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    head: str = ""
    private: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    def add(self, files: dict[str, Blob]) -> str:
        oid = hashlib.sha1(f"{self.head}{sorted(files.items())}{len(self.commits)}".encode()).hexdigest()
        self.commits[oid], self.head = files, oid
        return oid

    def at(self, revision: str) -> str:
        return self.head if revision == "main" else self.tags.get(revision, revision)


@dataclass
class Failure:
    """What a route does instead of its work, or after it: a status, a broken connection, or a late answer."""

    status: int = 500
    times: int = 10**9
    drop: bool = False
    delay: float = 0.0
    after: bool = False


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
        self.blobs: dict[str, bytes] = {}  # git's by id
        self.failures: dict[str, Failure] = {}
        self.log: list[tuple[str, str]] = []  # route, and the file or repository it was asked for
        self.lock = threading.RLock()
        self.address = ""

    def fail(self, route: str, **how: Any) -> None:
        self.failures[route] = Failure(**how)

    def asked(self, route: str) -> list[str]:
        return [what for name, what in self.log if name == route]

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        found = self.repos[repo]
        commit = found.commits[found.at(revision)]
        return {path: self.content(blob) for path, blob in commit.items()}

    def content(self, blob: Blob) -> bytes:
        return self.objects[blob.sha256] if blob.sha256 else self.blobs[blob.oid]

    def regular(self, data: bytes) -> Blob:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        self.blobs[oid] = data
        return Blob(len(data), oid)

    def change(self, repo: str, path: str, data: bytes | None) -> None:
        """A commit of somebody else."""
        files = dict(self.repos[repo].commits[self.repos[repo].head])
        if data is None:
            del files[path]
        else:
            files[path] = self.regular(data)
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
        self.repos[name].add({".gitattributes": self.regular(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")})
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
        below, recursive = asked.path, asked.query.get("recursive", ["False"])[0].lower() == "true"
        prefix = below + "/" if below else ""
        found, folders = [], {}
        for path, blob in sorted(repo.commits[commit].items()):
            rest = path.removeprefix(prefix)
            if not path.startswith(prefix):
                continue
            if "/" in rest:
                for k in range(1, rest.count("/") + 1) if recursive else [1]:
                    folder = prefix + "/".join(rest.split("/")[:k])
                    folders[folder] = {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
            if recursive or "/" not in rest:
                found.append(blob.entry(path))
        if below and not found and not folders:
            raise RefusedError(404, f"{below} does not exist", "EntryNotFound")
        return [*folders.values(), *found]

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
                files[value["path"]] = self.regular(base64.b64decode(value["content"]))
            elif key == "lfsFile":
                if value["oid"] not in self.objects:
                    raise RefusedError(400, f"LFS object of {value['path']} was not uploaded")
                pointer = hashlib.sha1(value["oid"].encode()).hexdigest()
                files[value["path"]] = Blob(len(self.objects[value["oid"]]), pointer, value["oid"])
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
        blob = repo.commits[commit][asked.path]
        return self.content(blob), {"ETag": f'"{blob.sha256 or blob.oid}"', "X-Repo-Commit": commit}


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
                failure.times -= 1
                if failure.times <= 0:
                    del hub.failures[route]
        if failure and not failure.after:
            self._fail(failure)
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
            self._fail(failure)
        elif isinstance(answer, tuple):
            self._send_file(*answer)
        else:
            self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _fail(self, failure: Failure) -> None:
        time.sleep(failure.delay)
        if failure.drop or failure.delay:
            self.close_connection = True
        else:
            self._refuse(RefusedError(failure.status, "made to fail"))

    def _refuse(self, refused: RefusedError) -> None:
        """A careless server: it repeats what it was given, the token with it."""
        text = f"{refused.message} (you sent {self.headers.get('Authorization')})"
        headers = {"X-Error-Message": text, **({"X-Error-Code": refused.code} if refused.code else {})}
        self._send(refused.status, json.dumps({"error": text, **refused.more}).encode(), headers)

    def _send_file(self, data: bytes, headers: dict[str, str]) -> None:
        whole, wanted = len(data), re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, data, {**headers, "Accept-Ranges": "bytes"})
            return
        first, last = int(wanted[1]), min(int(wanted[2] or whole), whole - 1)
        span = {"Content-Range": f"bytes {first}-{last}/{whole}", "Accept-Ranges": "bytes"}
        self._send(206, data[first : last + 1], {**headers, **span})

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
