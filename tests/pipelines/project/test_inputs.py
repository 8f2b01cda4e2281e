"""What the stages of a pipeline are made of, as DVC compares it."""

import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capgrade.apps.cli.report import report
from capgrade.params import Params, load_params
from capgrade.pipelines.project import inputs
from capgrade.pipelines.project.inputs import write_inputs
from capgrade.schemas.block import ParamsBlock
from capgrade.schemas.contents import content_digest, walk_files
from capgrade.schemas.errors import InputError


def params(*sets: str) -> Params:
    return load_params(None, sets)


def look(folder: Path, *sets: str) -> dict[str, Any]:
    return write_inputs(params(*sets), folder / "data" / "inputs")


def tar(path: Path, *samples: str) -> None:
    with tarfile.open(path, "w") as file:
        for name in samples:
            member = tarfile.TarInfo(name)
            member.size = 3
            file.addfile(member, io.BytesIO(b"abc"))


def a_picture(folder: Path) -> tuple[str, Callable[[], object]]:
    (folder / "pictures" / "a").mkdir(parents=True)
    file = folder / "pictures" / "a" / "1.jpg"
    file.write_bytes(b"12345")
    return f"regions.images={folder}/pictures", lambda: file.write_bytes(b"54321")


def a_tar_of_a_pattern(folder: Path) -> tuple[str, Callable[[], object]]:
    """Of the same size: a tar is filled up to 10,240 bytes."""
    for k in range(3):
        tar(folder / f"{k:05d}.tar", "1.jpg")
    given = f"captions.source=webdataset;captions.input='{folder}/{{00000..00002}}.tar'"
    return given, lambda: tar(folder / "00002.tar", "1.jpg", "2.jpg")


def a_folder_of_tars(folder: Path) -> tuple[str, Callable[[], object]]:
    (folder / "tars").mkdir()
    tar(folder / "tars" / "0.tar", "1.jpg")
    given = f"captions.source=webdataset;captions.input={folder}/tars"
    return given, lambda: tar(folder / "tars" / "0.tar", "1.jpg", "2.jpg")


def pictures_in_a_list(folder: Path) -> tuple[str, Callable[[], object]]:
    for k in (1, 2):
        (folder / f"{k}.jpg").write_bytes(b"\xff\xd8\xff" + bytes([k]))
    listed = folder / "list.txt"
    listed.write_text("a\t1.jpg\nb\t2.jpg\n")
    return f"regions.images={listed}", lambda: listed.write_text("a\t2.jpg\nb\t1.jpg\n")


def a_picture_that_a_list_names(folder: Path) -> tuple[str, Callable[[], object]]:
    given, _ = pictures_in_a_list(folder)
    return given, lambda: (folder / "2.jpg").write_bytes(b"\xff\xd8\xff3")


def a_picture_that_a_row_names(folder: Path) -> tuple[str, Callable[[], object]]:
    (folder / "1.jpg").write_bytes(b"123")
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    image = pa.array([{"bytes": None, "path": "1.jpg"}], kind)
    pq.write_table(pa.table({"image": image}), folder / "rows.parquet")
    return f"regions.images={folder}/rows.parquet", lambda: (folder / "1.jpg").write_bytes(b"321")


def file_of(*sets: str) -> Callable[[Path], tuple[str, Callable[[], object]]]:
    def make(folder: Path) -> tuple[str, Callable[[], object]]:
        (folder / "place").mkdir()
        file = folder / "place" / "file_ims.npy"
        file.write_bytes(b"123")
        given = ";".join(sets).format(file=file, folder=folder / "place")
        return given, lambda: file.write_bytes(b"321")

    return make


FEATURES = "regions={{format: npy, features: {file}, ids: {folder}/ids.txt}}"


def ids_of_features(folder: Path) -> tuple[str, Callable[[], object]]:
    (folder / "ids.txt").write_text("1")
    given = f"regions={{format: npy, features: x.npy, ids: {folder}/ids.txt}}"
    return given, lambda: (folder / "ids.txt").write_text("2")


def ids_beside_features(folder: Path) -> tuple[str, Callable[[], object]]:
    (folder / "dev_ids.txt").write_text("1")
    given = f"regions={{format: scan, features: {folder}/dev_ims.npy}}"
    return given, lambda: (folder / "dev_ids.txt").write_text("2")


