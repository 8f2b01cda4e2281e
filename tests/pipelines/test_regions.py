"""The stage `regions`: rows in list order whatever the batching, and bytes that no interruption
changes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.pictures.decode import decode_pictures, plan_batches
from capgrade.pictures.listing import read_pictures
from capgrade.pictures.picture import Picture
from capgrade.pipelines.captions import captions
from capgrade.pipelines.detectors.bottom_up import CaffePrepare
from capgrade.pipelines.detectors.catalogue import rule_of
from capgrade.pipelines.regions import regions
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas import say
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import unfinished_folder
from capgrade.schemas.regions import RegionStore
from tests import tiny_detector
from tests.conftest import contents, work_of

SIZES = [(90, 60), (60, 90), (45, 30), (75, 75)]  # the first and third are prepared to one size


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tiny_detector.register(monkeypatch.setattr)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen pictures of four sizes in three formats, one of each lying on its side."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for k in range(14):
        width, height = SIZES[k % 4]
        picture = Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6 if k in (4, 5, 6) else 1  # one of each format
        picture.save(folder / f"{k:03d}.{('jpg', 'png', 'webp')[k % 3]}", exif=exif)
    (folder / "notes.txt").write_text("not a picture")
    return folder


def params(**values: object) -> RegionsParams:
    """Shards of five images, nothing beside this process."""
    return RegionsParams(**{"detector": "scenes", "workers": 0, "boxes": "10", **values})  # type: ignore[arg-type]


def run(images: Path, out: Path, **values: object) -> dict:
    done = regions(images, out, params(**values))
    assert done is not None
    return done


@pytest.fixture(autouse=True)
def _shards_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgrade.pipelines.regions.MOST_IMAGES", 5)


def test_rows_are_those_of_each_picture_by_itself(images: Path, tmp_path: Path) -> None:
    """In list order; boxes and numbers equal, features to what a batch changes in float32."""
    done = run(images, tmp_path, dtype="float32")
    store = RegionStore(tmp_path)
    assert store.ids == [f"{k:03d}" for k in range(14)]
    assert [entry["rows"] for entry in done["files"].values()] == [5, 5, 4]
    assert done["classes"] == tiny_detector.CLASSES and done["attributes"] is None
    assert done["left_out"] == [] and done["regions"] == sum(map(len, store)) > 100
    model, rule = tiny_detector.tiny_model(), rule_of(params())
    for picture, found in zip(read_pictures(images), store, strict=True):
        alone = tiny_detector.detect(model, picture.decode()[0], rule)
        assert (found.width, found.height) == (alone.width, alone.height)
        np.testing.assert_allclose(found.boxes, alone.boxes, atol=1e-3)
        np.testing.assert_allclose(found.features, alone.features, rtol=1e-3, atol=1e-4)
        assert (found.classes == alone.classes).all() and (
            found.attributes == alone.attributes
        ).all()


def test_what_is_no_picture_is_counted_at_the_end(images: Path, tmp_path: Path, capsys) -> None:
    """Also by the run that finds everything done."""
    for name in ("a", "@eaDir"):
        (tmp_path / "in" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(tmp_path / "in" / name / "x.jpg")
    (tmp_path / "in" / "b.jpg").write_text("<html>")
    for _ in range(2):
        done = run(tmp_path / "in", tmp_path / "out")
        assert done["not_taken"] == {"thumbnails": 1, "no picture by content": 1}
    said = capsys.readouterr().err
    assert (
        "in: not taken: 1 no picture by content: b.jpg\n" in said
        and "1 thumbnails: @eaDir/" in said
    )


def test_adaptive_boxes_and_proposals(images: Path, tmp_path: Path) -> None:
    run(images, tmp_path, boxes="3-7", confidence=0.3)
    sizes = {len(found) for found in RegionStore(tmp_path)}
    assert len(sizes) > 1 and sizes <= {3, 4, 5, 6, 7}, sizes
    run(images, tmp_path, boxes="9", proposals=5)
    assert {len(found) for found in RegionStore(tmp_path)} == {5}


def test_batches_are_of_one_prepared_size_and_of_every_picture(images: Path) -> None:
    pictures, prepare = read_pictures(images), CaffePrepare(64, 128)
    shards = [pictures[:8], pictures[8:]]
    batches = list(plan_batches(shards, prepare, 3))
    for shard, of_shard in enumerate(shards):
        mine = [batch for batch in batches if batch.shard == shard]
        found = [picture for batch in mine for picture in batch.pictures]
        assert sorted(found, key=pictures.index) == of_shard
        assert [batch.last for batch in mine] == [False] * (len(mine) - 1) + [True]
    assert any({pictures[0], pictures[2]} <= set(batch.pictures) for batch in batches), (
        "90 x 60 and 45 x 30 are prepared to one size"
    )
    for each in decode_pictures(batches, prepare, workers=0):
        assert len(each.batch.pictures) <= 3 and not each.problems
        (prepared,) = each.prepared
        assert prepared.image_ids == tuple(picture.image_id for picture in each.batch.pictures)
        for picture, image in zip(each.batch.pictures, prepared.images, strict=True):
            assert torch.equal(image, prepare(picture.decode()[0])[0])


def test_headers_that_tell_another_size(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grouped by a wrong size, pictures still go to the model by the size they have."""
    run(images, tmp_path / "right", dtype="float32")
    monkeypatch.setattr(Picture, "size", lambda self: (1, 1))
    run(images, tmp_path / "wrong", dtype="float32")
    for found, expected in zip(
        RegionStore(tmp_path / "wrong"), RegionStore(tmp_path / "right"), strict=True
    ):
        assert (found.image_id, found.width, found.height) == (
            expected.image_id,
            expected.width,
            expected.height,
        )
        np.testing.assert_allclose(found.features, expected.features, rtol=1e-3, atol=1e-4)


