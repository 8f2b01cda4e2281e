"""Upload to a stand-in for the hub: one commit with what changed, resumed and tagged."""

import hashlib
import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

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
    return {
        name: (folder / name).read_bytes()
        for name in (*read_manifest(folder, "publish")["files"], MANIFEST)
    }


def uploaded(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    return {
        name: data for name, data in hub.files(REPO, revision).items() if name != ".gitattributes"
    }


Refused = Callable[[str], None]


@pytest.fixture
def refused(
    hub: Hub, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Refused:
    """Push, and be refused: in one line with a remedy, which does not tell the token; the
    repository stays as it was."""

    def check(said: str) -> None:
        before = {name: (repo.head, dict(repo.tags)) for name, repo in hub.repos.items()}
        with pytest.raises(InputError, match=said) as caught:
            push(folder, REPO)
        assert " -> " in str(caught.value) and "\n" not in str(caught.value)
        told = (
            "".join(traceback.format_exception(caught.value))
            + caplog.text
            + "".join(capfd.readouterr())
        )
        assert TOKEN not in told
        assert {name: (hub.repos[name].head, hub.repos[name].tags) for name in before} == before

    return check


def test_a_folder_is_there_whole_in_one_commit_and_tagged(hub: Hub, folder: Path) -> None:
    done = push(folder, REPO)
    assert uploaded(hub) == contents(folder) == uploaded(hub, "1.0.0")
    assert len(hub.asked("commit")) == 1
    assert (done.commit, done.version) == (hub.repos[REPO].head, "1.0.0")
    assert (
        str(done) == f"6 file(s) sent, 0 deleted: {hub.address}/datasets/{REPO} at 1.0.0 (commit"
        f" {done.commit[:7]})"
    )
    push(folder, f"{REPO}-shown", public=True)
    push(folder, REPO, public=True)
    assert not hub.repos[f"{REPO}-shown"].private
    assert hub.repos[REPO].private, "a new one is private, and one that is there stays as it is"


QUIET = ("upload", "commit", "tag")


def test_only_what_changed_is_sent_and_what_is_gone_is_deleted(hub: Hub, folder: Path) -> None:
    """Other people's files stay, also in a folder of the dataset; `publish check` tells of them."""
    first = push(folder, REPO)
    hub.log.clear()
    again = push(folder, REPO)
    assert (again.commit, again.sent, again.deleted) == (first.commit, (), ())
    assert not any(hub.asked(route) for route in QUIET)
    changed_folder(folder)
    done = push(folder, REPO)
    assert done.sent == (MANIFEST, SECOND)
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


def test_a_file_that_is_called_as_a_pattern_takes_no_other_file_along(
    hub: Hub, folder: Path
) -> None:
    """Deleted and sent are the files of these names alone."""
    push(write_folder(folder, "1", **{"captions/*": "ours"}), REPO)
    hub.change(REPO, "captions/notes.txt", b"theirs")
    (folder / "captions/*").unlink()
    write_folder(folder, "2", **{"captions/*": None})
    (folder / "notes.txt").write_text("not of the dataset")
    done = push(folder, REPO)
    assert done.deleted == ("captions/*",)
    assert uploaded(hub) == {**contents(folder), "captions/notes.txt": b"theirs"}


@pytest.fixture
def foreign(hub: Hub) -> dict[str, bytes]:
    """Somebody's repository whose folders are called as ours are."""
    files = {
        "README.md": b"theirs",
        "captions/a.txt": b"a",
        "figures/f.svg": b"f",
        "src/x.py": b"x",
    }
    hub.repos[REPO] = Repo()
    hub.repos[REPO].add({name: File.of(data) for name, data in files.items()})
    return files


GIVEN = "its manifest.json cannot be read: "


@pytest.mark.parametrize(("manifest", "why"), [
    (None, "has no manifest.json, so it is not a dataset of capgrade; to push would overwrite README.md and delete "
     "captions/a.txt, figures/f.svg"),
    (b"{}", f"{GIVEN}not a manifest"),
    (b'{"kind": "captions", "files": {"README.md": {"bytes": 6}}}', "not the manifest of a published dataset"),
    (b"[" * 3000, GIVEN),
])  # fmt: skip
def test_a_repository_that_is_not_ours_stays_as_it_was(
    manifest: bytes | None, why: str, hub: Hub, foreign: dict[str, bytes], refused: Refused
) -> None:
    if manifest is not None:
        hub.change(REPO, MANIFEST, manifest)
        foreign |= {MANIFEST: manifest}
    refused(f"{re.escape(why)}.* -> check the name, or give --replace to do so")
    assert hub.files(REPO) == foreign and not any(hub.asked(route) for route in QUIET)


def test_replace_deletes_what_the_refusal_named(
    hub: Hub, folder: Path, foreign: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("publish", "push", folder, REPO)
    assert "delete captions/a.txt, figures/f.svg" in refusal(*line) and hub.files(REPO) == foreign
    assert call(*line, "--replace") == 0 and "2 deleted" in capsys.readouterr().out
    assert uploaded(hub) == {**contents(folder), "src/x.py": foreign["src/x.py"]}
    assert printed(*line)["sent"] == []


FAULTS = [
    ("create", 500, "500 .*run the same command again"),
    ("info", 404, "404 .*log in with"),
    ("upload", 400, "Error while uploading .*run the same command again"),
    ("commit", 403, "403 Forbidden: made to fail.*log in with"),
    ("commit", 409, "409 .*run the same command again"),
]


@pytest.mark.parametrize(("route", "status", "said"), FAULTS)
def test_a_failure_is_one_line_and_the_next_push_goes_on(
    route: str, status: int, said: str, hub: Hub, folder: Path, refused: Refused
) -> None:
    push(folder, REPO)
    changed_folder(folder, **{"README.md": README + "more\n"})
    hub.fail(route, status)
    refused(f"{hub.address}/datasets/{REPO}: the hub: .*{said}")
    hub.failures.clear()
    push(folder, REPO)
    assert uploaded(hub, "1.0.1") == contents(folder)


def test_an_upload_that_was_interrupted_goes_on(hub: Hub, folder: Path, refused: Refused) -> None:
    """What had arrived is not sent again."""
    late = hashlib.sha256(DATA[SECOND].encode()).hexdigest()
    hub.fail("upload", 500, late)
    refused("Error while uploading .*files that have arrived are not sent again")
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
            refused("the hub: .*check the network and HF_ENDPOINT")
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        refused("offline.*unset HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "none"))
    refused("401 .*check the name, and log in")
    assert hub.repos == {}


def test_a_change_by_somebody_else_meanwhile_is_a_conflict(
    hub: Hub, folder: Path, monkeypatch
) -> None:
    push(folder, REPO)
    changed_folder(folder)
    answer = hub.preupload

    def meanwhile(*given):  # the tree has been compared, the commit not been made
        hub.change(REPO, "notes.txt", b"theirs")
        return answer(*given)

    monkeypatch.setattr(hub, "preupload", meanwhile)
    with pytest.raises(InputError, match="412 .*A commit has happened since"):
        push(folder, REPO)
    there = hub.files(REPO)
    assert (there["notes.txt"], there[SECOND]) == (b"theirs", DATA[SECOND].encode())


def test_a_tag_that_fails_is_set_by_the_next_push(hub: Hub, folder: Path, refused: Refused) -> None:
    hub.fail("tag", 500)
    refused("500 .*run the same command again")
    hub.failures.clear()
    assert push(folder, REPO).sent == ()
    assert uploaded(hub, "1.0.0") == contents(folder) and len(hub.asked("commit")) == 1


@pytest.mark.parametrize(("earlier", "version", "said"), [
    ("gold", "1.0.1", "holds the dataset 'gold', not 'tiny'; to push would overwrite README.md, "),
    ("tiny", "1.0.0", "version 1.0.0 is already published with other content -> publish this"),
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
