"""Stage captions: what is written, and what no source may hand over."""

from pathlib import Path

import pytest

from capgrade.pipelines.captions import captions
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.schemas.arrow import TABLE_FORMAT, ArrowFile, metadata_of
from capgrade.schemas.block import validated
from capgrade.schemas.captions import SCHEMA, parts_of_split, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, package_version
from capgrade.schemas.say import CapgradeWarning

ROWS = "image_id\tcaption_id\tcaption\tsplit\n"
TSV = (
    ROWS + "b\t1\tA dog's bone.\ttrain\na\t2\tTwo cats\ttrain\nb\t3\tكلب 🐶 e\u0301\ttrain\nv\t4\tA"
    " tree!\tval\n"
)


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
    schema = ArrowFile(tmp_path / "out" / "captions.arrow").schema
    assert schema.equals(SCHEMA)
    assert metadata_of(schema) == {
        "kind": "captions",
        "source": "tsv",
        "tokenizer": "ptb_py",
        "inputs": {"c.tsv": digest(tmp_path / "c.tsv")},
        "format": TABLE_FORMAT,
        "package": package_version(),
    }


UNICODE = (
    "a 🐕‍🦺 👩🏽‍🚒",
    "שלום עולם",
    "e\u0301 \u0915\u094d\u0937",
    "\u200fكلب\u200e",
    "犬が走る",
    "a\u2028b\x85c",
    "ﬁ ½ Ⅷ",
)  # fmt: skip


def test_any_unicode_is_kept(tmp_path: Path) -> None:
    rows = "".join(f"{text}\t{text}#0\t{text}\tt\n" for text in UNICODE)
    captions(tmp_path / "out", write(tmp_path / "c.tsv", ROWS + rows))
    found = read_captions(tmp_path / "out")
    assert found.image_ids == found.texts == list(UNICODE) and found.caption_ids == [
        f"{text}#0" for text in UNICODE
    ]
    assert all(found.table["tokens"].to_pylist())


def test_splits_one_several_or_none(tmp_path: Path) -> None:
    captions(tmp_path / "out", write(tmp_path / "c.tsv", TSV))
    assert read_captions(tmp_path / "out", "train+val").n_captions == 4
    with pytest.raises(InputError, match="several splits: train, val -> choose one by split"):
        read_captions(tmp_path / "out")
    with pytest.raises(InputError, match="no split 'test' -> choose from: train, val"):
        read_captions(tmp_path / "out", "train+test")


def test_empty_captions_are_dropped_and_counted_when_asked(tmp_path: Path) -> None:
    params = write(tmp_path / "c.tsv", TSV + "v\t5\t \tval\nv\t6\t...\tval\ne\t9\t\tval\n")
    message = (
        r"row 6: caption '5' has no words \(' '\); in all 2 captions without words and 1 captions"
        r" absent -> mend"
    )
    with pytest.raises(InputError, match=message):
        captions(tmp_path / "out", params)
    manifest = captions(tmp_path / "out", params.model_copy(update={"empty": "drop"}))
    left_out = {
        "captions without words": 2,
        "captions absent": 1,
        "images left without captions": 1,
    }
    assert (manifest["left_out"], manifest["splits"]["val"], manifest["images"]) == (left_out, 1, 3)
    params = write(tmp_path / "c.tsv", ROWS + "e\t9\t-\tval\n").model_copy(update={"empty": "drop"})
    with pytest.raises(
        InputError,
        match="row 2: no caption with words: 1 captions without words -> name the column",
    ):
        captions(tmp_path / "out", params)


def test_captions_that_repeat_another_of_their_image_are_counted(tmp_path: Path) -> None:
    params = write(tmp_path / "c.tsv", TSV + "a\t9\tTwo cats\ttrain\nv\t8\tTwo cats\tval\n")
    with pytest.warns(
        CapgradeWarning, match="1 captions repeat another caption of their image word for word"
    ):
        manifest = captions(tmp_path / "out", params)
    assert manifest["duplicates"] == 1


