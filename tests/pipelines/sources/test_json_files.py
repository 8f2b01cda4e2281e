"""COCO's and Karpathy's files: order, ids, splits, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

from .conftest import Read

NAME = "captions_val2014.json"
IMAGES: list[dict[str, Any]] = [{"id": 9, "file_name": "COCO_val2014_000000000009.jpg"}, {"id": 25}]
ANNOTATIONS = [
    {"image_id": 25, "id": 3, "caption": "A giraffe."},
    {"image_id": 9, "id": 1, "caption": " Food in a box.\n"},
    {"image_id": 25, "id": 2, "caption": "Two giraffes."},
]
WHOLE = {"images": IMAGES, "annotations": ANNOTATIONS}


def changed(index: int, **fields: Any) -> dict[str, Any]:
    """The document with an annotation's fields changed; None takes a field away."""
    annotation = {k: v for k, v in {**ANNOTATIONS[index], **fields}.items() if v is not None}
    return {"images": IMAGES, "annotations": [*ANNOTATIONS[:index], annotation, *ANNOTATIONS[index + 1 :]]}


def test_captions_of_coco_stay_in_the_order_of_annotations(read: Read, tmp_path: Path) -> None:
    file = str(tmp_path / NAME)
    assert read("coco", NAME, WHOLE) == [
        Caption("25", "3", "val2014", "A giraffe.", file, "annotations[0]", None),
        Caption("9", "1", "val2014", " Food in a box.\n", file, "annotations[1]", IMAGES[0]["file_name"]),
        Caption("25", "2", "val2014", "Two giraffes.", file, "annotations[2]", None),
    ]


def test_the_split_asked_for_names_the_file(read: Read) -> None:
    assert {c.split for c in read("coco", "mine.json", WHOLE, "test")} == {"test"}
    assert {c.split for c in read("coco", "captions_train2017.json", WHOLE)} == {"train2017"}
    with pytest.raises(InputError, match=r"mine.json: the file name does not tell the split -> .*--split"):
        read("coco", "mine.json", WHOLE)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[]", rf"{NAME}: no list 'images' -> give a COCO caption file"),
        ({"images": IMAGES}, r"json: no list 'annotations' -> give a COCO caption file"),
        ({"images": [7], "annotations": []}, r"row images\[0\]: 7 is not a JSON object -> give a COCO"),
        ({"images": [{}], "annotations": []}, r"row images\[0\]: no 'id' \(there is nothing\) -> give a COCO"),
        (changed(1, caption=None), r"row annotations\[1\]: no 'caption' \(there is image_id, id\) -> .*not instances"),
        (changed(1, caption=5), r"row annotations\[1\]: 'caption' is 5, not a text -> correct 'caption' there"),
        (changed(1, id=True), r"row annotations\[1\]: 'id' is True, not an id"),
        (changed(1, id=""), r"row annotations\[1\]: 'id' is '', not an id, .* not empty -> correct 'id'"),
        (changed(1, caption="\ud83d"), r"row annotations\[1\]: 'caption' is '.ud83d', with half of a surrogate pair"),
        (changed(2, image_id=8), r"row annotations\[2\]: image 8 is not in 'images' -> list the image or drop"),
        (changed(1, image_id=25), r"row images\[0\]: image 9 has no caption -> drop the image from 'images'"),
        (
            {"images": [*IMAGES, {"id": "9"}], "annotations": ANNOTATIONS},
            r"row images\[2\]: image 9 is listed twice -> keep one",
        ),
    ],
)
def test_bad_files_of_coco_are_refused(read: Read, document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read("coco", NAME, document)


def image(name: str, split: str, *sentids: int, **more: Any) -> dict[str, Any]:
    sentences = [{"raw": f"Caption {s}. ", "tokens": ["caption", str(s)], "sentid": s} for s in sentids]
    return {"filename": name, "split": split, "sentences": sentences, **more}


KARPATHY = [
    image("a.jpg", "test", 770337, 771687, cocoid=391895),
    image("b.jpg", "restval", 4, cocoid=5),
    image("c.jpg", "train", 6, cocoid=7),
]


def karpathy(read: Read, images: Any, split: str | None = None) -> list[Caption]:
    return read("karpathy", "dataset_coco.json", {"images": images, "dataset": "coco"}, split)


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if k != key}


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
    with pytest.raises(InputError, match=r"coco.json: no split 'dev' -> choose .* from: test, restval, train"):
        karpathy(read, KARPATHY, "train+dev")


COCOID = "give every image its cocoid, or none"


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({}, r"dataset_coco.json: no list 'images' -> give one of Karpathy's files"),
        ([image("a", "test")], r"row images\[0\]: image a has no sentences -> drop the image"),
        ([without(KARPATHY[0], "sentences")], r"row images\[0\]: no 'sentences' .* -> give one of Karpathy's"),
        ([image("a", "b") | {"sentences": ["A man."]}], r"row images\[0\].sentences\[0\]: 'A man.' is not a JSON obj"),
        ([image("a", "b") | {"sentences": [{"raw": "A"}]}], r"\[0\].sentences\[0\]: no 'sentid' \(there is raw\)"),
        ([image("a", "b", cocoid=[])], r"row images\[0\]: 'cocoid' is \[\], not an id"),
        ([KARPATHY[1], KARPATHY[1]], r"row images\[1\]: image 5 is listed twice -> keep one"),
        (  # COCO's ids beside file names would be ids of two kinds in one table
            [*KARPATHY[:2], without(KARPATHY[2], "cocoid")],
            rf"row images\[2\]: no 'cocoid', which images before this one have -> {COCOID}",
        ),
        (
            [without(KARPATHY[0], "cocoid"), *KARPATHY[1:]],
            rf"row images\[1\]: a 'cocoid', which no images before this one have -> {COCOID}",
        ),
    ],
)
def test_bad_files_of_karpathy_are_refused(read: Read, images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        karpathy(read, images)
