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
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "hf_RecognisableTokenOfTheTests"
LFS = (".parquet", ".png")
LICENCES = {"cc-by-4.0", "apache-2.0", "other"}
TASKS = {"text-retrieval", "image-to-text"}


@dataclass
class Repo:
    commits: dict[str, dict[str, str]] = field(default_factory=dict)  # of each the files: path -> key in Hub.store
    head: str = ""
    private: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    def add(self, files: dict[str, str]) -> str:
        oid = hashlib.sha1(f"{self.head}{sorted(files.items())}{len(self.commits)}".encode()).hexdigest()
        self.commits[oid], self.head = files, oid
        return oid

    def at(self, revision: str) -> str:
        return self.head if revision == "main" else self.tags.get(revision, revision)


@dataclass
class Failure:
    """What a route does instead of its work, or after it: a status, a broken connection, or no answer."""

    status: int = 500
    times: int = 10**9
    drop: bool = False
    mute: bool = False
    after: bool = False


class RefusedError(Exception):
    def __init__(self, status: int, message: str, code: str = "", **more: str) -> None:
        self.status, self.message, self.code, self.more = status, message, code, more


@dataclass
class Asked:
    """A request: what its path names, its query and its body."""

    name: str
    revision: str
    path: str
    query: Mapping[str, str]
    body: bytes
    span: str  # of bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


ROUTES = {  # of each method of Hub: how it is asked
    "create": ("POST", "/api/repos/create"),
    "validate": ("POST", "/api/validate-yaml"),
    "refs": ("GET", "/api/datasets/{name:path}/refs"),
    "tree": ("GET", "/api/datasets/{name:path}/tree/{revision}{path:path}"),
    "preupload": ("POST", "/api/datasets/{name:path}/preupload/{revision}"),
    "batch": ("POST", "/datasets/{name:path}.git/info/lfs/objects/batch"),
    "upload": ("PUT", "/lfs/{path}"),
    "commit": ("POST", "/api/datasets/{name:path}/commit/main"),
    "tag": ("POST", "/api/datasets/{name:path}/tag/{revision}"),
    "resolve": ("GET", "/datasets/{name:path}/resolve/{revision}/{path:path}"),
    "info": ("GET", "/api/datasets/{name:path}"),
}
OPEN = ("info", "refs", "tree", "resolve", "upload")  # without a token; an upload's address is signed