CIDER = "relevance.measures=[cider]"
PICTURES = "relevance.measures=[image_text]"
CHANGES = [
    (a_picture, {"regions", "align", "report"}),
    (a_tar_of_a_pattern, {"captions"}),
    (a_folder_of_tars, {"captions"}),
    (pictures_in_a_list, {"regions", "align", "report"}),
    (a_picture_that_a_list_names, {"regions", "align", "report"}),
    (a_picture_that_a_row_names, {"regions", "align", "report"}),
    (file_of("captions.source=csv", "captions.input={file}"), {"captions"}),
    (file_of("captions.source=flickr", "captions.input=x", "captions.split_lists={{val: {file}}}"),
     {"captions"}),
    (file_of(FEATURES), {"regions"}),
    (ids_of_features, {"regions"}),
    (ids_beside_features, {"regions"}),
    *[(file_of(f"regions.{key}={{file}}"), {"regions"}) for key in ("weights", "config")],
    *[(file_of(f"regions.{key}={{folder}}"), {"regions"}) for key in ("model", "boxes_of")],
    (file_of("agree.judgements={file}"), {"agree"}),
    (file_of("evaluate.instances={file}"), {"evaluate"}),
    (file_of("embed.coarse={file}"), {"embed"}),
    (file_of("evaluate.judgements=[{file}]"), {"evaluate"}),
    (file_of("measures.cider.document_frequency={folder}#train", CIDER), {"relevance", "agree", "shards"}),
    (file_of("measures.sbert.model={folder}"), {"relevance", "agree", "shards"}),
    (file_of("measures.imported.mine={file}", "relevance.measures=[mine]"), {"relevance", "agree"}),
    (file_of("measures.image_text.images={folder}", PICTURES), {"relevance", "agree"}),
    (file_of("train.init={folder}", "runs=[triplet]"), {"runs/triplet"}),
    (file_of("train.model.options.words={file}", "runs=[triplet]"), {"runs/triplet"}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "stages"), CHANGES)
