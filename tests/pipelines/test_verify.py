"""`capgrade verify`: whole trees pass, and every kind of damage is one line that names its file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from capgrade.measures.frequencies import Frequencies
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.pipelines.verify import verify
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, parse_manifest, write_json, write_manifest, write_text
from capgrade.schemas.output import LOCK, only_run
from tests.conftest import (
    agreement,
    call,
    caption_table,
    edit_manifest,
    random_sets,
    write_captions_folder,
)

SAMPLED = ShardsParams(measures=("rouge_l",), top=3, uniform=3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions, shards and a published dataset, as their stages leave them."""
    root = tmp_path_factory.mktemp("verify")
    write_captions_folder(root / "c", [caption_table(random_sets(12, seed=4))])
    shards(root / "c", root / "s", SAMPLED, MeasuresParams())
    publish(root / "c", [root / "s"], root / "d", PublishParams(license="mit"))
    return root


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "tree")
    return tmp_path / "tree"


def test_a_whole_tree(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("verify", str(tree)) == 0
    said = capsys.readouterr()
    assert [line.split(": ")[2].split(",")[0] for line in said.out.splitlines()] == [
        "captions", "publish", "shards",
    ]  # fmt: skip
    assert said.err == ""
    assert call("verify", str(tree), "--json") == 0
    assert json.loads(capsys.readouterr().out)["whole"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def stopped(folder: Path, file: str) -> None:
    write_text(folder / file, "")
    write_json(folder / "run.json", {"made_of": {}})


SHARD = "s/shard-00000-of-00001.arrow"
# What is done -> to which file, how, and what is said of which file.
DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a flipped bit": (SHARD, flip, "its SHA-256 is not the manifest's"),
    "a shard gone": (SHARD, Path.unlink, "missing, though the manifest lists it"),
    "a cut parquet": (
        "d/captions/test-00000-of-00001.parquet",
        cut,
        "bytes where the manifest says",
    ),
    "an edited manifest": (
        "s/manifest.json",
        lambda p: p.write_text(p.read_text().replace('"seed": 0', '"seed": 1')),
        "does not match its own SHA-256",
    ),
    "a cut manifest": ("s/manifest.json", cut, "not a manifest"),
    "an old shard": ("s/shard-00001-of-00002.arrow", Path.touch, "in no manifest.json"),
    "a manifest gone": ("s/manifest.json", Path.unlink, "in no manifest.json"),
    "a lock left": (
        "y.unfinished",
        lambda p: (p.mkdir(), (p / LOCK).touch()),
        "left by a run that was killed",
    ),
    "an unfinished run": (
        "x.unfinished/shards-0123456789abcdef",
        lambda p: stopped(p, "parts/0.json"),
        "run of `capgrade shards`, 1 finished parts",
    ),
    "an unfinished training run": (
        "t.unfinished/train-0123456789abcdef",
        lambda p: stopped(p, "state.pt"),
        "run of `capgrade train`",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_one_line_and_the_rest_is_usable(
    kind: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, damage, message = DAMAGE[kind]
    damage(tree / name)
    assert call("verify", str(tree)) == 2
    said = capsys.readouterr()
    assert message in said.err and " -> " in said.err
    assert said.err.count("\n") == 1, said.err
    assert str(tree / name.split("/")[0].split(".")[0]) in said.err
    usable = {line.split(": ")[1] for line in said.out.splitlines()}
    assert usable == {str(tree / part) for part in "cds" if part != name[0]}
    assert call("verify", str(tree), "--json") == 2
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_manifests_without_a_checksum_are_read(tree: Path) -> None:
    path = tree / "s" / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    write_json(path, manifest | {"format": 1})
    assert parse_manifest(path)["files"] == manifest["files"]
    assert not verify(tree / "s").problems


@pytest.mark.parametrize(
    "name", ["../c/captions.arrow", "/etc/passwd", "a/../../x", "", ".", "a\\..\\b", "a\nb"]
)
def test_a_manifest_may_not_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    write_manifest(tmp_path, "shards", params={}, inputs={}, rows={"file": 0})
    edit_manifest(tmp_path, files={name: {"bytes": 0, "rows": 0, "sha256": ""}})
    with pytest.raises(InputError, match="not a file of its folder"):
        parse_manifest(tmp_path / MANIFEST)


def test_embeddings_of_another_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    write_json(tmp_path / "index" / "items.json", [])
    write_manifest(
        tmp_path / "index",
        "embed",
        params={},
        inputs={"model": "other"},
        rows={"items.json": 1},
    )
    assert "made from another model" in verify(tmp_path).problems[0].problem


def test_a_run_that_goes_on_is_said_to(tree: Path) -> None:
    with only_run(tree / "s"):
        assert "a run is writing here (process " in verify(tree).problems[0].problem


def test_tables_that_need_no_manifest(tree: Path) -> None:
    """Judged pairs and document frequencies beside folders are checked, other people's tables are
    let alone."""
    captions = read_captions(tree / "c")
    Frequencies.of_captions(captions).write(tree / "df.arrow")
    (tree / "people.csv").write_text("image_id,caption_id,score\ni0,i0#0,5\ni1,i0#0,1\n")
    agreement(tree / "c", tree / "people.csv", ("rouge_l",), MeasuresParams(), out=tree / "agree")
    (tree / "agree" / "judged.arrow").rename(tree / "judged.arrow")
    shutil.rmtree(tree / "agree")
    pq.write_table(captions.table.replace_schema_metadata(), tree / "theirs.parquet")
    report = verify(tree)
    assert not report.problems
    assert {
        Path(found.folder).name: found.kind
        for found in report.usable
        if found.folder.endswith(".arrow")
    } == {
        "df.arrow": "document_frequencies",
        "judged.arrow": "judged",
    }
    cut(tree / "df.arrow")
    (problem,) = verify(tree).problems
    assert (
        problem.file == tree / "df.arrow" and problem.remedy == "run `capgrade frequencies` again"
    )


def test_nothing_to_verify(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, message in (
        (tmp_path, "nothing that capgrade wrote"), (tmp_path / "x", "no such folder"),
        (tmp_path / "file", "a file where a folder is needed"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            verify(folder)


def test_a_folder_behind_a_link_is_verified_once(tree: Path, tmp_path: Path) -> None:
    """A stage's folder may lie on another disk; a link to a folder above has no end."""
    shutil.move(tree / "s", tmp_path / "disk")
    (tree / "s").symlink_to(tmp_path / "disk")
    (tree / "again").symlink_to(tree / "c")
    (tree / "c" / "up").symlink_to(tree)
    report = verify(tree)
    assert not report.problems and [Path(one.folder).name for one in report.usable] == [
        "c",
        "d",
        "s",
    ]
    flip(next((tmp_path / "disk").glob("*.arrow")))
    (problem,) = verify(tree).problems
    assert Path(str(problem.file)).parent == tree / "s"
