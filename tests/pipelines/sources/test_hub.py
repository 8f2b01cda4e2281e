"""Hugging Face datasets: saved folders, data files, columns, splits, refusals."""

from pathlib import Path

import datasets
import pytest
from datasets import Dataset, DatasetDict, Image
from datasets.exceptions import DatasetNotFoundError

from capgrade.pipelines.sources import read_source
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams, Columns

ROWS = [
    {"image_id": 7, "caption": ["A dog.", "A brown dog."]},
    {"image_id": 8, "caption": ["A cat."]},
]
BIRD = {"image_id": 9, "caption": ["A bird."]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def read(name: Path | str, split: str | None = None, **columns: str) -> list[Caption]:
    params = CaptionsParams(source="hub", input=str(name), split=split, columns=Columns(**columns))
    return list(read_source(params))


def saved(folder: Path, **splits: list[dict]) -> Path:
    DatasetDict({name: Dataset.from_list(rows) for name, rows in splits.items()}).save_to_disk(
        folder / "saved"
    )
    return folder / "saved"


def test_a_saved_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    Dataset.from_list(ROWS).save_to_disk(folder)
    captions = read(folder, split="test")
    assert captions[1] == Caption("7", "7#1", "test", "A brown dog.", str(folder), "test[0]")
    assert [(c.image_id, c.text) for c in captions][2] == ("8", "A cat.")
    assert {c.split for c in read(folder)} == {"all"}
    Dataset.from_list(ROWS, split=datasets.Split.TRAIN).save_to_disk(tmp_path / "train")
    assert {c.split for c in read(tmp_path / "train")} == {"train"}, "it knows its split"


def test_saved_splits(tmp_path: Path) -> None:
    folder = saved(tmp_path, train=ROWS, val=[BIRD], test=ROWS[1:])
    assert [c.split for c in read(folder)] == ["train", "train", "train", "val", "test"]
    assert [(c.split, c.row) for c in read(folder, split="val+test")] == [
        ("val", "val[0]"),
        ("test", "test[0]"),
    ]


@pytest.mark.parametrize("field", ["caption_id", "split"])
def test_an_optional_field_is_everywhere_or_nowhere(tmp_path: Path, field: str) -> None:
    one = {"image_id": 7, "caption": "A dog."}
    other = {"image_id": 8, "caption": "A cat.", field: "x"}
    problem = (
        rf"row train: no column '{field}', which split 'test' has -> give it in every split, or in"
        r" none"
    )
    with pytest.raises(InputError, match=problem):
        read(saved(tmp_path, train=[one], test=[other]))
    path = tmp_path / "captions.jsonl"
    path.write_text(
        f'{{"image_id": 7, "caption": "A dog."}}\n{{"image_id": 8, "caption": "A cat.", "{field}":'
        ' "x"}\n'
    )
    with pytest.raises(
        InputError, match=rf"row 2: '{field}', which rows before this one do not have"
    ):
        read(path)


def test_flickr30k_columns_without_touching_the_images(tmp_path: Path) -> None:
    row = {
        "image": b"no picture",
        "img_id": "0",
        "caption": ["A", "B"],
        "sentids": ["1", "2"],
        "split": "val",
    }
    Dataset.from_list([row]).cast_column("image", Image()).save_to_disk(tmp_path / "saved")
    captions = read(tmp_path / "saved", split="val", image_id="img_id", caption_id="sentids")
    found = [(c.image_id, c.caption_id, c.split, c.text) for c in captions]
    assert found == [("0", "1", "val", "A"), ("0", "2", "val", "B")]


def test_where_pictures_are_is_read_without_their_bytes(tmp_path: Path) -> None:
    rows = [
        {"image": {"bytes": b"no picture", "path": path}, "caption": ["A", "B"]}
        for path in ("a/1.jpg", "/x/2.jpg")
    ]
    Dataset.from_list(rows).cast_column("image", Image()).save_to_disk(tmp_path / "saved")
    found = read(tmp_path / "saved", split="test")
    assert [(c.image_id, c.caption_id, c.image_file) for c in found[::2]] == [
        ("test-0", "test-0#0", "1.jpg"), ("test-1", "test-1#0", "2.jpg"),
    ]  # fmt: skip
    more = [{**row, "id": k, "filename": f"{k}.jpg"} for k, row in enumerate(rows)]
    # its metadata do not say that these are pictures
    Dataset.from_list(more).to_parquet(tmp_path / "plain.parquet")
    found = read(tmp_path / "plain.parquet", image_id="id")
    assert [(c.image_id, c.image_file) for c in found[::2]] == [("0", "0.jpg"), ("1", "1.jpg")]
    with pytest.raises(
        InputError,
        match="no column 'image_id' for the image_id -> .*=NAME; there are: image, caption",
    ):
        read(tmp_path / "plain.parquet")


def test_tars_are_named_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars" / "00000.tar").write_bytes(b"x" * 1024)
    for source in ("hub", "csv", "coco", "flickr"):
        for name in ("tars", "tars/00000.tar", "tars/{00000..00001}.tar"):
            with pytest.raises(
                InputError, match=": WebDataset tars -> read them with --source webdataset"
            ):
                list(read_source(CaptionsParams(source=source, input=str(tmp_path / name))))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_folders_and_files(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "test"):
        dataset = Dataset.from_list([{"image_id": split, "caption": f"A caption of {split}."}])
        getattr(dataset, f"to_{kind}")(str(folder / f"{split}.{kind}"))
    assert [(c.split, c.text) for c in read(folder)] == [
        (s, f"A caption of {s}.") for s in ("train", "test")
    ]
    assert [c.image_id for c in read(folder, split="test")] == ["test"]
    for split in (None, "test"):
        assert [(c.image_id, c.split) for c in read(folder / f"test.{kind}", split=split)] == [
            ("test", "test")
        ]
    with pytest.raises(InputError, match="no split 'val' -> choose from: test"):
        read(folder / f"test.{kind}", split="val")
    (folder / f"test.{kind}").rename(folder / f"mine.{kind}")
    assert [c.split for c in read(folder / f"mine.{kind}")] == ["train"]
    assert [c.split for c in read(folder / f"mine.{kind}", split="test")] == ["test"], "named"


def test_a_file_of_odd_name_or_ids_is_read_itself(tmp_path: Path) -> None:
    """Not those that its name would match as a pattern; an id keeps its zeros."""
    for name, text in (("a[1].jsonl", "this"), ("a1.jsonl", "other")):
        (tmp_path / name).write_text(f'{{"image_id": "1", "caption": "{text}"}}\n')
    assert [c.text for c in read(tmp_path / "a[1].jsonl")] == ["this"]
    (tmp_path / "a.csv").write_text("image_id,caption\n007,1\n")
    assert [(c.image_id, c.text, c.split) for c in read(tmp_path / "a.csv")] == [
        ("007", "1", "train")
    ]


def test_missing_columns_and_wrong_values_are_refused(tmp_path: Path) -> None:
    message = (
        r"saved row a: no column 'image_id' for the image_id -> .*--column image_id=NAME; .*:"
        r" img_id, caption"
    )
    with pytest.raises(InputError, match=message):
        read(saved(tmp_path, a=[{"img_id": 7, "caption": "A dog."}]))
    with pytest.raises(
        InputError, match=r"saved row train\[0\]: 'caption' is 5, not a text -> correct 'caption'"
    ):
        read(saved(tmp_path / "b", train=[{"image_id": 9, "caption": 5}]))


def test_what_cannot_be_loaded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "captions.xls").write_text("")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("absent.parquet", r"no such file -> give a dataset id"),
        ("captions.xls", r"'.xls' is not a kind of table -> give .csv, .tsv, .jsonl, .json"),
        ("empty", r"no tables here: .* -> give a dataset id"),
    ):
        with pytest.raises(InputError, match=rf"{name}: {message}"):
            read(tmp_path / name)

    def absent(name: str, config: str | None, revision: str | None) -> Dataset:
        raise DatasetNotFoundError(
            f"Dataset '{name}' doesn't exist on the Hub or cannot be accessed."
        )

    # it answers
    monkeypatch.setattr("capgrade.pipelines.sources.hub.hub_source", lambda name, *_: name)
    monkeypatch.setattr(datasets, "load_dataset_builder", absent)
    with pytest.raises(
        InputError,
        match=r"no/such: cannot be loaded as a dataset \(Dataset 'no/such' doesn't exist",
    ):
        read("no/such")