class Hub:
    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.store: dict[str, bytes] = {}  # by SHA-256 (LFS), or by git's SHA-1
        self.failures: dict[str, Failure] = {}
        self.log: list[tuple[str, str]] = []  # route, and the file or repository it was asked for
        self.address = ""

    def fail(self, route: str, **how: Any) -> None:
        self.failures[route] = Failure(**how)

    def asked(self, route: str) -> list[str]:
        return [what for name, what in self.log if name == route]

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        found = self.repos[repo]
        return {path: self.store[key] for path, key in found.commits[found.at(revision)].items()}

    def regular(self, data: bytes) -> str:
        """Keep a file as git does."""
        key = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        self.store[key] = data
        return key

    def change(self, repo: str, path: str, data: bytes | None) -> None:
        """A commit of somebody else."""
        files = dict(self.repos[repo].commits[self.repos[repo].head])
        if data is None:
            del files[path]
        else:
            files[path] = self.regular(data)
        self.repos[repo].add(files)

    def repo(self, asked: Asked) -> tuple[Repo, str]:
        if asked.name not in self.repos:
            raise RefusedError(404, "Repository not found", "RepoNotFound")
        found = self.repos[asked.name]
        if found.at(asked.revision) not in found.commits:
            raise RefusedError(404, "Invalid rev id: " + asked.revision, "RevisionNotFound")
        return found, found.at(asked.revision)

    # the API, a method a route

    def create(self, asked: Asked) -> Any:
        body = asked.json
        name = f"{body['organization']}/{body['name']}"
        url = f"{self.address}/datasets/{name}"
        if name in self.repos:
            raise RefusedError(409, "You already created this dataset repo", url=url)
        self.repos[name] = Repo(private=body.get("private", body.get("visibility") == "private"))
        self.repos[name].add({".gitattributes": self.regular(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")})
        return {"url": url, "name": name}

    def validate(self, asked: Asked) -> Any:
        return {"errors": [], "warnings": []}

    def info(self, asked: Asked) -> Any:
        asked.name, _, revision = asked.name.partition("/revision/")
        asked.revision = revision or "main"
        repo, commit = self.repo(asked)
        siblings = [{"rfilename": path} for path in repo.commits[commit]]
        return {"id": asked.name, "sha": commit, "siblings": siblings, "private": repo.private}

    def refs(self, asked: Asked) -> Any:
        repo, _ = self.repo(asked)
        tags = [{"name": k, "ref": f"refs/tags/{k}", "targetCommit": v} for k, v in repo.tags.items()]
        return {"branches": [], "tags": tags, "converts": []}

    def tree(self, asked: Asked) -> Any:
        repo, commit = self.repo(asked)
        below, found = asked.path.strip("/"), {}
        prefix = below + "/" if below else ""
        for path, key in repo.commits[commit].items():
            if path.startswith(prefix):
                parts = path.removeprefix(prefix).split("/")
                for k in range(1, len(parts)):
                    folder = prefix + "/".join(parts[:k])
                    found[folder] = {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
                size = len(self.store[key])
                lfs = {"lfs": {"oid": key, "size": size, "pointerSize": 130}} if len(key) == 64 else {}
                found[path] = {"type": "file", "path": path, "size": size, "oid": key[:40], **lfs}
        if below and not found:
            raise RefusedError(404, f"{below} does not exist", "EntryNotFound")
        recursive = asked.query.get("recursive", "").lower() == "true"
        return [found[path] for path in sorted(found) if recursive or "/" not in path.removeprefix(prefix)]

    def preupload(self, asked: Asked) -> Any:
        repo, commit = self.repo(asked)
        files = []
        for file in asked.json["files"]:
            mode, oid = "lfs" if file["path"].endswith(LFS) else "regular", repo.commits[commit].get(file["path"])
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": files}

    def batch(self, asked: Asked) -> Any:
        self.repo(asked)
        objects = []
        for wanted in asked.json["objects"]:
            oid, size = wanted["oid"], wanted["size"]
            upload = {"upload": {"href": f"{self.address}/lfs/{oid}?signature=Secret{oid[:6]}"}}
            objects.append({"oid": oid, "size": size, **({} if oid in self.store else {"actions": upload})})
        return {"transfer": "basic", "objects": objects}

    def upload(self, asked: Asked) -> Any:
        if hashlib.sha256(asked.body).hexdigest() != asked.path:
            raise RefusedError(400, "the bytes are not those of the oid")
        self.store[asked.path] = asked.body
        return {}

    def commit(self, asked: Asked) -> Any:
        repo, head = self.repo(asked)
        lines = [json.loads(line) for line in asked.body.splitlines()]
        if lines[0]["value"].get("parentCommit") != head:
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repo.commits[head])
        for line in lines[1:]:
            key, value = line["key"], line["value"]
            if key == "file":
                files[value["path"]] = self.regular(base64.b64decode(value["content"]))
            elif key == "lfsFile":
                if value["oid"] not in self.store:
                    raise RefusedError(400, f"LFS object of {value['path']} was not uploaded")
                files[value["path"]] = value["oid"]
            elif key == "deletedFile":
                del files[value["path"]]
        oid = repo.add(files)
        return {"commitUrl": f"{self.address}/datasets/{asked.name}/commit/{oid}", "commitOid": oid}

    def tag(self, asked: Asked) -> Any:
        repo, commit = self.repo(asked)
        if asked.json["tag"] in repo.tags:
            raise RefusedError(409, "Tag already exists")
        repo.tags[asked.json["tag"]] = commit
        return {}

    def resolve(self, asked: Asked) -> Any:
        repo, commit = self.repo(asked)
        if asked.path not in repo.commits[commit]:
            raise RefusedError(404, "Entry not found", "EntryNotFound")
        key = repo.commits[commit][asked.path]
        data, headers = self.store[key], {"ETag": f'"{key}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", asked.span):
            first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return Response(data[first : last + 1], 206, headers)
        return Response(data, 200, headers)

    async def answer(self, route: str, request: Request) -> Response:
        names, failure = request.path_params, self.failures.get(route)
        asked = Asked(
            names.get("name", ""), names.get("revision", "main"), names.get("path", ""), request.query_params,
            await request.body(), request.headers.get("Range", ""),
        )  # fmt: skip
        self.log.append((route, asked.path or asked.name))
        if failure:
            failure.times -= 1
            if not failure.times:
                del self.failures[route]
        try:
            if failure and not failure.after:
                return await self._failed(failure, request)
            if route not in OPEN and request.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusedError(401, "Invalid username or password.")
            answer = getattr(self, route)(asked)
            if failure:
                return await self._failed(failure, request)
        except RefusedError as refused:  # a careless server: it repeats what it was given, the token with it
            text = f"{refused.message} (you sent {request.headers.get('Authorization')})"
            headers = {"X-Error-Message": text, **({"X-Error-Code": refused.code} if refused.code else {})}
            return JSONResponse({"error": text, **refused.more}, refused.status, headers)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    async def _failed(self, failure: Failure, request: Request) -> Response:
        if failure.mute:
            while (await request.receive())["type"] != "http.disconnect":
                pass
        if failure.mute or failure.drop:
            return Response(headers={"Content-Length": "9"})  # of which none come
        raise RefusedError(failure.status, "made to fail")


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    routes = [Route(path, partial(hub.answer, name), methods=[method]) for name, (method, path) in ROUTES.items()]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, log_level="critical"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hub.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.001)
        try:
            yield hub
        finally:
            server.should_exit = True
            thread.join()
