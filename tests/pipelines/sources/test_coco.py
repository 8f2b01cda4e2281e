"""COCO caption files: order, ids, split, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capgrade.pipelines.sources import SOURCES
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

IMAGES: list[dict[str, Any]] = [{"id": 9, "file_name": "COCO_val2014_000000000009.jpg"}, {"id": 25}]
ANNOTATIONS = [
    {"image_id": 25, "id": 3, "caption": "A giraffe."},
    {"image_id": 9, "id": 1, "caption": " Food in a box.\n"},
    {"image_id": 25, "id": 2, "caption": "Two giraffes."},
]
Read = Callable[..., list[Caption]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def written(document: Any, name: str = "captions_val2014.json", split: str | None = None) -> list[Caption]:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return list(SOURCES["coco"](CaptionsParams(source="coco", input=str(path), split=split)))

    return written


def changed(index: int, **fields: Any) -> dict[str, Any]:
    """The document with an annotation's fields changed; None takes a field away."""
    annotation = {k: v for k, v in {**ANNOTATIONS[index], **fields}.items() if v is not None}
    return {"images": IMAGES, "annotations": [*ANNOTATIONS[:index], annotation, *ANNOTATIONS[index + 1 :]]}


def test_captions_stay_in_the_order_of_annotations(read: Read, tmp_path: Path) -> None:
    captions = read({"images": IMAGES, "annotations": ANNOTATIONS})
    file = str(tmp_path / "captions_val2014.json")
    assert captions == [
        Caption("25", "3", "val2014", "A giraffe.", file, "annotations[0]", None),
        Caption("9", "1", "val2014", " Food in a box.\n", file, "annotations[1]", IMAGES[0]["file_name"]),
        Caption("25", "2", "val2014", "Two giraffes.", file, "annotations[2]", None),
    ]


def test_the_split_asked_for_names_the_file(read: Read) -> None:
    assert {c.split for c in read(changed(0), name="mine.json", split="test")} == {"test"}
    assert {c.split for c in read(changed(0), name="captions_train2017.json")} == {"train2017"}
    with pytest.raises(InputError, match=r"mine.json: the file name does not tell the split -> .*--split"):
        read(changed(0), name="mine.json")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[]", r"captions_val2014.json: no list 'images' -> give a COCO caption file"),
        ({"images": IMAGES}, r"json: no list 'annotations' -> give a COCO caption file"),
        ({"images": [7], "annotations": []}, r"row images\[0\]: 7 is not a JSON object -> give a COCO"),
        (
            {"images": [{}], "annotations": []},
            r"row images\[0\]: no 'id' \(there is nothing\) -> give a COCO",
        ),
        (
            changed(1, caption=None),
            r"row annotations\[1\]: no 'caption' \(there is image_id, id\) -> .*not instances",
        ),
        (changed(1, id=None), r"row annotations\[1\]: no 'id' .* -> give a COCO caption file"),
        (changed(1, image_id=None), r"row annotations\[1\]: no 'image_id' .* -> give a COCO caption file"),
        (
            changed(1, caption=5),
            r"row annotations\[1\]: 'caption' is 5, not a text -> give 'caption' as a string",
        ),
        (changed(1, id=1.5), r"row annotations\[1\]: 'id' is 1.5, not an id -> give 'id' as a text"),
        (changed(1, id=True), r"row annotations\[1\]: 'id' is True, not an id"),
        (changed(1, id=""), r"row annotations\[1\]: 'id' is '', not an id -> .*not empty"),
        (
            changed(1, caption="\ud83d"),
            r"row annotations\[1\]: 'caption' holds half of a surrogate pair.* -> repair",
        ),
        (
            changed(2, image_id=8),
            r"row annotations\[2\]: image 8 is not in 'images' -> list the image or drop",
        ),
        (changed(1, image_id=25), r"row images\[0\]: image 9 has no caption -> drop the image from 'images'"),
        (
            {"images": [*IMAGES, {"id": "9"}], "annotations": ANNOTATIONS},
            r"row images\[2\]: image 9 is listed twice -> keep one",
        ),
    ],
)
def test_bad_files_are_refused(read: Read, document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(document)
