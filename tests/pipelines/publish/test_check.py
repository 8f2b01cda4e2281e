"""`publish check` proves that a folder or a repository is what was made: one byte, a missing or an extra
file is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from capgrade.pipelines.publish.check import AGAIN, check
from capgrade.pipelines.publish.push import push
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, write_json
from capgrade.schemas.lines import read_json

from .conftest import DATA, REPO, write_folder
from .stand_in import Hub

SHARD = "relevance/train-00001-of-00002.parquet"


def problems(target: str, made: Path | None = None) -> list[str]:
    return [str(problem) for problem in check(target, made).problems]


def test_missing_cut_and_extra_files_of_a_folder(folder: Path) -> None:
    found = check(str(folder), folder)
    assert (found.problems, found.version, found.files) == ((), "1.0.0", len(DATA) + 1)
    (folder / SHARD).unlink()
    (folder / "README.md").write_text("short")
    (folder / "relevance" / "train-00002-of-00002.parquet").write_text("PAR1")
    (folder / "notes.txt").write_text("mine")
    cut, missing, extra = problems(str(folder))
    assert (
        cut == f"{folder}/README.md: 5 bytes where the manifest says {len(DATA['README.md'])} ->"
        f" {AGAIN}"
    )
    assert missing.startswith(f"{folder}/{SHARD}: missing, though the manifest lists it")
    assert extra.startswith(
        f"{folder}/relevance/train-00002-of-00002.parquet: not in manifest.json"
    )


def test_a_repository_as_it_was_made(hub: Hub, folder: Path) -> None:
    done = push(folder, REPO)
    hub.log.clear()
    for target in (REPO, f"{REPO}@1.0.0", f"{REPO}@{done.commit}"):
        found = check(target, folder)
        assert (found.problems, found.name) == ((), f"{REPO}@{done.commit[:7]}")
    assert set(hub.asked("resolve")) == {*DATA, MANIFEST}


def test_one_byte_of_any_file_of_a_repository(hub: Hub, folder: Path) -> None:
    """Rotten in the store: sizes and ids are as they were, the bytes are not."""
    push(folder, REPO)
    commit = hub.repos[REPO].commits[hub.repos[REPO].head]
    for name, file in dict(commit).items():
        rotten = bytearray(file.data)
        rotten[len(rotten) // 2] ^= 1
        commit[name] = replace(file, data=bytes(rotten))
        if name == MANIFEST:
            with pytest.raises(InputError, match="manifest.json"):
                check(REPO)
        elif name != ".gitattributes":
            (line,) = problems(REPO)
            assert f"/{name}: altered: its SHA-256" in line
        commit[name] = file
    assert problems(REPO) == []


def test_what_somebody_else_changed_in_a_repository(hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    hub.change(REPO, "README.md", b"edited on the site")
    hub.change(REPO, SHARD, None)
    hub.change(REPO, "relevance/train-extra.parquet", b"PAR1")
    hub.change(REPO, "LICENSE", b"text")
    lines = problems(REPO)
    assert [line.split("/", 2)[2].split(" ")[0] for line in lines[:3]] == [
        "README.md:", f"{SHARD}:", "relevance/train-extra.parquet:",
    ]  # fmt: skip
    assert len(lines) == 3
    assert problems(f"{REPO}@1.0.0") == []
    hub.repos[REPO].tags.clear()
    assert (
        problems(REPO)[3]
        == f"{hub.address}/datasets/{REPO}: has no tag 1.0.0, the version of its content -> "
        "push it again: capgrade publish push"
    )


def test_a_tag_that_names_another_content(hub: Hub, folder: Path) -> None:
    """As when somebody has set it to another commit."""
    push(folder, REPO)
    earlier = hub.repos[REPO].head
    push(write_folder(folder, "2", **{SHARD: "PAR1 another shard PAR1"}), REPO)
    hub.repos[REPO].tags["2"] = earlier
    (line,) = problems(REPO)
    assert line.endswith("tag 2 has another manifest.json -> give it a version of its own")


def test_what_is_neither_folder_nor_repository(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    for target in ("nowhere", "data/labls", "./data/labls", "data/more/labls"):
        with pytest.raises(
            InputError, match="no such folder, nor a dataset USER/NAME -> check the path"
        ):
            check(target)
    assert hub.log == []
    with pytest.raises(InputError, match="404 .*Repository Not Found .*log in with"):
        check("nobody/nothing")
    with pytest.raises(InputError, match="not a finished publish folder"):
        check(str(tmp_path))


def test_a_manifest_made_to_fit_other_bytes_is_found_with_the_folder(
    hub: Hub, folder: Path, tmp_path: Path
) -> None:
    """Whoever can rewrite the manifest can make a copy agree with itself; the folder that was made
    says otherwise."""
    forged = write_folder(tmp_path / "forged", **{SHARD: "PAR1 another shard PAR1"})
    push(forged, REPO)
    for target in (REPO, str(forged)):
        assert problems(target) == []
        assert any(f"not the {SHARD} of {folder}" in line for line in problems(target, folder))
    manifest = read_json(folder / MANIFEST)
    write_json(folder / MANIFEST, {**manifest, "sha256": "0" * 64})
    with pytest.raises(InputError, match="does not match its own SHA-256"):
        check(REPO, folder)