def test_scenes_come_with_images_and_truth(tmp_path: Path) -> None:
    params = CaptionsParams(scenes=ScenesParams(train=3, val=0, test=2, size=64))
    manifest = captions(tmp_path, params)
    assert manifest["files"].keys() == {
        "captions.arrow",
        "images.arrow",
        "meanings.arrow",
        "scenes.arrow",
        "truth-test.arrow",
        "truth-train.arrow",
    }
    assert manifest["splits"] == {"train": 15, "test": 10}
    assert read_captions(tmp_path, "test").table["image_file"][0].as_py() == "scene-test-000000.png"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "a\t2\tagain\ttrain\n",
            r"c.tsv row 6: duplicate caption id '2', first at row 3 -> caption ids must be",
        ),
        ("a\t9\tagain\tval\n", r"row 6: image 'a' is in split 'train' and in 'val'"),
        (
            "a\t9\t \ttrain\n",
            (
                r"row 6: caption '9' has no words \(' '\); in all 1 captions without words -> mend"
                r" them"
            ),
        ),
        ("a\t9\t. !\ttrain\n", "row 6: caption '9' has no words"),
    ],
)
def test_what_is_refused(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        captions(tmp_path / "out", write(tmp_path / "c.tsv", TSV + more))
    with pytest.raises(
        InputError, match="c.tsv: no captions: empty, or a header alone -> check that it is whole"
    ):
        captions(tmp_path / "out", write(tmp_path / "c.tsv", ROWS))
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "coco"}, "source coco needs an input, captions.input or --input"),
        (
            {"input": "c.tsv"},
            "source scenes takes no input or split, here 'c.tsv'; name a source, as --source csv",
        ),
        ({"split": "test"}, "source scenes takes no input or split, here 'test'"),
        (
            {"source": "tsv", "input": "x", "split_lists": {"a": "b"}},
            "source tsv takes no split lists",
        ),
        (
            {"source": "coco", "input": "x", "columns": {"caption": "b"}},
            "source coco takes no columns",
        ),
        (
            {"source": "webdataset", "input": "x", "columns": {"image_id": "b"}},
            "source webdataset takes the column capt",
        ),
        (
            {"source": "flickr", "input": ["x", "y"]},
            "source flickr takes one input; coco, karpathy, .* take several",
        ),
    ],
)
def test_what_a_source_would_pass_over(given: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        validated(CaptionsParams, given)


def test_a_split_whose_name_has_a_plus() -> None:
    """Chosen as it is called, where there is one; else its parts."""
    assert (
        parts_of_split("a+b", ["a", "b", "a+b"], "f")
        == ["a+b"]
        == parts_of_split("a+b", ["a+b"], "f")
    )
    assert parts_of_split("a+b", ["b", "a"], "f") == ["a", "b"]
    with pytest.raises(InputError, match="f: no split 'c' -> choose from: a, b"):
        parts_of_split("a+c", ["a", "b"], "f")


def test_inputs_of_one_name_are_all_in_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "f.token").write_text("".join(f"{name}.jpg#0\ta dog\n" for name in "ab"))
    for split, image in (("train", "a"), ("dev", "b")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "list.txt").write_text(f"{image}.jpg\n")
    lists = {split: str(tmp_path / split / "list.txt") for split in ("train", "dev")}
    params = CaptionsParams(source="flickr", input=str(tmp_path / "f.token"), split_lists=lists)
    inputs = captions(tmp_path / "out", params)["inputs"]
    assert sorted(inputs) == ["dev/list.txt", "f.token", "train/list.txt"]
    assert (
        inputs["dev/list.txt"] == digest(tmp_path / "dev" / "list.txt") != inputs["train/list.txt"]
    )


def test_numbers_of_images_and_captions_are_found_however_an_accent_is_spelt(
    tmp_path: Path,
) -> None:
    """Judgements, scores and features name images so."""
    one, other = "caf\u00e9.jpg", "cafe\u0301.jpg"
    captions(tmp_path / "out", write(tmp_path / "c.tsv", f"image_id\tcaption\n{one}\tA cup.\n"))
    table = read_captions(tmp_path / "out")
    assert table.image_numbers[other] == table.image_numbers[one] == 0
    assert table.caption_numbers.get(f"{other}#0") == 0 and "z" not in table.image_numbers