def test_a_picture_through_the_full_model(images: Path, tmp_path: Path) -> None:
    """Random weights of full size keep activations in float16's range; four proposals, as 300 take
    ten seconds."""
    (tmp_path / "list").write_text(f"one\t{images}/000.jpg\n")
    done = run(
        tmp_path / "list",
        tmp_path / "out",
        detector="bottom_up",
        weights="random",
        proposals=4,
        boxes="3",
    )
    assert done["params"]["detector"] == "bottom_up, random weights, seed 0" and done["dim"] == 2048
    found = RegionStore(tmp_path / "out")["one"]
    assert (
        found.features.shape == (3, 2048)
        and (found.features >= 0).all()
        and found.features.max() > 0
    )
    assert found.classes.max() < 1600 and found.attributes.max() < 400


def test_only_drawn_scenes_need_no_detector(images: Path, tmp_path: Path) -> None:
    captions(tmp_path / "c", CaptionsParams(scenes=ScenesParams(train=2, val=1, test=0, size=64)))
    none = RegionsParams(workers=0, boxes="3")
    assert regions(tmp_path / "c", tmp_path / "r", none) and len(RegionStore(tmp_path / "r")) == 3
    with pytest.raises(
        InputError,
        match="images0: no detector for these pictures -> give --detector bottom_up --weig",
    ):
        regions(images, tmp_path / "out", none)


# ---- pictures that cannot be read


def damaged(images: Path, folder: Path) -> Path:
    """The pictures with 003 truncated and of 007 only how a PNG begins."""
    shutil.copytree(images, folder)
    (folder / "003.jpg").write_bytes((folder / "003.jpg").read_bytes()[:300])
    (folder / "007.png").write_bytes((folder / "007.png").read_bytes()[:8])
    return folder


