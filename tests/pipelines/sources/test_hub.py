"""Hugging Face datasets: saved folders, data files, columns, splits, refusals."""

import bz2
import gzip
import json
from collections import Counter
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict, Image
from datasets.exceptions import DatasetNotFoundError

from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams, Columns
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

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


def test_a_saved_dataset_of_which_git_lfs_has_the_files(tmp_path: Path) -> None:
    folder = saved(tmp_path, train=ROWS)
    (data,) = (folder / "train").glob("*.arrow")
    data.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n")
    with pytest.raises(InputError, match=rf"{data.name}: a pointer of Git LFS, .* -> git lfs pull"):
        read(folder)


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
        match="no column 'image_id' for the image_id -> .*=NAME; near it: image; choose from: image, caption",
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


IDS = ["007", "7", "0070", "70", "NA", "None", "12345678901234567890", "1e5", "true", "2024-01-01"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "json", "parquet", "csv.gz", "jsonl.bz2"])
def test_ids_of_a_folder_are_kept_to_the_letter(tmp_path: Path, kind: str) -> None:
    """`datasets` would infer numbers, dates and nulls."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"image_id": name, "caption": f"A caption, of {name}."} for name in IDS]
    mark = "\t" if kind == "tsv" else ","
    quoted = ("image_id", "caption"), *((r["image_id"], f'"{r["caption"]}"') for r in rows)
    text = {
        "csv": "".join(f"{mark.join(row)}\n" for row in quoted),
        "tsv": "".join(f"{mark.join(row)}\n".replace('"', "") for row in quoted),
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "json": json.dumps(rows, indent=1),
    }
    for split in ("train", "test"):
        path = folder / f"{split}.{kind}"
        if kind == "parquet":
            Dataset.from_list(rows).to_parquet(path)
            continue
        ending, _, packed = kind.partition(".")
        pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(packed, bytes)
        path.write_bytes(pack(text[ending].encode()))
    found = read(folder)
    assert [c.image_id for c in found] == IDS * 2
    assert [c.text for c in found[: len(IDS)]] == [row["caption"] for row in rows]
    assert [c.split for c in found] == ["train"] * len(IDS) + ["test"] * len(IDS)


def write_rows(path: Path, *ids: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"image_id": "{i}", "caption": "Of {i}."}}\n' for i in ids))


def test_no_file_of_a_folder_is_dropped_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`datasets` reads the files that name a split, and no other."""
    folder = tmp_path / "data"
    write_rows(folder / "captions_part1.jsonl", "a", "b")
    write_rows(folder / "captions_part2.jsonl", "c", "a")
    assert [(c.caption_id, c.split) for c in read(folder)] == [
        ("a#0", "train"), ("b#0", "train"), ("c#0", "train"), ("a#1", "train"),
    ]  # fmt: skip
    assert {c.split for c in read(folder, split="dev")} == {"dev"}
    assert len(read(folder / "*part1.jsonl")) == 2
    write_rows(folder / "sub" / "test_notes.jsonl", "e")
    problem = (
        r"data: the names of 2 of 3 tables tell no split \(captions_part1.jsonl,"
        r" captions_part2.jsonl\), and others do, as 'test' of sub/test_notes.jsonl -> name each"
    )
    with pytest.raises(InputError, match=problem):
        read(folder)
    for k in (1, 2):
        (folder / f"captions_part{k}.jsonl").rename(folder / f"val-{k}.jsonl")
    (folder / "train.jsonl").touch()
    (folder / "picture.jpg").touch()
    (folder / ".hidden.jsonl").touch()
    (folder / "README.md").write_text("About.")
    (folder / "dataset_infos.json").write_text("{}")
    left_out = Counter[str]()
    params = CaptionsParams(source="hub", input=str(folder))
    found = read_source(params, left_out)
    assert [(c.image_id, c.split) for c in found] == [
        ("a", "validation"), ("b", "validation"), ("c", "validation"), ("a", "validation"),
        ("e", "test"),
    ]  # fmt: skip
    assert left_out == {
        "files of another kind": 1,
        "files or splits without a row": 1,
        "pictures, which are given as --images": 1,
    }
    assert "left out: 1 files of another kind: dataset_infos.json" in capsys.readouterr().err


def test_a_split_without_rows_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_rows(folder / "train.jsonl", "a")
    (folder / "test.csv").write_text("image_id,caption\n")
    left_out = Counter[str]()
    read_source(CaptionsParams(source="hub", input=str(folder)), left_out)
    assert left_out == {"files or splits without a row": 1}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_pictures_in_folders_of_splits_with_one_table(tmp_path: Path, ending: str) -> None:
    """The layout of `imagefolder`: file names tell the splits."""
    rows = [("train/0.jpg", "A dog."), ("test/0.jpg", "A cat."), ("train/1.jpg", "A bird.")]
    text = "file_name,caption\n" + "".join(f"{name},{text}\n" for name, text in rows)
    if ending == "jsonl":
        lines = (json.dumps({"file_name": name, "caption": text}) for name, text in rows)
        text = "\n".join(lines) + "\n"
    for name, _ in rows:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / f"metadata.{ending}").write_text(text)
    found = [(c.image_id, c.split, c.image_file) for c in read(tmp_path)]
    assert found == [
        ("train-0", "train", "train/0.jpg"),
        ("test-0", "test", "test/0.jpg"),
        ("train-1", "train", "train/1.jpg"),
    ]


