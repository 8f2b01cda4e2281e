"""Upload to a stand-in for the hub: one commit with what changed, whole or not at all, resumed and tagged."""

from __future__ import annotations

import hashlib
import re
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capgrade.labels import hub as client
from capgrade.pipelines.cli import app
from capgrade.pipelines.publish.push import push
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST

from .conftest import DATA, README, write_folder
from .stand_in import TOKEN, Asked, Hub, RefusedError, Repo

REPO = "someone/labels"
SECOND = "relevance/train-00001-of-00002.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "dataset")


def changed_folder(folder: Path, version: str = "1.0.1", **more: str) -> Path:
    return write_folder(folder, version, **{SECOND: "PAR1 another shard PAR1", **more})


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def uploaded(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    return {name: data for name, data in hub.files(REPO, revision).items() if name != ".gitattributes"}


def test_a_folder_is_there_whole_in_one_commit_and_tagged(hub: Hub, folder: Path) -> None:
    done = push(folder, REPO)
    assert uploaded(hub) == contents(folder) == uploaded(hub, "1.0.0")
    assert len(hub.asked("commit")) == 1
    assert (done.commit, done.version) == (hub.repos[REPO].head, "1.0.0")
    assert str(done) == f"6 file(s) sent, 0 deleted: {hub.address}/datasets/{REPO} at 1.0.0 (commit {done.commit[:7]})"


def test_a_new_repository_is_private_unless_it_is_to_be_public(hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    push(folder, f"{REPO}-shown", public=True)
    assert hub.repos[REPO].private and not hub.repos[f"{REPO}-shown"].private
    push(folder, REPO, public=True)
    assert hub.repos[REPO].private, "one that is there stays as it is"


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
    hub.repos[REPO].add({name: hub.regular(data) for name, data in files.items()})
    return files


def test_a_repository_that_is_not_ours_is_refused_and_stays_as_it_was(
    hub: Hub, folder: Path, foreign: dict[str, bytes]
) -> None:
    before = hub.repos[REPO].head
    with pytest.raises(InputError) as caught:
        push(folder, REPO)
    assert str(caught.value) == (
        f"{hub.address}/datasets/{REPO}: has no manifest.json, so it is not a dataset of capgrade; to push would "
        f"overwrite README.md and delete captions/a.txt, figures/f.svg; the repository is as it was "
        f"(commit {before[:7]}) -> check the name, or give --replace to do so"
    )
    assert (hub.repos[REPO].head, hub.files(REPO)) == (before, foreign)
    assert not any(hub.asked(route) for route in QUIET)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (b"{}", "its manifest.json cannot be read: not a manifest"),
        (b'{"kind": "captions", "files": {"README.md": {"bytes": 6}}}', "not the manifest of a published dataset"),
        (b"[" * 3000, "its manifest.json cannot be read: "),
        (b" " * 20_000, "its manifest.json cannot be read: 20000 bytes, and of a manifest at most 9999 are read"),
    ],
)
def test_a_manifest_that_is_not_ours(
    manifest: bytes, why: str, hub: Hub, folder: Path, foreign: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capgrade.pipelines.publish.check.MOST_BYTES", 9999)
    hub.change(REPO, MANIFEST, manifest)
    with pytest.raises(InputError, match=f"{re.escape(why)}.*overwrite README.md, manifest.json and delete captions/a"):
        push(folder, REPO)
    assert hub.files(REPO) == {**foreign, MANIFEST: manifest}


def test_another_dataset_of_ours_is_not_ours_to_replace(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(write_folder(tmp_path / "other", "0.9", "gold"), REPO)
    before = hub.files(REPO)
    with pytest.raises(InputError, match="holds the dataset 'gold', not 'tiny'; to push would overwrite manifest.json"):
        push(folder, REPO)
    assert hub.files(REPO) == before


def test_replace_deletes_what_the_refusal_named(hub: Hub, folder: Path, foreign: dict[str, bytes]) -> None:
    refused = CliRunner().invoke(app, ["publish", "--out", str(folder), "--push", REPO])
    assert isinstance(refused.exception, InputError) and hub.files(REPO) == foreign
    done = CliRunner().invoke(app, ["publish", "--out", str(folder), "--push", REPO, "--replace"])
    assert done.exit_code == 0 and "2 deleted" in done.output
    assert uploaded(hub) == {**contents(folder), "src/x.py": foreign["src/x.py"]}


STEPS = ["create", "info", "tree", "resolve", "refs", "validate", "preupload", "batch", "upload", "commit"]


@pytest.mark.parametrize("route", STEPS)
@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_failure_leaves_the_repository_as_it_was(route: str, status: int, hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    before, tags = hub.repos[REPO].head, dict(hub.repos[REPO].tags)
    changed_folder(folder, **{"README.md": README + "more\n"})
    hub.fail(route, status=status)
    if route == "create" and status != 500:  # a token may write to a repository and make none
        assert push(folder, REPO).version == "1.0.1"
        return
    with pytest.raises(InputError) as caught:
        push(folder, REPO)
    assert (hub.repos[REPO].head, hub.repos[REPO].tags) == (before, tags)
    assert f"HTTP {status}" in str(caught.value)
    assert any(words in str(caught.value) for words in ("nothing was sent", f"as it was (commit {before[:7]})"))
    assert " -> " in str(caught.value)
    assert "\n" not in str(caught.value)
    hub.failures.clear()
    push(folder, REPO)
    assert uploaded(hub, "1.0.1") == contents(folder)


def test_an_upload_that_was_interrupted_goes_on(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had arrived is not sent again."""
    answer, late = hub.upload, hashlib.sha256(DATA[SECOND].encode()).hexdigest()

    def broken(asked: Asked) -> object:
        if asked.path == late:
            raise RefusedError(500, "made to fail")
        return answer(asked)

    with monkeypatch.context() as patch:
        patch.setattr(hub, "upload", broken)
        with pytest.raises(InputError, match=r"HTTP 500\); the repository is as it was"):
            push(folder, REPO)
    arrived = set(hub.objects)
    assert len(arrived) == 2 and late not in arrived
    hub.log.clear()
    push(folder, REPO)
    assert hub.asked("upload") == [late] and uploaded(hub, "1.0.0") == contents(folder)


@pytest.mark.parametrize(("route", "how", "said"), [
    *((route, {"drop": True}, "broke the connection off .*as it was") for route in ("tree", "batch", "commit")),
    *((route, {"delay": 20}, "gave no answer within 1 s.*as it was.*run the same") for route in ("upload", "commit")),
    ("commit", {"status": 409}, r"HTTP 409\); the repository is as it was .* -> see what changed there"),
])  # fmt: skip
def test_a_connection_that_fails(
    route: str, how: dict, said: str, hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, REPO)
    before = hub.repos[REPO].head
    changed_folder(folder)
    monkeypatch.setattr(client, "ANSWER", 1.0)
    hub.fail(route, **how)
    with pytest.raises(InputError, match=said):
        push(folder, REPO)
    assert hub.repos[REPO].head == before


def test_no_connection(folder: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="cannot be reached .*nothing was sent -> check the network and HF_ENDPOINT"):
        push(folder, REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set; nothing was sent"):
        push(folder, REPO)


@pytest.mark.parametrize("how", [{"drop": True}, {"status": 502}, {"delay": 20}])
def test_a_commit_whose_answer_is_lost_is_found(how: dict, hub: Hub, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(client, "ANSWER", 1.0)
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
    assert hub.files(REPO)["notes.txt"] == b"theirs"
    assert hub.files(REPO)[SECOND] == DATA[SECOND].encode()
    monkeypatch.undo()


def test_a_version_keeps_its_content(hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    hub.log.clear()
    changed_folder(folder, "1.0.0")
    with pytest.raises(InputError, match="version 1.0.0 is already published with other content .* -> give this"):
        push(folder, REPO)
    assert not hub.asked("upload")


def test_a_tag_that_fails_is_set_by_the_next_push(hub: Hub, folder: Path) -> None:
    hub.fail("tag", status=500)
    with pytest.raises(InputError, match="the content is there whole .* only its tag is missing -> run the same"):
        push(folder, REPO)
    assert uploaded(hub) == contents(folder)
    hub.failures.clear()
    hub.log.clear()
    assert push(folder, REPO).sent == ()
    assert hub.repos[REPO].tags == {"1.0.0": hub.repos[REPO].head}
    assert not hub.asked("commit")


def test_without_a_token(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(folder / "none"))
    with pytest.raises(InputError, match=r"wants a token \(HTTP 401\); nothing was sent -> log in"):
        push(folder, REPO)
    assert hub.repos == {}


def test_a_damaged_folder_is_not_uploaded(hub: Hub, folder: Path) -> None:
    (folder / SECOND).write_text("PAR1 second sharp PAR1")
    with pytest.raises(InputError, match=f"not uploaded: .*{SECOND}: altered"):
        push(folder, REPO)
    assert hub.log == []


@pytest.mark.parametrize("name", ["not a name", "a/b/c", "someone/-x"])
def test_a_name_that_no_repository_can_have(name: str, folder: Path) -> None:
    with pytest.raises(InputError, match="is not a repository -> write USER/NAME"):
        push(folder, name)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 500])
def test_the_token_is_told_to_nobody(status: int, hub: Hub, folder: Path, caplog, capfd) -> None:
    """The stand-in repeats the token in its errors; no message, traceback or log line has it, nor upload signatures."""
    for route in ("create", "upload", "commit", "tag"):
        hub.fail(route, status=status)
        with pytest.raises(InputError) as caught:
            push(folder, f"{REPO}-{route}")
        hub.failures.clear()
        said = "".join(traceback.format_exception(caught.value)) + caplog.text + "".join(capfd.readouterr())
        assert TOKEN not in said
        assert "signature=" not in said