def test_unreadable_pictures_are_named_after_all_others_are_done(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Skipped, nothing is done again and no row shifts; mended, only their shards are done again;
    with other settings all are."""
    folder, out = damaged(images, tmp_path / "in"), tmp_path / "out"
    problem = (
        r"2 of 14 .*: 003.jpg \(not a .*; 007.png \(not a readable .* --set regions.unreadable=sk"
    )
    with pytest.raises(InputError, match=problem):
        run(folder, out)
    assert not (out / "manifest.json").exists()
    before = {path.name: path.stat().st_mtime_ns for path in work_of(out).glob("*.arrow")}
    assert len(before) == 3
    for name in ("skipped", "other"):
        shutil.copytree(unfinished_folder(out), unfinished_folder(tmp_path / name))
    for name in ("other", "fresh"):
        run(folder, tmp_path / name, boxes="8", unreadable="skip")
    assert contents(tmp_path / "other") == contents(tmp_path / "fresh")
    capsys.readouterr()
    say._printed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capgrade.pipelines.regions.decode_pictures", None)
        left_out = run(folder, tmp_path / "skipped", unreadable="skip")["left_out"]
    assert [one["image_id"] for one in left_out] == ["003", "007"]
    assert (
        "2 of 14 pictures without regions: 003.jpg (not a readable picture ("
        in capsys.readouterr().err
    )
    for name in ("003.jpg", "007.png"):
        shutil.copy(images / name, folder / name)
    run(folder, out)
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.arrow")}
    assert [name for name in sorted(after) if after[name] == before[name]] == [
        "regions-00002.arrow"
    ]
    run(images, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")
    store, whole = RegionStore(tmp_path / "skipped"), RegionStore(tmp_path / "whole")
    assert store.ids == [image_id for image_id in whole.ids if image_id not in ("003", "007")]
    for found in store:
        assert found.width == whole[found.image_id].width
        np.testing.assert_allclose(found.boxes, whole[found.image_id].boxes, atol=1e-3)


def test_a_picture_without_regions_is_left_out_and_may_not_be_all(
    images: Path, tmp_path: Path
) -> None:
    """Proposals of a picture of one pixel are all smaller than the least side."""
    (tmp_path / "in").mkdir()
    Image.new("RGB", (1, 1)).save(tmp_path / "in" / "dot.png")
    with pytest.raises(InputError, match="1 of 1 pictures without regions: dot.png"):
        run(tmp_path / "in", tmp_path / "out", unreadable="skip")
    (tmp_path / "in" / "more.jpg").write_bytes((images / "000.jpg").read_bytes())
    done = run(tmp_path / "in", tmp_path / "out", unreadable="skip")
    assert done["left_out"] == [
        {"image_id": "dot", "file": "dot.png", "problem": "no region found", "reason": "no_region"}
    ]


# ---- interruptions and several processes


def start(images: Path, out: Path, *settings: str, **environment: str) -> subprocess.Popen:
    code = (
        "import sys, runpy, capgrade.pipelines.regions as r; r.MOST_IMAGES = 5; sys.argv.pop(0); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(Path(tiny_detector.__file__)), str(images), str(out)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [*command, "workers=0", "boxes=10", *settings], env=env, stderr=subprocess.PIPE, text=True
    )


def many(images: Path, folder: Path, copies: int) -> Path:
    folder.mkdir()
    for path in images.glob("0*"):
        for k in range(copies):
            (folder / f"{k:02d}{path.name}").write_bytes(path.read_bytes())
    return folder


def test_killed_run_goes_on_where_it_stopped(images: Path, tmp_path: Path) -> None:
    """kill -9 at a moment drawn by chance: the next run does only what is missing and gives the
    same bytes. With other settings all is done again."""
    folder, out = many(images, tmp_path / "in", 4), tmp_path / "out"
    process = start(folder, out)
    parts = lambda: list(unfinished_folder(out).glob("*/parts/*.json"))  # noqa: E731
    wanted = int(np.random.default_rng(5).integers(2, 6))
    while len(parts()) < wanted and process.poll() is None:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = sorted(path.stem.partition("-")[0] for path in parts())
    assert wanted <= len(finished) < 12 and not (out / "manifest.json").exists()
    names = [f"regions-{name}.arrow" for name in finished]
    before = [(work_of(out) / name).stat() for name in names]
    done = run(folder, out)
    after = [(out / name).stat() for name in names]
    assert [(one.st_ino, one.st_mtime_ns) for one in after] == [
        (one.st_ino, one.st_mtime_ns) for one in before
    ]
    run(folder, tmp_path / "undisturbed")
    assert contents(out) == contents(tmp_path / "undisturbed")
    run(folder, out, dtype="float32")
    features = np.concatenate([found.features for found in RegionStore(out)])
    assert (
        done["rounding"]["max_abs"]
        == np.abs(features.astype(np.float16).astype(float) - features).max()
        > 0
    )


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "of the same size", "damaged facts"])
def test_a_part_is_not_believed_without_its_file(
    how: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """As a kill within the clean-up leaves it, or somebody else: that shard is made again."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("capgrade.pipelines.regions.finish", Mock(side_effect=KeyboardInterrupt))
        run(images, out)
    folder = work_of(out)
    file = folder / "regions-00001.arrow"
    (facts,) = folder.glob("parts/00001-*.json")
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    elif how == "damaged facts":
        facts.write_text("")
    else:
        same = content[:-9] + b"\0" * 9
        file.write_bytes({"empty": b"", "cut": content[:-9], "of the same size": same}[how])
    run(images, out)
    assert "goes on, 9 of 14 pictures are done" in capsys.readouterr().err
    run(images, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_two_processes_give_the_bytes_of_one(images: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    here = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    both = [
        start(images, tmp_path / "two", "workers=1", RANK=str(rank), LOCAL_RANK=str(rank), **here)
        for rank in range(2)
    ]
    said = [process.communicate()[1] for process in both]  # each with a process that decodes
    assert [process.returncode for process in both] == [0, 0], said
    run(images, tmp_path / "one")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert not unfinished_folder(tmp_path / "two").exists()


def test_places_that_do_not_fit(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        InputError, match="RANK 2, WORLD_SIZE 2, LOCAL_RANK None in the environment"
    ):
        run(images, tmp_path)


class Dies:
    """A `prepare` whose process is ended by the system."""

    def __call__(self, rgb: np.ndarray) -> tuple[torch.Tensor, float]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_a_dead_worker_is_one_error(images: Path) -> None:
    pictures = read_pictures(images)
    batches = list(plan_batches([pictures[:2]], Dies(), 2))
    with pytest.raises(
        InputError, match="a process that decodes pictures was ended from outside -> run again"
    ):
        list(decode_pictures(batches, Dies(), workers=1))


def test_a_temporary_folder_too_far_for_sockets_is_one_error(images: Path, tmp_path: Path) -> None:
    """Its error is a worker's own, and the model would wait for a picture for ever."""
    far = tmp_path / ("x" * 100)
    far.mkdir()
    said = start(images, tmp_path / "out", "workers=1", TMPDIR=str(far)).communicate()[1]
    assert "AF_UNIX path too long -> set TMPDIR to a folder of a shorter path" in said
    assert start(images, tmp_path / "out", "workers=0", TMPDIR=str(far)).wait() == 0
