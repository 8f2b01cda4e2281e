"""Captions in WebDataset tars."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capgrade.pipelines.captions import captions
from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams, Columns
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from tests.schemas.test_tars import write_tar

FIRST = {
    "000.jpg": b"...",
    "000.txt": b"A dog.\r\n",
    "000.json": b'{"caption": "A hound.", "alt": ["A", "B"]}',
    "001.png": b"...",
    "001.txt": "\ufeffA cat.\n\nTwo cats.\n".encode(),
    "002.txt": b"No picture.",
    "003.jpg": b"...",
    "003.txt": b" \n",
    "004.jpg": b"...",
}


def read(name: Path | list[str], key: str | None = None, **more: Any) -> list[Caption]:
    given = str(name) if isinstance(name, Path) else name
    return list(
        read_source(
            CaptionsParams(source="webdataset", input=given, columns=Columns(caption=key)), **more
        )
    )


def test_a_sample_a_key_with_its_texts(tmp_path: Path) -> None:
    write_tar(tmp_path / "00000.tar", FIRST)
    left_out = Counter[str]()
    found = read(tmp_path / "00000.tar", left_out=left_out)
    assert found[0] == Caption(
        "000", "000#0", "all", "A dog.", str(tmp_path / "00000.tar"), "000.jpg", "000.jpg"
    )
    assert [(c.caption_id, c.text) for c in found[1:]] == [
        ("001#0", "A cat."),
        ("001#1", "Two cats."),
    ]
    assert left_out == {"samples without a picture": 1, "samples without a caption": 2}
    assert [c.text for c in read(tmp_path / "00000.tar", "caption")] == ["A hound."]
    assert [c.text for c in read(tmp_path / "00000.tar", "alt")] == ["A", "B"]
    write_tar(tmp_path / "00001.tar", {"d/100.jpg": b"...", "d/100.txt": b"A tree."})
    for given in (
        tmp_path,
        tmp_path / "{00000..00001}.tar",
        [str(tmp_path / f"0000{k}.tar") for k in range(2)],
    ):
        assert [c.image_file for c in read(given)] == ["000.jpg", "001.png", "001.png", "d/100.jpg"]
    params = CaptionsParams(source="webdataset", input=str(tmp_path), split="train")
    manifest = captions(tmp_path / "out", params)
    assert (manifest["left_out"], manifest["splits"]) == (dict(left_out), {"train": 4})


def test_what_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a" / "0.tar", FIRST)
    write_tar(tmp_path / "a" / "1.tar", {"001.jpg": b".", "001.txt": b"Again."})
    with pytest.raises(
        InputError,
        match=r"1.tar row 001: sample '001' is in .*0.tar already -> give every sample a key",
    ):
        read(tmp_path / "a")
    path = write_tar(tmp_path / "b.tar", {"0.jpg": b".", "0.json": b'{"text": 5}'})
    message = (
        r"no sample has a KEY.txt; members: jpg 1, json 1 -> name the key of KEY.json that holds"
        r" it: --columns capt"
    )
    with pytest.raises(InputError, match=f"b.tar: {message}"):
        read(path)
    with pytest.raises(InputError, match=r"b.tar row 0.json: 'text' is 5, not a text"):
        read(path, "text")
    with pytest.raises(InputError, match=r"b.tar: no sample has 'caption' in a KEY.json; members"):
        read(path, "caption")
    for content, message in (
        (b'{"text": "A', "not valid JSON at column"),
        (b"[]", "is not a JSON object"),
    ):
        with pytest.raises(InputError, match=f"b.tar .*0.json.*{message}"):
            read(write_tar(tmp_path / "b.tar", {"0.jpg": b".", "0.json": content}), "text")