def test_a_change_of_content_is_seen_and_a_move_is_not(
    make: Callable[[Path], tuple[str, Callable[[], object]]], stages: set[str], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    given, change = make(place)

    def looked(text: str) -> dict[str, Any]:
        loaded = params(*text.split(";"))
        return write_inputs(loaded, tmp_path / "data" / "inputs", lambda _: loaded.train)

    before = looked(given)
    size = sum(path.stat().st_size for path in walk_files(place))
    place.rename(tmp_path / "moved")
    moved = given.replace(str(place), str(tmp_path / "moved"))
    assert looked(moved) == before and str(tmp_path) not in str(before)
    (tmp_path / "moved").rename(place)
    change()
    assert sum(path.stat().st_size for path in walk_files(place)) == size
    after = looked(given)
    assert {name for name in after if after[name] != before[name]} == stages


@pytest.mark.parametrize("changed", [
    "regions.workers=7", "regions.device=cuda", "relevance.block_images=3", "relevance.device=cuda",
    "shards.exchange=/x", "measures.sbert.device=cuda", "measures.image_text.form=clipscore",
    "measures.image_text.model=other", "judge.timeout=3", "train.workers=3", "train.device=cpu",
])  # fmt: skip
def test_how_the_work_is_done_and_measures_that_are_not_asked_for_change_nothing(
    changed: str, tmp_path: Path
) -> None:
    assert look(tmp_path, changed) == look(tmp_path)


@pytest.mark.parametrize(("changed", "stages"), [
    ("shards.top=3", {"shards"}), ("shards.target_mb=1", {"shards"}),
    ("measures.cider.sigma=3", {"shards", "relevance", "agree"}), ("train.seed=1", set()),
    ("regions.unreadable=skip", {"regions"}), ("evaluate.split=val", {"embed", "evaluate", "align"}),
    ("evaluate.stand_in=1", {"evaluate"}), ("publish.name=x", {"publish", "report"}),
    ("agree.judgements=data/captions/truth.arrow", {"agree"}),
])  # fmt: skip
def test_what_decides_a_result_changes_its_stages(
    changed: str, stages: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = look(tmp_path), look(tmp_path, changed)
    assert {name for name in after if after[name] != before[name]} == stages


class Recorded:
    """A block of parameters that notes which of its keys are read."""

    def __init__(self, block: ParamsBlock, path: str, read: set[str]) -> None:
        self.block, self.path, self.read = block, path, read

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.block, name)
        if isinstance(value, ParamsBlock):
            return Recorded(value, f"{self.path}{name}.", self.read)
        if name in type(self.block).model_fields:
            self.read.add(f"{self.path}{name}")
        return value


def test_what_the_report_is_made_of_is_what_its_command_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is read and not watched would leave the page as it was."""
    read: set[str] = set()
    loaded = Recorded(params("publish.name=mine"), "", read)
    monkeypatch.setattr("capgrade.apps.cli.report.load", lambda *given: loaded)
    with pytest.raises(InputError, match="no captions to report on"):  # all is read before
        report(tmp_path / "page.html", tmp_path / "data")
    assert read == set(inputs.READ["report"])


def test_one_preset_changes_its_runs_alone(tmp_path: Path) -> None:
    loaded = params("runs=[a, b]")
    of_run = dict.fromkeys("ab", loaded.train)
    out = tmp_path / "data" / "inputs"
    before = write_inputs(loaded, out, of_run.__getitem__)
    of_run["b"] = params("train.lr=1").train
    after = write_inputs(loaded, out, of_run.__getitem__)
    assert {name for name in after if after[name] != before[name]} == {"runs/b"}
    assert {path.name for path in (out / "runs").iterdir()} == {"a.json", "b.json"}


def test_what_the_pipeline_makes_itself_is_left_to_dvc(tmp_path: Path) -> None:
    """It is not there when the pipeline first runs, and would make a stage run again in the second.
    Data of others may lie beside it."""
    made = tmp_path / "data" / "captions" / "truth.arrow"
    given = f"agree.judgements={made}"
    before = look(tmp_path, given)
    assert before["agree"]["contents"] == {"agree.judgements": "captions/truth.arrow"}
    made.parent.mkdir(parents=True)
    made.write_bytes(b"1")
    assert look(tmp_path, given) == before
    mine = tmp_path / "data" / "mine.csv"
    mine.write_bytes(b"1")
    assert look(tmp_path, f"agree.judgements={mine}") != before


def test_a_dataset_of_the_hub_is_known_by_its_name_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "hub_revision", lambda name, kind, revision: f"{kind} {revision}")
    hub = ("captions.source=hub", "captions.input=nlphuji/flickr30k", "captions.revision=v2")
    found = look(tmp_path, *hub, "regions.images=someone/pictures")
    assert found["captions"]["params"]["captions"]["input"] == "nlphuji/flickr30k"
    assert found["captions"]["contents"] == {"captions.input": "dataset v2"}
    assert found["regions"]["contents"] == {"regions.images": "dataset None"}


def test_a_name_of_one_word_is_of_the_hub_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `bert-base-uncased`. The embedded encoder comes with a package, and is not asked for."""
    asked = list[str]()
    monkeypatch.setattr(
        inputs, "hub_revision", lambda name, kind, revision: asked.append(name) or f"of {name}"
    )
    assert "measures.sbert.model" not in look(tmp_path)["relevance"]["contents"] and not asked
    trained = ("train.model.options.text_model=bert-base-uncased", "runs=[triplet]")
    found = look(tmp_path, "measures.sbert.model=one-word", *trained)
    of_run = found["runs/triplet"]["contents"]
    assert of_run["train.model.options.text_model"] == "of bert-base-uncased"
    assert found["relevance"]["contents"]["measures.sbert.model"] == "of one-word"
    url = "https://example.org/captions.csv"
    found = look(tmp_path, "captions.source=hub", f"captions.input={url}")
    assert not found["captions"]["contents"] and url not in asked


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    folder, read = tmp_path / "pictures", list[Path]()
    folder.mkdir()
    for k in range(3):
        (folder / f"{k}.jpg").write_bytes(b"123")
    monkeypatch.setattr("capgrade.schemas.contents._TICK", 0)
    real = content_digest.__globals__["digest"]
    monkeypatch.setattr(
        "capgrade.schemas.contents.digest", lambda path: read.append(path) or real(path)
    )
    before = content_digest(str(folder))
    assert content_digest(str(folder)) == before and len(read) == 3
    times = (folder / "1.jpg").stat()
    time.sleep(0.01)
    (folder / "1.jpg").write_bytes(b"321")
    os.utime(folder / "1.jpg", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert content_digest(str(folder)) != before and len(read) == 4
    next((tmp_path / "cache" / "digests").iterdir()).write_text("damaged")
    (folder / "1.jpg").write_bytes(b"123")
    assert content_digest(str(folder)) == before and len(read) == 7


def test_the_code_is_one_digest_in_a_checkout_and_its_version_where_it_is_installed(
    tmp_path: Path, monkeypatch
) -> None:
    package = tmp_path / "capgrade"
    (package / "text").mkdir(parents=True)
    (package / "text" / "a.py").write_text("1\n")
    (package / "text" / "notes.md").write_text("1\n")
    monkeypatch.setattr(inputs, "PACKAGE", package)
    assert inputs.checkout_digest() == {}
    (tmp_path / "pyproject.toml").touch()
    before = inputs.checkout_digest()
    (package / "text" / "notes.md").write_text("22\n")
    assert inputs.checkout_digest() == before
    (package / "text" / "a.py").write_text("22\n")
    assert inputs.checkout_digest() != before


def test_links_are_followed_and_do_not_lead_in_circles(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.jpg").write_bytes(b"123")
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "back").symlink_to(folder)
    (folder / ".hidden").write_bytes(b"1")
    (folder / "broken").symlink_to(tmp_path / "nothing")
    assert [path.relative_to(folder).as_posix() for path in walk_files(folder)] == ["link/1.jpg"]
