"""Regions of the images of a captions table, extracted and imported: by their ids, and what is
missing is said."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from capgrade.pipelines.features.convert import import_regions
from capgrade.pipelines.features.tsv import write_tsv
from capgrade.pipelines.regions import regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas import say
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions, RegionStore, write_regions
from tests.conftest import call, caption_table, refusal, write_captions_folder

NUMBERS = (391895, 7, 123456, 42)


def file_of(number: int, split: str) -> str:
    return f"COCO_{split}2014_{number:012d}.jpg"


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """Four images of COCO, two of each split, in an order that is not that of their files."""
    tables = []
    for split, numbers in (("val", NUMBERS[:2]), ("train", NUMBERS[2:])):
        table = caption_table([["a dog", "a cat"]] * 2, split, split)
        at = [int(one.removeprefix(split)) for one in table["image_id"].to_pylist()]
        for name, values in (
            ("image_id", [str(numbers[k]) for k in at]),
            ("image_file", [f"{split}2014/{file_of(numbers[k], split)}" for k in at]),
        ):
            table = table.set_column(table.column_names.index(name), name, pa.array(values))
        tables.append(table)
    return write_captions_folder(tmp_path / "captions", tables)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for split, numbers in (("val", NUMBERS[:2]), ("train", (*NUMBERS[2:], 99))):
        for number in numbers:
            path = tmp_path / "pictures" / f"{split}2014" / file_of(number, split)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 48), (number % 256, 80, 80)).save(path)
    return tmp_path / "pictures"


def params(**values: object) -> RegionsParams:
    return RegionsParams(**{"workers": 0, "boxes": "4", "detector": "scenes", **values})  # type: ignore[arg-type]


def test_regions_have_the_ids_and_the_order_of_the_captions(
    captions: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say._printed.clear()
    regions(pictures, tmp_path / "out", params(), captions)
    assert RegionStore(tmp_path / "out").ids == [str(number) for number in NUMBERS]
    assert (
        f"not asked for: 1 of 5 pictures: train2014/{file_of(99, 'train')}"
        in capsys.readouterr().err
    )
    more = ["--set", "regions.workers=0", "--boxes", "4", "--set", "regions.detector=scenes"]
    line = [
        "regions",
        "--captions",
        str(captions),
        "--split",
        "val",
        "--images",
        str(pictures),
        *more,
    ]
    assert call(*line, "--out", str(tmp_path / "val")) == 0
    assert RegionStore(tmp_path / "val").ids == ["391895", "7"]
    plain = regions(pictures, tmp_path / "plain", params())
    assert plain is not None and "391895" not in RegionStore(tmp_path / "plain")


def test_missing_pictures_are_said_before_the_detector_is_loaded(
    captions: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, html = (pictures / f"val2014/{file_of(number, 'val')}" for number in NUMBERS[:2])
    lost.unlink()
    html.write_bytes(b"<html>404</html>")
    with monkeypatch.context() as patch:
        patch.setattr("capgrade.pipelines.regions.make_detector", None)
        problem = (
            r"no pictures of 2 of the 4 images: '391895' \(val2014/COCO.*; not taken: .*000007.jpg"
            r" \(no picture by"
        )
        with pytest.raises(InputError, match=problem + r".*regions.unreadable=skip"):
            regions(pictures, tmp_path / "out", params(), captions)
    done = regions(pictures, tmp_path / "out", params(unreadable="skip"), captions)
    assert done is not None and RegionStore(tmp_path / "out").ids == ["123456", "42"]
    assert [(one["image_id"], one["reason"]) for one in done["left_out"]] == [
        ("391895", "missing"),
        ("7", "unreadable"),
    ]
    assert RegionStore(tmp_path / "out").reasons({"7": None, "391895": None}) == {
        "391895": "missing",
        "7": "unreadable",
    }


def test_fewer_regions_than_asked_for_are_counted(
    captions: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say._printed.clear()
    done = regions(pictures, tmp_path / "out", params(boxes="36", proposals=5), captions)
    assert done is not None
    few = [
        one
        for one in RegionStore(tmp_path / "out").ids
        if len(RegionStore(tmp_path / "out")[one]) < 36
    ]
    assert done["fewer_regions"] == {"asked": 36, "images": len(few)} and len(few) == 4
    assert (
        "fewer regions than the 36 asked for: 4 images, 391895, 7, 123456 and 1 more"
        in capsys.readouterr().err
    )


def test_an_export_of_unlike_numbers_names_layouts_that_hold_them(tmp_path: Path) -> None:
    some = [
        Regions(
            str(n),
            30,
            30,
            np.tile(np.array([[0, 0, 20, 20]], np.float32), (n, 1)),
            np.ones((n, 4), np.float32),
        )
        for n in (2, 1)
    ]
    write_regions(tmp_path / "r", some)
    to = ("--regions", tmp_path / "r", "--out", tmp_path / "t_ims.npy")
    said = refusal("regions", "export", "--format", "scan", *to)
    assert "image '1' has (1, 4) features, (2, 4) before -> export as tsv or npz" in said


def rows(*ids: str) -> list[Regions]:
    boxes = np.array([[0, 0, 20, 20]], np.float32)
    return [
        Regions(one, 64, 48, boxes, np.full((1, 3), k, np.float32)) for k, one in enumerate(ids)
    ]


def test_imported_features_get_the_ids_of_the_captions(
    captions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say._printed.clear()
    lost = "COCO_train2014_000000123456"
    write_tsv(tmp_path / "a.tsv", rows("000000000007", "99", "42", "COCO_val2014_000000391895"))
    params = RegionsParams(format="tsv", features=(str(tmp_path / "a.tsv"),))
    with pytest.raises(
        InputError, match=r"no features of 1 of the 4 images: '123456' .*unreadable=skip"
    ):
        import_regions(tmp_path / "out", params, captions)
    assert not (tmp_path / "out").exists()
    import_regions(tmp_path / "val", params.model_copy(update={"split": "val"}), captions)
    assert [(one.image_id, one.features[0, 0]) for one in RegionStore(tmp_path / "val")] == [
        ("7", 0),
        ("391895", 3),
    ]
    features = ("--format", "tsv", "--features", str(tmp_path / "a.tsv"))
    line = ["regions", *features, "--captions", str(captions)]
    capsys.readouterr()
    assert call(*line, "--out", str(tmp_path / "out")) == 2
    assert "one split; --set regions.unreadable=skip leaves such" in capsys.readouterr().err
    assert call(*line, "--ids", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out")) == 2
    assert (
        "1 files of ids for 1 of features, in the format tsv -> name files of ids for the format"
        " npy alone, one for each of regions.features"
    ) in capsys.readouterr().err
    assert call(*line, "--unreadable", "skip", "--out", str(tmp_path / "skip")) == 0
    store = RegionStore(tmp_path / "skip")
    assert store.ids == ["7", "42", "391895"] and store.reasons({"123456": lost}) == {
        "123456": "missing"
    }
    assert "not asked for: 1 of 4 features: 99" in capsys.readouterr().err
