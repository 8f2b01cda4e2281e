"""A stand-in for the Hugging Face hub: dataset repositories in memory, behind the hub's HTTP API on
loopback, as far as `huggingface_hub` and `datasets` ask for it here. `fail` makes a route fail."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.tools.served import Handler, serving

TOKEN = "hf_RecognisableTokenOfTheTests"
DATASET = r"(?P<name>[^/]+/[^/]+?)"
ROUTES = {  # method and path, and the Hub's method that answers
    "create": ("POST", "/api/repos/create"),
    "validate": ("POST", "/api/validate-yaml"),
    "info": ("GET", f"/api/datasets/{DATASET}(/revision/(?P<revision>[^/]+))?"),
    "refs": ("GET", f"/api/datasets/{DATASET}/refs"),
    "tree": ("GET", f"/api/datasets/{DATASET}/tree/(?P<revision>[^/]+)(/(?P<path>.+))?"),
    "preupload": ("POST", f"/api/datasets/{DATASET}/preupload/(?P<revision>[^/]+)"),
    "batch": ("POST", rf"/datasets/{DATASET}\.git/info/lfs/objects/batch"),
    "upload": ("PUT", r"/lfs/(?P<path>\w+)"),
    "xet_token": ("GET", f"/api/datasets/{DATASET}/xet-write-token/(?P<revision>[^/]+)"),
    "xorb": ("POST", r"/v1/xorbs/default/(?P<path>\w+)"),
    "shard": ("POST", r"/v1/shards"),
    "commit": ("POST", f"/api/datasets/{DATASET}/commit/main"),
    "tag": ("POST", f"/api/datasets/{DATASET}/tag/(?P<revision>[^/]+)"),
    "resolve": ("(GET|HEAD)", f"/datasets/{DATASET}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"),
}
# without a token; an upload's address is signed
OPEN = (
    "info",
    "refs",
    "tree",
    "resolve",
    "upload",
    "xorb",
    "shard",
)


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
        self.head = hashlib.sha1(f"{self.head}{ids}{len(self.commits)}".encode()).hexdigest()
        self.commits[self.head] = files
        return self.head

    def at(self, revision: str) -> str:
        return self.head if revision == "main" else self.tags.get(revision, revision)


@dataclass
class Asked:
    """A request: what its path names, the bytes that it wants of a file, and its body."""

    name: str
    revision: str
    path: str
    span: re.Match[str] | None
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RefusedError(Exception):
    def __init__(self, status: int, message: str, code: str = "") -> None:
        self.status, self.message, self.code = status, message, code


class Hub:
    """Routes answer with what becomes JSON, or with status, bytes and headers."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}  # LFS objects by SHA-256
        # Of Xet the bytes of each batch of new chunks that came. Files are not put together again.
        self.xorbs: list[int] = []
        self.failures: dict[str, tuple[int, str | None]] = {}
        self.log: list[tuple[str, str]] = []  # route, and the file or repository it was asked for
        self.address = ""

    def fail(self, route: str, status: int, path: str | None = None) -> None:
        """It answers with this status instead of doing its work, for one `path` alone if one is
        given."""
        self.failures[route] = status, path

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

    def serve(self, handler: Handler) -> None:
        body = handler.body()
        url = urlsplit(handler.path)
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))
        for route, (method, pattern) in ROUTES.items():
            if re.fullmatch(method, handler.command) and (found := re.fullmatch(pattern, url.path)):
                names = {key: unquote(text or "") for key, text in found.groupdict().items()}
                revision = names.get("revision") or "main"
                asked = Asked(names.get("name", ""), revision, names.get("path", ""), span, body)
                handler.reply(*self.answer(route, asked, handler.headers.get("Authorization")))
                return
        handler.reply(404, b'{"error": "no such route"}')

    def answer(
        self, route: str, asked: Asked, token: str | None
    ) -> tuple[int, bytes, dict[str, str]]:
        self.log.append((route, asked.path or asked.name))
        status, path = self.failures.get(route, (0, None))
        try:
            if status and path in (None, asked.path):
                raise RefusedError(status, "made to fail")
            if route not in OPEN and token != f"Bearer {TOKEN}":
                raise RefusedError(401, "Invalid username or password.")
            found = getattr(self, route)(asked)
        except RefusedError as refused:
            headers = {"X-Error-Message": refused.message, "X-Error-Code": refused.code}
            return refused.status, json.dumps({"error": refused.message}).encode(), headers
        return found if isinstance(found, tuple) else (200, json.dumps(found).encode(), {})

    def at(self, asked: Asked) -> tuple[Repo, str, dict[str, File]]:
        """The repository, the commit and its files."""
        if asked.name not in self.repos:
            raise RefusedError(404, "Repository not found", "RepoNotFound")
        repo = self.repos[asked.name]
        if repo.at(asked.revision) not in repo.commits:
            raise RefusedError(404, "Invalid rev id: " + asked.revision, "RevisionNotFound")
        return repo, repo.at(asked.revision), repo.commits[repo.at(asked.revision)]

    def create(self, asked: Asked) -> Any:
        body = asked.json
        name = f"{body['organization']}/{body['name']}"
        found = {"url": f"{self.address}/datasets/{name}", "name": name}
        if name in self.repos:
            return 409, json.dumps(found).encode(), {}
        self.repos[name] = Repo(private=body["visibility"] == "private")
        self.repos[name].add(
            {".gitattributes": File.of(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")}
        )
        return found

    def validate(self, _: Asked) -> Any:
        return {"errors": [], "warnings": []}

    def info(self, asked: Asked) -> Any:
        _, commit, files = self.at(asked)
        siblings = [{"rfilename": path, "blobId": file.oid} for path, file in files.items()]
        return {"id": asked.name, "sha": commit, "siblings": siblings}

    def refs(self, asked: Asked) -> Any:
        repo, *_ = self.at(asked)
        tags = [
            {"name": k, "ref": f"refs/tags/{k}", "targetCommit": v} for k, v in repo.tags.items()
        ]
        return {"branches": [], "tags": tags, "converts": []}

    def tree(self, asked: Asked) -> Any:
        """Of a folder all that is below it, whether that is asked for or not."""
        *_, files = self.at(asked)
        folders = {
            folder.as_posix() for path in files for folder in PurePosixPath(path).parents[:-1]
        }
        found = [
            {"type": "directory", "path": one, "oid": "0" * 40, "size": 0}
            for one in sorted(folders)
        ]
        found += [file.entry(path) for path, file in sorted(files.items())]
        return [one for one in found if one["path"].startswith(asked.path)]

    def preupload(self, asked: Asked) -> Any:
        """How each file is to be sent, and what is there under its name."""
        *_, files = self.at(asked)
        found = []
        for path in (file["path"] for file in asked.json["files"]):
            mode = "lfs" if path.endswith(".parquet") else "regular"
            there = {"oid": files[path].sha256 or files[path].oid} if path in files else {}
            found.append({"path": path, "uploadMode": mode, "shouldIgnore": False, **there})
        return {"files": found}

    def batch(self, asked: Asked) -> Any:
        self.at(asked)
        objects = []
        for wanted in asked.json["objects"]:
            oid = wanted["oid"]
            upload = {"upload": {"href": f"{self.address}/lfs/{oid}?signature=Secret{oid[:6]}"}}
            objects.append({**wanted, **({} if oid in self.objects else {"actions": upload})})
        return {"transfer": "basic", "objects": objects}

    def upload(self, asked: Asked) -> Any:
        if hashlib.sha256(asked.body).hexdigest() != asked.path:
            raise RefusedError(400, "the bytes are not those of the oid")
        self.objects[asked.path] = asked.body
        return {}

    def xet_token(self, _: Asked) -> Any:
        return {"accessToken": "of chunks", "exp": 4_102_444_800, "casUrl": self.address}

    def xorb(self, asked: Asked) -> Any:
        self.xorbs.append(len(asked.body))
        return {"was_inserted": True}

    def shard(self, _: Asked) -> Any:
        return {"result": 1}

    def commit(self, asked: Asked) -> Any:
        repo, head, files = self.at(asked)
        header, *lines = (json.loads(line) for line in asked.body.splitlines())
        if header["value"].get("parentCommit") != head:
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        files = dict(files)
        for line in lines:
            value = line["value"]
            if line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "file":
                files[value["path"]] = File.of(base64.b64decode(value["content"]))
            elif self.xorbs:
                files[value["path"]] = File.of(b"", value["oid"])
            elif value["oid"] in self.objects:
                files[value["path"]] = File.of(self.objects[value["oid"]], value["oid"])
            else:
                raise RefusedError(400, f"LFS object of {value['path']} was not uploaded")
        oid = repo.add(files)
        return {"commitUrl": f"{self.address}/datasets/{asked.name}/commit/{oid}", "commitOid": oid}

    def tag(self, asked: Asked) -> Any:
        repo, commit, _ = self.at(asked)
        if asked.json["tag"] in repo.tags:
            raise RefusedError(409, "Tag already exists")
        repo.tags[asked.json["tag"]] = commit
        return {}

    def resolve(self, asked: Asked) -> Any:
        _, commit, files = self.at(asked)
        if asked.path not in files:
            raise RefusedError(404, "Entry not found", "EntryNotFound")
        file = files[asked.path]
        headers = {
            "ETag": f'"{file.sha256 or file.oid}"',
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
        }
        if asked.span is None:
            return 200, file.data, headers
        first, size = int(asked.span[1]), len(file.data)
        part = file.data[first : int(asked.span[2] or size) + 1]
        return (
            206,
            part,
            {**headers, "Content-Range": f"bytes {first}-{first + len(part) - 1}/{size}"},
        )


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    with serving(hub.serve) as hub.address:
        yield hub
