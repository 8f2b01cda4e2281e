"""Karpathy's dataset files: ids of COCO and of Flickr, splits, and what is refused."""

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

Read = Callable[..., list[Caption]]


def image(name: str, split: str, *sentids: int, **more: Any) -> dict[str, Any]:
    sentences = [{"raw": f"Caption {s}. ", "tokens": ["caption", str(s)], "sentid": s} for s in sentids]
    return {"filename": name, "split": split, "sentences": sentences, **more}


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if k != key}


COCO = [
    image("a.jpg", "test", 770337, 771687, cocoid=391895),
    image("b.jpg", "restval", 4, cocoid=5),
    image("c.jpg", "train", 6, cocoid=7),
]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def written(images: Any, split: str | None = None) -> list[Caption]:
        path = tmp_path / "dataset_coco.json"
        path.write_text(json.dumps({"images": images, "dataset": "coco"}))
        return list(SOURCES["karpathy"](CaptionsParams(source="karpathy", input=str(path), split=split)))

    return written


def test_ids_texts_and_places(read: Read, tmp_path: Path) -> None:
    file = str(tmp_path / "dataset_coco.json")
    first, second, *rest = read(COCO)
    assert first == Caption("391895", "770337", "test", "Caption 770337. ", file, "images[0].sentences[0]", "a.jpg")
    assert second.row == "images[0].sentences[1]"
    assert [c.split for c in rest] == ["restval", "train"]


def test_a_cocoid_is_in_all_images_or_in_none(read: Read) -> None:
    """COCO's ids beside file names would be ids of two kinds in one table."""
    remedy = "give every image its cocoid, or none"
    for images, problem in (
        ([*COCO[:2], without(COCO[2], "cocoid")], r"images\[2\]: no 'cocoid', which images before this one have"),
        ([without(COCO[0], "cocoid"), *COCO[1:]], r"images\[1\]: a 'cocoid', which no images before this one have"),
    ):
        with pytest.raises(InputError, match=rf"dataset_coco.json row {problem} -> {remedy}"):
            read(images)


def test_an_image_without_cocoid_is_called_by_its_file(read: Read) -> None:
    (caption,) = read([image("1000092795.jpg", "train", 0)])
    assert (caption.image_id, caption.caption_id, caption.image_file) == (
        "1000092795.jpg",
        "0",
        "1000092795.jpg",
    )


def test_splits_are_kept_by_name(read: Read) -> None:
    assert [c.image_id for c in read(COCO, "test")] == ["391895", "391895"]
    assert [(c.image_id, c.split) for c in read(COCO, "train+restval")] == [("5", "restval"), ("7", "train")]
    assert [c.image_id for c in read([image("d.jpg", "a+b", 1)], "a+b")] == ["d.jpg"]


@pytest.mark.parametrize("split", ["dev", "train+dev"])
def test_an_unknown_split_is_refused(read: Read, split: str) -> None:
    with pytest.raises(InputError, match=r"coco.json: no split 'dev' -> choose .* from: test, restval, train"):
        read(COCO, split)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({}, r"dataset_coco.json: no list 'images' -> give one of Karpathy's files"),
        ([image("a", "test")], r"row images\[0\]: image a has no sentences -> drop the image"),
        ([without(COCO[0], "filename")], r"row images\[0\]: no 'filename' .* -> give one of Karpathy's"),
        ([without(COCO[0], "split")], r"row images\[0\]: no 'split' .* -> give one of Karpathy's"),
        ([without(COCO[0], "sentences")], r"row images\[0\]: no list 'sentences' -> give one of Karpathy's"),
        (
            [{**COCO[0], "sentences": ["A man."]}],
            r"row images\[0\].sentences\[0\]: 'A man.' is not a JSON object",
        ),
        (
            [{**COCO[0], "sentences": [{"raw": "A"}]}],
            r"row images\[0\].sentences\[0\]: no 'sentid' \(there is raw\)",
        ),
        (
            [{**COCO[0], "sentences": [{"sentid": 1}]}],
            r"row images\[0\].sentences\[0\]: no 'raw' .* -> give one",
        ),
        ([{**COCO[0], "cocoid": None}], r"row images\[0\]: 'cocoid' is None, not an id -> give 'cocoid'"),
        ([COCO[1], COCO[1]], r"row images\[1\]: image 5 is listed twice -> keep one"),
    ],
)
def test_bad_files_are_refused(read: Read, images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(images)
