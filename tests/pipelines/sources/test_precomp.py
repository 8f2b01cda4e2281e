"""SCAN's folders: five captions per image, ids one per caption or one per image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capgrade.pipelines.sources import SOURCES
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

CAPTIONS = [f"caption {k}" for k in range(10)]
Read = Callable[..., list[Caption]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def written(
        captions: list[str] = CAPTIONS, ids: list[str] | None = None, split: str | None = "test"
    ) -> list[Caption]:
        (tmp_path / "test_caps.txt").write_text("".join(f"{line}\n" for line in captions))
        if ids is not None:
            (tmp_path / "test_ids.txt").write_text("".join(f"{line}\n" for line in ids))
        return list(SOURCES["precomp"](CaptionsParams(source="precomp", input=str(tmp_path), split=split)))

    return written


def test_without_ids_images_are_numbered(read: Read, tmp_path: Path) -> None:
    captions = read()
    assert captions[6] == Caption("test-1", "test-1#1", "test", "caption 6", str(tmp_path / "test_caps.txt"), 7)
    assert [c.image_id for c in captions] == ["test-0"] * 5 + ["test-1"] * 5


def test_several_splits_one_after_the_other(read: Read, tmp_path: Path) -> None:
    (tmp_path / "dev_caps.txt").write_text("".join(f"dev {k}\n" for k in range(5)))
    captions = read(split="test+dev")
    assert [c.split for c in captions] == ["test"] * 10 + ["dev"] * 5
    assert [c.image_id for c in captions[::5]] == ["test-0", "test-1", "dev-0"]
    with pytest.raises(InputError, match=r"no train_caps.txt -> choose with --split from: dev, test"):
        read(split="test+train")
    (tmp_path / "test+dev_caps.txt").write_text("".join(f"both {k}\n" for k in range(5)))
    assert {c.image_id for c in read(split="test+dev")} == {"test+dev-0"}, "a split may be called so"


@pytest.mark.parametrize("ids", [["391895", "60623"], ["391895"] * 5 + ["60623"] * 5])
def test_ids_an_image_or_a_caption(read: Read, ids: list[str]) -> None:
    captions = read(ids=ids)
    assert [c.image_id for c in captions] == ["391895"] * 5 + ["60623"] * 5
    assert [c.caption_id for c in captions][4:6] == ["391895#4", "60623#0"]
    assert [c.text for c in captions] == CAPTIONS


def test_one_image_of_five_captions(read: Read) -> None:
    assert {c.image_id for c in read(CAPTIONS[:5], ids=["7"])} == {"7"}
    assert {c.image_id for c in read(CAPTIONS[:5], ids=["7"] * 5)} == {"7"}


@pytest.mark.parametrize(
    ("captions", "ids", "message"),
    [
        (CAPTIONS[:9], None, r"test_caps.txt: 9 captions, not a multiple of 5 -> use --source tsv"),
        (
            CAPTIONS,
            ["1", "2", "3"],
            r"test_ids.txt: 3 ids for the 10 captions of test_caps.txt -> give one id per caption",
        ),
        (
            CAPTIONS[:9],
            ["1"] * 9,
            r"test_ids.txt: 9 ids for the 9 captions .* -> give one id per caption or one for every 5",
        ),
        (CAPTIONS, ["1", ""], r"test_ids.txt row 2: no id in this row -> delete the empty row"),
        (CAPTIONS, ["8", "8"], r"test_ids.txt: image 8 comes 2 times, 5 captions each -> use --source tsv"),
        (
            CAPTIONS,
            ["1"] * 5 + ["2"] * 3 + ["3"] * 2,
            r"test_ids.txt row 9: id 3 where 2 is expected, .* -> give image ids, not sentence ids, each 5 times",
        ),
    ],
)
def test_counts_that_do_not_fit_are_refused(
    read: Read, captions: list[str], ids: list[str] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(captions, ids)


def test_the_split_has_to_be_said_and_there(read: Read, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"which split is not said -> choose with --split from: test"):
        read(split=None)
    with pytest.raises(InputError, match=r"no dev_caps.txt -> choose with --split from: test"):
        read(split="dev")
    (tmp_path / "test_caps.txt").unlink()
    empty = CaptionsParams(source="precomp", input=str(tmp_path), split="test")
    with pytest.raises(InputError, match=r"no test_caps.txt -> give a folder .* this one has none"):
        list(SOURCES["precomp"](empty))
    absent = CaptionsParams(source="precomp", input=str(tmp_path / "absent"), split="test")
    with pytest.raises(InputError, match=r"absent: no test_caps.txt -> give the folder that holds"):
        list(SOURCES["precomp"](absent))
