"""COCO's and Karpathy's files: order, ids, splits."""

from pathlib import Path
from typing import Any

import pytest

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
        Caption("9", "1", "val2014", " Food in a box.\n", file, "annotations[1]", IMAGES[0]["file_name"]),
        Caption("25", "2", "val2014", "Two giraffes.", file, "annotations[2]", None),
    ]


def test_the_split_asked_for_names_the_file(read: Read) -> None:
    assert {c.split for c in read("coco", WHOLE, "test", "mine.json")} == {"test"}
    assert {c.split for c in read("coco", WHOLE, name="captions_train2017.json")} == {"train2017"}
    with pytest.raises(InputError, match=r"mine.json: the file name does not tell the split -> .*--split"):
        read("coco", WHOLE, name="mine.json")


def image(name: str, split: str, *sentids: int, **more: Any) -> dict[str, Any]:
    sentences = [{"raw": f"Caption {s}. ", "tokens": ["caption", str(s)], "sentid": s} for s in sentids]
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
    assert first == Caption("391895", "770337", "test", "Caption 770337. ", file, "images[0].sentences[0]", "a.jpg")
    assert second.row == "images[0].sentences[1]"
    assert [c.split for c in rest] == ["restval", "train"]
    (caption,) = karpathy(read, [image("1000092795.jpg", "train", 0)])
    name = "1000092795.jpg"
    assert (caption.image_id, caption.caption_id, caption.image_file) == (name, "0", name), "Flickr's have no cocoid"


def test_splits_of_karpathy_are_kept_by_name(read: Read) -> None:
    assert [c.image_id for c in karpathy(read, KARPATHY, "test")] == ["391895", "391895"]
    found = karpathy(read, KARPATHY, "train+restval")
    assert [(c.image_id, c.split) for c in found] == [("5", "restval"), ("7", "train")]
    with pytest.raises(InputError, match=r"coco.json: no split 'dev' -> choose from: test, restval, train"):
        karpathy(read, KARPATHY, "train+dev")
