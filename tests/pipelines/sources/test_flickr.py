"""Flickr token files with and without lists of the images of a split."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from capgrade.pipelines.sources import SOURCES
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tA brown dog .\nb.jpg#0\tA cat .\nc.jpg.1#0\tNobody's .\n"
FLICKR8K = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "flickr8k"
Read = Callable[..., list[Caption]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def written(tokens: str = TOKENS, split: str | None = None, **lists: str) -> list[Caption]:
        path = tmp_path / "tokens.txt"
        path.write_text(tokens)
        for name, text in lists.items():
            (tmp_path / f"{name}.txt").write_text(text)
        files = {name: str(tmp_path / f"{name}.txt") for name in lists}
        params = CaptionsParams(source="flickr", input=str(path), split=split, split_lists=files)
        return list(SOURCES["flickr"](params))

    return written


def test_without_lists_everything_is_one_split(read: Read, tmp_path: Path) -> None:
    captions = read()
    file = str(tmp_path / "tokens.txt")
    assert captions[1] == Caption("a.jpg", "a.jpg#1", "all", "A brown dog .", file, 2, "a.jpg")
    assert [c.image_id for c in captions] == ["a.jpg", "a.jpg", "b.jpg", "c.jpg.1"]
    assert {c.split for c in read(split="test")} == {"test"}


def test_lists_give_the_split_and_the_rest_is_counted(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        captions = read(train="b.jpg\n", dev="a.jpg\r\n")
    assert [(c.caption_id, c.split) for c in captions] == [
        ("a.jpg#0", "dev"),
        ("a.jpg#1", "dev"),
        ("b.jpg#0", "train"),
    ]
    assert "1 captions left out, their images are in no list" in caplog.text


def test_a_split_of_the_lists_is_kept(read: Read) -> None:
    assert [c.caption_id for c in read(split="train", train="b.jpg\n", dev="a.jpg\n")] == ["b.jpg#0"]
    with pytest.raises(InputError, match=r"tokens.txt: no split 'test' -> choose with --split from: dev, train"):
        read(split="test", train="b.jpg\n", dev="a.jpg\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("b.jpg#0 A cat .", r"tokens.txt row 5: no tab between .* -> write each row as file.jpg#k, a tab"),
        ("", r"tokens.txt row 5: no tab"),
        (
            "b.jpg\tA cat .",
            r"tokens.txt row 5: 'b.jpg' is not a file name, '#' and a number -> write each row",
        ),
        ("b.jpg#one\tA cat .", r"tokens.txt row 5: 'b.jpg#one' is not a file name"),
        ("#0\tA cat .", r"tokens.txt row 5: '#0' is not a file name"),
    ],
)
def test_bad_rows_are_refused(read: Read, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(f"{TOKENS}{line}\n")


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            {"train": "a.jpg\nb.jpg\n", "dev": "b.jpg\n"},
            r"dev.txt row 1: image 'b.jpg' is already in .*train.txt row 2",
        ),
        (
            {"train": "a.jpg\na.jpg\n"},
            r"train.txt row 2: image 'a.jpg' is already in .* -> keep it in one list, once",
        ),
        (
            {"train": "a.jpg\nz.jpg\n"},
            r"train.txt row 2: image 'z.jpg' has no caption in .* -> drop it from the list",
        ),
        ({"train": "a.jpg\n\n"}, r"train.txt row 2: no image in this row -> delete the empty row"),
    ],
)
def test_bad_lists_are_refused(read: Read, lists: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(**lists)


@pytest.mark.skipif(not FLICKR8K.is_dir(), reason=f"no Flickr8k at {FLICKR8K}")
def test_flickr8k(caplog: pytest.LogCaptureFixture) -> None:
    lists = {split: str(FLICKR8K / f"Flickr_8k.{split}Images.txt") for split in ("train", "dev", "test")}
    tokens = str(FLICKR8K / "Flickr8k.token.txt")
    with caplog.at_level(logging.INFO):
        captions = list(SOURCES["flickr"](CaptionsParams(source="flickr", input=tokens, split_lists=lists)))
    assert Counter(c.split for c in captions) == {"train": 30_000, "dev": 5_000, "test": 5_000}
    assert "460 captions left out" in caplog.text
    assert len({c.image_id for c in captions}) == 8_000
    everything = list(SOURCES["flickr"](CaptionsParams(source="flickr", input=tokens)))
    assert len(everything) == 40_460
    assert len({c.image_id for c in everything}) == 8_093  # 8,092 and the slip below
    assert "2258277193_586949ec62.jpg.1" in {c.image_id for c in everything}