def test_json_that_is_no_list_of_rows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"images": [], "annotations": []}, indent=1))
    with pytest.raises(InputError, match=r"a.json: one object of images, annotations, no list"):
        read(path)
    path.write_text('{"image_id": "007", "caption": "A dog."}\n')
    assert [c.image_id for c in read(path)] == ["007"]


def test_the_card_of_a_folder_tells_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_rows(folder / "mine" / "one.jsonl", "a")
    write_rows(folder / "other" / "two.jsonl", "b")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: mine\n  data_files:\n  - split: restval\n"
        "    path: mine/*.jsonl\n- config_name: other\n  data_files: other/*.jsonl\n---\nWords.\n"
    )
    left_out = Counter[str]()
    params = CaptionsParams(source="hub", input=str(folder), config="mine")
    assert [(c.image_id, c.split) for c in read_source(params, left_out)] == [("a", "restval")]
    assert left_out == {"tables that neither the card nor their names assign to a split": 1}


def test_files_of_the_hub_are_read_as_those_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id with zeros keeps them there too. The stand-in's files lie here."""
    (tmp_path / "train.csv").write_text("image_id,caption\n007,A dog.\n7,A cat.\n")
    builder = datasets.load_dataset_builder(str(tmp_path))
    monkeypatch.setattr("capgrade.pipelines.sources.hub.hub_source", lambda name, *_: name)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: builder)
    there = ["train.csv", "captions_part1.csv", ".gitattributes", "dataset_infos.json"]
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: there)
    left_out = Counter[str]()
    params = CaptionsParams(source="hub", input="some-org/captions")
    found = [(c.image_id, c.split) for c in read_source(params, left_out)]
    assert found == [("007", "train"), ("7", "train")]
    assert left_out == {"tables that neither the card nor their names assign to a split": 1}


def test_labels_are_their_names(tmp_path: Path) -> None:
    """In a saved dataset and in Parquet, which holds their numbers."""
    splits = datasets.ClassLabel(names=["train", "val", "test"])
    features = datasets.Features(
        {"image_id": datasets.Value("int64"), "caption": datasets.Value("string"), "split": splits}
    )
    rows = [{"image_id": k, "caption": f"A {k}.", "split": k} for k in (0, 2, 2)]
    rows = [{**row, "image_id": k} for k, row in enumerate(rows)]
    dataset = Dataset.from_list(rows, features=features)
    dataset.save_to_disk(tmp_path / "saved")
    dataset.to_parquet(tmp_path / "a.parquet")
    for name in ("saved", "a.parquet"):
        assert [c.split for c in read(tmp_path / name)] == ["train", "test", "test"]
        assert [c.image_id for c in read(tmp_path / name, split="test")] == ["1", "2"]
    unlabelled = Dataset.from_list([{**rows[0], "split": -1}], features=features)
    unlabelled.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b.parquet row 1: 'split' is None, not an id"):
        read(tmp_path / "b.parquet")


def test_kinds_of_columns_do_not_matter(tmp_path: Path) -> None:
    """Large texts, dictionaries, lists of a fixed size, ids of any width."""
    kinds = pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())
    ids = pa.array([7, 8], pa.uint64()), pa.array(["7", "8"]), pa.array([7.0, 8.0])
    for k, (kind, id_column) in enumerate(zip(kinds, ids, strict=True)):
        texts = pa.array(["A dog.", "A cat."], pa.string()).cast(kind)
        for name in ("text", "list"):
            captions = texts
            if name == "list":
                captions = pa.array([["A dog."], ["A cat."]], pa.large_list(pa.string()))
            table = pa.table({"image_id": id_column, "caption": captions})
            pq.write_table(table, tmp_path / f"{name}{k}.parquet")
            found = read(tmp_path / f"{name}{k}.parquet")
            assert [(c.image_id, c.text) for c in found] == [("7", "A dog."), ("8", "A cat.")]
    large = pa.table({"image_id": [2.0**60, 1.0], "caption": ["A dog.", "A cat."]})
    pq.write_table(large, tmp_path / "large.parquet")
    with pytest.raises(InputError, match=r"row 1: 'image_id' is 1.15.*, a float, whose last digit"):
        read(tmp_path / "large.parquet")
    twice = pa.Table.from_arrays([large[0], large[1], large[1]], ["image_id", "caption", "caption"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="column 'caption' comes twice"):
        read(tmp_path / "twice.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "large.parquet").read_bytes()[:99])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        read(tmp_path / "cut.parquet")


def test_pictures_beside_captions_are_not_read(tmp_path: Path) -> None:
    """Also where all rows lie in one group: memory is that of the texts, and nothing is copied."""
    data = np.random.default_rng(0).bytes(1_000_000)
    rows = [
        {"image": {"bytes": data + bytes([k]), "path": f"{k}.png"}, "caption": [f"A {k}.", "B"]}
        for k in range(40)
    ]
    path = tmp_path / "data" / "test-00000-of-00001.parquet"
    path.parent.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), path, compression="none", use_dictionary=False)
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        found = read(tmp_path, split="test")
    finally:
        pa.set_memory_pool(default)
    assert [c.image_file for c in found[::2]] == [f"{k}.png" for k in range(40)]
    assert 0 < pool.max_memory() < 5e6 and not (tmp_path / "cache").exists()


def test_missing_columns_and_wrong_values_are_refused(tmp_path: Path) -> None:
    message = (
        r"saved row a: no column 'image_id' for the image_id -> .*--columns image_id=NAME; .*:"
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
