"""Upload to a stand-in for the hub: one commit with what changed, whole or not at all, resumed and tagged."""

import hashlib
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capgrade.labels import hub as client
from capgrade.pipelines.publish.push import push
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, read_manifest
from tests.conftest import call, printed, refusal

from .conftest import DATA, README, REPO, write_folder
from .stand_in import TOKEN, File, Hub, Repo

SECOND = "relevance/train-00001-of-00002.parquet"


def changed_folder(folder: Path, version: str = "1.0.1", **more: str) -> Path:
    return write_folder(folder, version, **{SECOND: "PAR1 another shard PAR1", **more})


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*read_manifest(folder, "publish")["files"], MANIFEST)}


def uploaded(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    return {name: data for name, data in hub.files(REPO, revision).items() if name != ".gitattributes"}


Refused = Callable[[str], None]


@pytest.fixture
def refused(hub: Hub, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Refused:
    """Push, and be refused: in one line with a remedy; the repository stays as it was; and neither a message, nor a
    traceback, nor a log line has the token, which the stand-in repeats in its errors, or the signature of an upload."""

    def check(said: str) -> None:
        before = {name: (repo.head, dict(repo.tags)) for name, repo in hub.repos.items()}
        with pytest.raises(InputError, match=said) as caught:
            push(folder, REPO)
        assert " -> " in str(caught.value) and "\n" not in str(caught.value)
        told = "".join(traceback.format_exception(caught.value)) + caplog.text + "".join(capfd.readouterr())
        assert TOKEN not in told and "signature=" not in told
        assert {name: (hub.repos[name].head, hub.repos[name].tags) for name in before} == before

    return check


def test_a_folder_is_there_whole_in_one_commit_and_tagged(hub: Hub, folder: Path) -> None:
    done = push(folder, REPO)
    assert uploaded(hub) == contents(folder) == uploaded(hub, "1.0.0")
    assert len(hub.asked("commit")) == 1
    assert (done.commit, done.version) == (hub.repos[REPO].head, "1.0.0")
    assert str(done) == f"6 file(s) sent, 0 deleted: {hub.address}/datasets/{REPO} at 1.0.0 (commit {done.commit[:7]})"
    push(folder, f"{REPO}-shown", public=True)
    push(folder, REPO, public=True)
    assert not hub.repos[f"{REPO}-shown"].private
    assert hub.repos[REPO].private, "a new one is private, and one that is there stays as it is"


QUIET = ("preupload", "batch", "upload", "commit", "tag")


def test_only_what_changed_is_sent_and_what_is_gone_is_deleted(hub: Hub, folder: Path) -> None:
    """Other people's files stay, also in a folder of the dataset; `--check` tells of them."""
    first = push(folder, REPO)
    hub.log.clear()
    again = push(folder, REPO)
    assert (again.commit, again.sent, again.deleted) == (first.commit, (), ())
    assert not any(hub.asked(route) for route in QUIET)
    changed_folder(folder)
    done = push(folder, REPO)
    assert done.sent == (SECOND, MANIFEST)
    assert len(hub.asked("upload")) == len(hub.asked("commit")) == 1
    assert uploaded(hub, "1.0.1") == contents(folder)
    assert hub.files(REPO, "1.0.0")[SECOND] == DATA[SECOND].encode()
    theirs = {"LICENSE": b"text", "captions/notes.txt": b"theirs"}
    for name, data in theirs.items():
        hub.change(REPO, name, data)
    (folder / SECOND).unlink()
    done = push(write_folder(folder, "2", **{SECOND: None}), REPO)
    assert done.deleted == (SECOND,)
    assert uploaded(hub) == {**contents(folder), **theirs}


@pytest.fixture
def foreign(hub: Hub) -> dict[str, bytes]:
    """Somebody's repository whose folders are called as ours are."""
    files = {"README.md": b"theirs", "captions/a.txt": b"a", "figures/f.svg": b"f", "src/x.py": b"x"}
    hub.repos[REPO] = Repo()
    hub.repos[REPO].add({name: File.of(data) for name, data in files.items()})
    return files


GIVEN = "its manifest.json cannot be read: "


@pytest.mark.parametrize(("manifest", "why"), [
    (None, "has no manifest.json, so it is not a dataset of capgrade; to push would overwrite README.md and delete "
     "captions/a.txt, figures/f.svg; the repository is as it was (commit "),
    (b"{}", f"{GIVEN}not a manifest"),
    (b'{"kind": "captions", "files": {"README.md": {"bytes": 6}}}', "not the manifest of a published dataset"),
    (b"[" * 3000, GIVEN),
    (b" " * 20_000, f"{GIVEN}20000 bytes, and of a manifest at most 9999 are read"),
])  # fmt: skip
def test_a_repository_that_is_not_ours_stays_as_it_was(
    manifest: bytes | None, why: str, hub: Hub, foreign: dict[str, bytes], refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("capgrade.pipelines.publish.check.LARGEST_JSON", 9999)
    if manifest is not None:
        hub.change(REPO, MANIFEST, manifest)
        foreign |= {MANIFEST: manifest}
    refused(f"{re.escape(why)}.* -> check the name, or give --replace to do so")
    assert hub.files(REPO) == foreign and not any(hub.asked(route) for route in QUIET)


def test_replace_deletes_what_the_refusal_named(
    hub: Hub, folder: Path, foreign: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("publish", "--out", folder, "--push", REPO)
    assert "delete captions/a.txt, figures/f.svg" in refusal(*line) and hub.files(REPO) == foreign
    assert call(*line, "--replace") == 0 and "2 deleted" in capsys.readouterr().out
    assert uploaded(hub) == {**contents(folder), "src/x.py": foreign["src/x.py"]}
    assert printed(*line)["sent"] == []


STEPS = ["create", "info", "tree", "resolve", "refs", "validate", "preupload", "batch", "upload", "commit"]
FAULTS: list[tuple[str, dict[str, Any], str]] = [
    *((route, {"status": status}, rf"HTTP {status}\b.*(nothing was sent|the repository is as it was \(commit )")
      for route in STEPS for status in (401, 403, 500) if route != "create" or status == 500),
    *((route, {"status": status}, f"HTTP {status}") for route in ("upload", "commit")
      for status in (400, 404, 418, 429)),
    *((route, {"drop": True}, "broke the connection off .*as it was") for route in ("tree", "batch", "commit")),
    *((route, {"delay": 20}, "gave no answer within 0.5 s.*as it was.*run the same") for route in ("upload", "commit")),
    ("commit", {"status": 409}, r"HTTP 409\); the repository is as it was .* -> see what changed there"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "how", "said"), FAULTS, ids=str)
def test_a_failure_leaves_the_repository_as_it_was(
    route: str, how: dict, said: str, hub: Hub, folder: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, REPO)
    changed_folder(folder, **{"README.md": README + "more\n"})
    with monkeypatch.context() as patch:
        patch.setattr(client, "ANSWER", 0.5 if "delay" in how else client.ANSWER)
        hub.fail(route, **how)
        refused(said)
    hub.failures.clear()
    push(folder, REPO)
    assert uploaded(hub, "1.0.1") == contents(folder)


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_may_write_to_a_repository_and_make_none(status: int, hub: Hub, folder: Path, refused: Refused) -> None:
    hub.fail("create", status=status)
    refused(f"HTTP {status}.*; nothing was sent")
    hub.failures.clear()
    push(folder, REPO)
    hub.fail("create", status=status)
    assert push(changed_folder(folder), REPO).version == "1.0.1"


def test_an_upload_that_was_interrupted_goes_on(hub: Hub, folder: Path, refused: Refused) -> None:
    """What had arrived is not sent again."""
    late = hashlib.sha256(DATA[SECOND].encode()).hexdigest()
    hub.fail("upload", status=500, path=late)
    refused(r"HTTP 500\); the repository is as it was")
    assert len(hub.objects) == 2 and late not in hub.objects
    hub.failures.clear()
    hub.log.clear()
    push(folder, REPO)
    assert hub.asked("upload") == [late] and uploaded(hub, "1.0.0") == contents(folder)


def test_without_a_connection_or_a_token_nothing_is_sent(
    hub: Hub, folder: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    with monkeypatch.context() as patch:
        for address in ("hf-mirror.com", "http://[::1", "http://127.0.0.1:9"):
            patch.setattr(constants, "ENDPOINT", address)
            refused("cannot be reached .*nothing was sent -> check the network and HF_ENDPOINT")
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        refused("HF_HUB_OFFLINE is set; nothing was sent")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "none"))
    refused(r"wants a token, or has no such repository \(HTTP 401\); nothing was sent -> check the name, and log in")
    assert hub.repos == {}


@pytest.mark.parametrize("how", [{"drop": True}, {"status": 502}, {"delay": 20}])
def test_a_commit_whose_answer_is_lost_is_found(how: dict, hub: Hub, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(client, "ANSWER", 0.5 if "delay" in how else client.ANSWER)
    hub.fail("commit", after=True, times=1, **how)
    done = push(folder, REPO)
    assert done.commit == hub.repos[REPO].head == hub.repos[REPO].tags["1.0.0"]
    assert len(hub.repos[REPO].commits) == 2


def test_a_change_by_somebody_else_meanwhile_is_a_conflict(hub: Hub, folder: Path, monkeypatch) -> None:
    push(folder, REPO)
    changed_folder(folder)
    answer = hub.preupload

    def meanwhile(*given):  # the tree has been compared, the commit not been made
        hub.change(REPO, "notes.txt", b"theirs")
        return answer(*given)

    monkeypatch.setattr(hub, "preupload", meanwhile)
    with pytest.raises(InputError, match=r"changed meanwhile \(HTTP 412\); nothing of this folder was committed"):
        push(folder, REPO)
    there = hub.files(REPO)
    assert (there["notes.txt"], there[SECOND]) == (b"theirs", DATA[SECOND].encode())


@pytest.mark.parametrize(("route", "name"), [("preupload", SECOND), ("create", SECOND), ("create", "README.md")])
def test_what_is_left_out_or_changed_meanwhile_gets_no_tag(route, name, hub: Hub, folder: Path, monkeypatch) -> None:
    """By a .gitignore of the repository, or in the folder after it was checked."""
    answer = getattr(hub, route)

    def meanwhile(asked):
        found = answer(asked)
        if route == "create":
            (folder / name).write_text((folder / name).read_text().swapcase())
        else:
            found["files"] = [{**file, "shouldIgnore": file["path"] == name} for file in found["files"]]
        return found

    with monkeypatch.context() as patch:
        patch.setattr(hub, route, meanwhile)
        with pytest.raises(InputError, match=f"lacks {name} as it was checked, so it got no tag -> "):
            push(folder, REPO)
    assert hub.repos[REPO].tags == {}
    push(write_folder(folder), REPO)
    assert uploaded(hub, "1.0.0") == contents(folder)


def test_a_tag_that_fails_is_set_by_the_next_push(hub: Hub, folder: Path) -> None:
    hub.fail("tag", status=500)
    with pytest.raises(InputError, match="the content is there whole .* only its tag is missing -> run the same") as e:
        push(folder, REPO)
    assert TOKEN not in "".join(traceback.format_exception(e.value))
    hub.failures.clear()
    assert push(folder, REPO).sent == ()
    assert uploaded(hub, "1.0.0") == contents(folder) and len(hub.asked("commit")) == 1


@pytest.mark.parametrize(("earlier", "version", "said"), [
    ("gold", "1.0.1", "holds the dataset 'gold', not 'tiny'; to push would overwrite README.md, "),
    ("tiny", "1.0.0", "version 1.0.0 is already published with other content .* -> publish this"),
])  # fmt: skip
def test_another_dataset_and_another_content_of_a_version_are_refused(
    earlier: str, version: str, said: str, hub: Hub, folder: Path, refused: Refused
) -> None:
    push(write_folder(folder, dataset=earlier, **{"README.md": README + earlier}), REPO)
    hub.log.clear()
    changed_folder(folder, version)
    refused(said)
    assert not any(hub.asked(route) for route in QUIET)


def test_a_damaged_folder_is_not_uploaded(hub: Hub, folder: Path, refused: Refused) -> None:
    (folder / SECOND).write_text("PAR1 second sharp PAR1")
    refused(f"{SECOND}: not uploaded: altered")
    assert hub.log == []
