"""Lists of likely positives: written, read, and what a similarity scores by them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from capgrade.lists import LikelyList, list_file, read_list, write_list
from capgrade.pipelines.cli import app
from capgrade.schemas.errors import InputError
from tests.conftest import (
    DATA,
    caption_table,
    printed,
    refusal,
    valued_pairs,
    write_captions_folder,
)

FOUND = LikelyList(
    np.array([7, 3]), np.array([10, 11, 12, 13]), np.array([0, 0, 1, 1]),
    valued_pairs(np.array([0, 1]), np.array([2, 0]), np.array([60, 30], np.uint8), np.ones(2)),
)  # fmt: skip


def test_own_pairs_and_likely_ones_are_positives(tmp_path):
    write_list(tmp_path / "few.parquet", FOUND)
    with pytest.raises(InputError, match="a file is there"):
        write_list(tmp_path / "few.parquet", FOUND)
    write_list(tmp_path / "few.parquet", FOUND, force=True)
    images, captions = read_list(tmp_path / "few.parquet").positives(0.5)
    assert [row.tolist() for row in images.lists()] == [[0, 1, 2], [2, 3]]
    assert [row.tolist() for row in captions.lists()] == [[0], [0], [0, 1], [1]]
    assert len(read_list(tmp_path / "few.parquet").positives(0.3)[0].indices) == 6
    with pytest.raises(InputError, match="P 0.1 of a list that holds pairs from 0.3 on"):
        FOUND.positives(0.1)


def test_what_is_no_list_is_refused(tmp_path):
    (tmp_path / "x.parquet").write_text("nothing")
    with pytest.raises(InputError, match="not a list of likely pairs"):
        read_list(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="no such list"):
        list_file("coco-6k")


def test_evaluate_needs_no_captions(tmp_path):
    write_list(tmp_path / "few.parquet", FOUND)
    np.save(tmp_path / "s.npy", np.array([[0.1, 0.2, 0.9, 0.0], [0.0, 0.1, 0.5, 0.6]], np.float32))
    line = [
        "evaluate",
        "--lists",
        str(tmp_path / "few.parquet"),
        "--similarity",
        str(tmp_path / "s.npy"),
        "--json",
    ]
    line += ["--metric", "recall@1", "--metric", "accepted_recall@1"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert "recall@1" in json.dumps(said)
    i2t = said["i2t"]
    assert (i2t["recall@1"], i2t["accepted_recall@1"]) == (
        0.5,
        1.0,
    )  # image 7 finds caption 12 of image 3, P .6
    np.save(tmp_path / "s.npy", np.zeros((2, 3), np.float32))
    assert CliRunner().invoke(app, line).exit_code


def test_a_list_is_positives_of_captions_in_any_order(tmp_path):
    write_list(tmp_path / "few.parquet", FOUND)
    table = caption_table([["a dog", "the dog"], ["a cat", "the cat"]], "test")
    ids = {"image_id": ["3", "3", "7", "7"], "caption_id": ["13", "12", "11", "10"]}
    for name, values in ids.items():
        table = table.set_column(table.schema.get_field_index(name), name, [values])
    write_captions_folder(tmp_path / "captions", [table])
    np.save(tmp_path / "s.npy", np.array([[0.6, 0.5, 0.1, 0.0], [0.0, 0.9, 0.2, 0.1]], np.float32))
    line = ["evaluate", "--captions", tmp_path / "captions", "--similarity", tmp_path / "s.npy"]
    line += ["--positives", tmp_path / "few.parquet", "--metric", "recall@1"]
    line += ["--metric", "accepted_recall@1"]
    found = printed(*line)
    assert (found["i2t"]["recall@1"], found["i2t"]["accepted_recall@1"]) == (0.5, 1.0)
    assert "accepted: own pairs, and those of few with P of 0.5 or more" in found["notes"]
    assert printed(*line, "--likely", "0.7")["i2t"]["accepted_recall@1"] == 0.5
    line[line.index(tmp_path / "few.parquet")] = "coco-5k"
    assert "no image '3', nor 1 others of the captions -> give a list" in refusal(*line)
    line[line.index("coco-5k")] = "coco-5"
    assert "near it: coco-5k" in refusal(*line)


def test_the_list_of_coco_5k():
    found = read_list(list_file("coco-5k"))
    assert (len(found.image_ids), len(found.caption_ids), len(found.pairs)) == (
        5_000,
        25_000,
        381_507,
    )
    assert list_file("coco-5k").stat().st_size < 3_000_000
    assert found.pairs.value.min() == 20
    assert (found.owner == np.repeat(np.arange(5_000), 5)).all()
    assert not found.pairs.is_own(found.owner).any()


def test_its_order_is_that_of_the_split():
    path = DATA / "coco" / "test5k_captions.tsv"
    if not path.exists():
        pytest.skip("the captions are not here")
    rows = [line.split("\t")[:2] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    found = read_list(list_file("coco-5k"))
    assert [int(image) for image, _ in rows] == found.image_ids[found.owner].tolist()
    assert [int(caption) for _, caption in rows] == found.caption_ids.tolist()
