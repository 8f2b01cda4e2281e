"""The readers of captions on any bytes: captions that Arrow can hold, or InputError; nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capgrade.pipelines.sources import read_source
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams
from tests.test_fuzz_files import QUICK, changed

# One whole file a format.
VALID: dict[str, bytes] = {
    "tsv": "image_id\tcaption_id\tcaption\na\t1\tA dog’s 🐶\nb\t2\tA cat\n".encode(),
    "csv": b'image_id,caption_id,caption\na,1,"A dog, a cat"\nb,2,"a\nb"\n',
    "jsonl": b'{"image_id": "a", "caption": ["x", "y"]}\n{"image_id": 2, "caption": "z"}\n',
    "coco": b'{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"id": 2, "image_id": 1, "caption": "x"}]}',
    "karpathy": b'{"images": [{"filename": "a.jpg", "cocoid": 3, "split": "test", "sentences": '
    b'[{"raw": "x", "sentid": 4}]}]}',
    "flickr": b"a.jpg#0\tA dog .\na.jpg#1\tA cat .\n",
    "precomp": b"one\ntwo\nthree\nfour\nfive\n",
}
ODD = ["\\ud800", "\x00", "\u2028", "\ufeff", "9" * 5000, "[" * 3000, '{"a":' * 3000, "1e999", "NaN", '"', "\t", "\r"]


def read(source: str, folder: Path, content: bytes, **options: Any) -> list[Caption] | InputError:
    path = folder / "test_caps.txt" if source == "precomp" else folder / "captions_x.json"
    path.write_bytes(content)
    given_path = folder if source == "precomp" else path
    params = CaptionsParams(source=source, input=str(given_path), **options)  # type: ignore[arg-type]
    try:
        found = list(read_source(params))
    except InputError as error:
        assert str(error).isprintable() or "\n" not in str(error)
        assert str(folder) in str(error)
        return error
    for caption in found:
        texts = (caption.image_id, caption.caption_id, caption.split, caption.text, caption.image_file or "")
        assert all(isinstance(text, str) and text.encode("utf-8") is not None for text in texts)
        assert caption.image_id and caption.caption_id
    return found


def options(source: str) -> dict[str, Any]:
    return {"split": "test"} if source == "precomp" else {}


@pytest.mark.parametrize("source", VALID)
@QUICK
@given(data=st.data())
def test_changed_files(source: str, tmp_path: Path, data: st.DataObject) -> None:
    assert isinstance(read(source, tmp_path, VALID[source], **options(source)), list)
    content = data.draw(changed(VALID[source], odd=[odd.encode() for odd in ODD]))
    read(source, tmp_path, content, **options(source))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["images", "annotations", "sentences", "id", "raw", "caption"]), inner),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("source", ["jsonl", "coco", "karpathy"])
@QUICK
@given(value=JSON)
def test_any_json(source: str, tmp_path: Path, value: Any) -> None:
    read(source, tmp_path, json.dumps(value).encode())


@pytest.mark.parametrize("source", ["jsonl", "coco", "karpathy"])
@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"a":' * 200_000, b"9" * 5000, b'{"images": ' + b"9" * 5000])
def test_json_that_python_will_not_parse(source: str, tmp_path: Path, content: bytes) -> None:
    error = read(source, tmp_path, content)
    assert isinstance(error, InputError) and "not valid JSON" in error.problem


@QUICK
@given(listing=st.binary(max_size=80))
def test_lists_of_splits(tmp_path: Path, listing: bytes) -> None:
    (tmp_path / "list.txt").write_bytes(listing)
    read("flickr", tmp_path, VALID["flickr"], split_lists={"t": str(tmp_path / "list.txt")})


@QUICK
@given(ids=st.binary(max_size=80))
def test_ids_of_precomp(tmp_path: Path, ids: bytes) -> None:
    (tmp_path / "test_ids.txt").write_bytes(ids)
    read("precomp", tmp_path, VALID["precomp"], split="test")
