"""COCO's and Karpathy's files: order, ids, splits."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

from .conftest import Read

IMAGES: list[dict[str, Any]] = [{"id": 9, "file_name": "COCO_val2014_000000000009.jpg"}, {"id": 25}]
ANNOTATIONS = [
    {"image_id": 25, "id": 3, "caption": "A giraffe."},
    {"image_id": 9, "id": 1, "caption": " Food in a box.\n"},
    {"image_id": 25, "id": 2, "caption": "Two giraffes."},
]
WHOLE = {"images": IMAGES, "annotations": ANNOTATIONS}


def test_captions_of_coco_stay_in_the_order_of_annotations(read: Read, tmp_path: Path) -> None:
    file = str(tmp_path / "captions_val2014.json")
    assert read("coco", WHOLE) == [
        Caption("25", "3", "val2014", "A giraffe.", file, "annotations[0]", None),
        Caption(
            "9", "1", "val2014", " Food in a box.\n", file, "annotations[1]", IMAGES[0]["file_name"]
        ),
        Caption("25", "2", "val2014", "Two giraffes.", file, "annotations[2]", None),
    ]


def test_the_split_asked_for_names_the_file(read: Read) -> None:
    assert {c.split for c in read("coco", WHOLE, "test", "mine.json")} == {"test"}
    assert {c.split for c in read("coco", WHOLE, name="captions_train2017.json")} == {"train2017"}
    with pytest.raises(
        InputError, match=r"mine.json: the file name does not tell the split -> .*--split"
    ):
        read("coco", WHOLE, name="mine.json")


def test_several_files_of_coco_each_with_its_split(read: Read, tmp_path: Path) -> None:
    other = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "id": 7, "caption": "A dog."}]}
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "captions_train2014.json").write_text(json.dumps(other))
    (tmp_path / "annotations" / "instances_train2014.json").write_text("not read")
    folder = str(tmp_path / "annotations")
    single = str(tmp_path / "annotations" / "captions_train2014.json")
    both = [str(tmp_path / "captions_val2014.json"), single]
    assert len(read("coco", WHOLE)) == 3
    found = list(read_source(CaptionsParams(source="coco", input=both)))
    assert [(c.image_id, c.split) for c in found][2:] == [("25", "val2014"), ("1", "train2014")]
    assert [
        c.split for c in read_source(CaptionsParams(source="coco", input=both, split="train2014"))
    ] == ["train2014"]
    assert [c.file for c in read_source(CaptionsParams(source="coco", input=folder))] == [single]
    read("coco", WHOLE, name="annotations/captions_val2014.json")
    left_out = Counter[str]()
    found = list(read_source(CaptionsParams(source="coco", input=folder), left_out))
    assert [c.split for c in found] == ["train2014", *["val2014"] * 3]
    assert left_out == {"files of another kind": 1}
    (tmp_path / "mine.json").write_text(json.dumps(other))
    with pytest.raises(
        InputError,
        match=r"mine.json: the file name does not tell the split -> call it captions_SPLIT",
    ):
        list(
            read_source(
                CaptionsParams(
                    source="coco", input=[*both, str(tmp_path / "mine.json")], split="test"
                )
            )
        )
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"none: no captions_\*.json in this folder"):
        list(read_source(CaptionsParams(source="coco", input=str(tmp_path / "none"))))


def test_captions_that_vizwiz_rejects_are_left_out_and_counted(read: Read) -> None:
    flags: list[dict[str, Any]] = [
        {},
        {"is_rejected": True, "is_precanned": True},
        {"is_precanned": True},
        {},
    ]
    marked = [
        {"image_id": k // 2, "id": k, "caption": "A", **flag}
        for k, flag in enumerate([*flags, flags[1]])
    ]
    left_out = Counter[str]()
    found = read(
        "coco", {"images": [{"id": k} for k in range(3)], "annotations": marked}, left_out=left_out
    )
    assert [c.caption_id for c in found] == ["0", "3"]
    assert left_out == {
        "rejected captions (is_rejected)": 2, "precanned captions (is_precanned)": 1,
        "images with rejected or precanned captions alone": 1,
    }  # fmt: skip


def test_annotations_alone_are_read_as_score_reads_them(read: Read) -> None:
    rows = [{"image_id": 5, "caption": "A dog."}, {"image_id": 5.0, "caption": "A hound."}]
    found = read("coco", {"annotations": rows})
    assert [(c.image_id, c.caption_id, c.image_file) for c in found] == [
        ("5", "5#0", None),
        ("5", "5#1", None),
    ]


def image(name: str, split: str, *sentids: int, **more: Any) -> dict[str, Any]:
    sentences = [
        {"raw": f"Caption {s}. ", "tokens": ["caption", str(s)], "sentid": s} for s in sentids
    ]
    return {"filename": name, "split": split, "sentences": sentences, **more}


KARPATHY = [
    image("a.jpg", "test", 770337, 771687, cocoid=391895),
    image("b.jpg", "restval", 4, cocoid=5),
    image("c.jpg", "train", 6, cocoid=7),
]


def karpathy(read: Read, images: Any, split: str | None = None) -> list[Caption]:
    return read("karpathy", {"images": images, "dataset": "coco"}, split)


def test_ids_texts_and_places_of_karpathy(read: Read, tmp_path: Path) -> None:
    file = str(tmp_path / "dataset_coco.json")
    first, second, *rest = karpathy(read, KARPATHY)
    assert first == Caption(
        "391895", "770337", "test", "Caption 770337. ", file, "images[0].sentences[0]", "a.jpg"
    )
    assert second.row == "images[0].sentences[1]"
    assert [c.split for c in rest] == ["restval", "train"]
    (caption,) = karpathy(read, [image("1000092795.jpg", "train", 0)])
    name = "1000092795.jpg"
    assert (caption.image_id, caption.caption_id, caption.image_file) == (name, "0", name), (
        "Flickr's have no cocoid"
    )
    (caption,) = karpathy(
        read, [image("COCO_val2014_1.jpg", "test", 0, cocoid=1, filepath="val2014")]
    )
    assert caption.image_file == "val2014/COCO_val2014_1.jpg"


def test_splits_of_karpathy_are_kept_by_name(read: Read) -> None:
    assert [c.image_id for c in karpathy(read, KARPATHY, "test")] == ["391895", "391895"]
    found = karpathy(read, KARPATHY, "train+restval")
    assert [(c.image_id, c.split) for c in found] == [("5", "restval"), ("7", "train")]
    with pytest.raises(
        InputError, match=r"coco.json: no split 'dev' -> choose from: test, restval, train"
    ):
        karpathy(read, KARPATHY, "train+dev")
