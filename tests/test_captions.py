"""Stage captions: what is written, and what no source may hand over."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.captions import captions
from schemas.captions import read_captions
from schemas.errors import InputError
from schemas.files import digest, metadata_of, open_arrow
from schemas.params import CaptionsParams, ScenesParams

ROWS = "image_id\tcaption_id\tcaption\tsplit\n"
TSV = ROWS + "b\t1\tA dog's bone.\ttrain\na\t2\tTwo cats\ttrain\nb\t3\tكلب 🐶 e\u0301\ttrain\nv\t4\tA tree!\tval\n"


def write(path: Path, text: str) -> CaptionsParams:
    path.write_text(text, encoding="utf-8")
    return CaptionsParams(source="tsv", input=str(path))


def test_the_table_keeps_the_source_s_order(tmp_path: Path) -> None:
    params = write(tmp_path / "c.tsv", TSV)
    manifest = captions(tmp_path / "out", params)
    assert manifest["splits"] == {"train": 3, "val": 1}
    assert manifest["images"] == 3
    train = read_captions(tmp_path / "out", "train")
    assert train.image_ids == ["b", "a"]
    assert train.caption_ids == ["1", "2", "3"]
    assert train.texts[2] == "كلب 🐶 e\u0301"
    assert train.table["tokens"][0].as_py() == ["a", "dog", "'s", "bone"]
    assert train.owner.tolist() == [0, 1, 0]
    assert (train.ref_ptr.tolist(), train.refs.tolist()) == ([0, 2, 3], [0, 2, 1])
    metadata = metadata_of(open_arrow(tmp_path / "out" / "captions.arrow").schema)
    assert metadata["tokenizer"] == "ptb_py"
    assert metadata["inputs"] == {"c.tsv": digest(tmp_path / "c.tsv")}
    assert {"format", "package"} <= metadata.keys()


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    params = write(tmp_path / "c.tsv", TSV)
    for name in "ab":
        captions(tmp_path / name, params)
    for file in ("captions.arrow", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_splits_one_several_or_none(tmp_path: Path) -> None:
    captions(tmp_path, write(tmp_path / "c.tsv", TSV))
    assert read_captions(tmp_path, "train+val").n_captions == 4
    with pytest.raises(InputError, match="several splits: train, val -> choose one with --split"):
        read_captions(tmp_path)
    with pytest.raises(InputError, match="no split 'test' -> choose from: train, val"):
        read_captions(tmp_path, "train+test")


def test_one_to_hundreds_of_captions_an_image(tmp_path: Path) -> None:
    rows = "".join(f"many\tm{k}\tcaption number {k}\tt\n" for k in range(400))
    captions(tmp_path / "out", write(tmp_path / "c.tsv", ROWS + "one\to\ta dog\tt\n" + rows))
    assert read_captions(tmp_path / "out").ref_ptr.tolist() == [0, 1, 401]


def test_empty_captions_are_dropped_and_counted_when_asked(tmp_path: Path) -> None:
    params = write(tmp_path / "c.tsv", TSV + "v\t5\t \tval\nv\t6\t...\tval\n")
    manifest = captions(tmp_path / "out", params.model_copy(update={"empty": "drop"}))
    assert manifest["dropped_empty"] == 2
    assert manifest["splits"]["val"] == 1


def test_scenes_come_with_images_and_truth(tmp_path: Path) -> None:
    params = CaptionsParams(scenes=ScenesParams(train=3, val=0, test=2, size=64))
    manifest = captions(tmp_path, params)
    assert manifest["files"].keys() == {
        "captions.arrow", "images.arrow", "meanings.arrow", "scenes.arrow", "truth-test.arrow", "truth-train.arrow",
    }  # fmt: skip
    assert manifest["splits"] == {"train": 15, "test": 10}
    assert read_captions(tmp_path, "test").table["image_file"][0].as_py() == "scene-test-000000.png"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "a\t2\tagain\ttrain\n",
            r"c.tsv row 6: duplicate caption id '2', first at row 3 -> caption ids must be unique",
        ),
        ("a\t9\tagain\tval\n", r"row 6: image 'a' is in split 'train' and in 'val'"),
        (
            "a\t9\t \ttrain\n",
            r"row 6: caption '9' has no words \(' '\), 1 such in all -> mend them, or set captions.empty",
        ),
        ("a\t9\t. !\ttrain\n", "row 6: caption '9' has no words"),
    ],
)
def test_what_is_refused(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        captions(tmp_path / "out", write(tmp_path / "c.tsv", TSV + more))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_image_left_without_captions(tmp_path: Path) -> None:
    params = write(tmp_path / "c.tsv", TSV + "e\t9\t-\tval\n").model_copy(update={"empty": "drop"})
    with pytest.raises(InputError, match="row 6: image 'e' has no caption left once empty ones are dropped"):
        captions(tmp_path / "out", params)


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no captions"):
        captions(tmp_path / "out", write(tmp_path / "c.tsv", ROWS))
