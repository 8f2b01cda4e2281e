"""Images that the stage before left out: no part of training, validation and evaluation, and
counted."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capgrade.evaluation import evaluate
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore, write_regions
from capgrade.trainer.evaluation.task import load_task
from capgrade.trainer.fit.setup import Data, prepare
from tests.conftest import call
from tests.trainer.fit.runs import params, run

LOST = {
    "train-i3": "unreadable",
    "train-i4": "missing",
    "val-i0": "unreadable",
    "test-i2": "no_region",
}


@pytest.fixture(scope="module")
def lacking(small, tmp_path_factory) -> Data:
    """The small world, whose regions lack some images and are called by the stems of files."""
    folder: Path = tmp_path_factory.mktemp("lacking")
    there = [one for one in RegionStore(small.data.regions) if one.image_id not in LOST]
    left_out = [
        {"image_id": one, "file": f"{one}.jpg", "problem": "?", "reason": why}
        for one, why in LOST.items()
    ]
    write_regions(folder / "regions", there, dtype="float32", left_out=left_out)
    return replace(small.data, regions=folder / "regions")


def test_their_captions_are_not_learnt_from(lacking, capsys):
    setup = prepare(lacking, params(), MeasuresParams())
    captions = setup.pairs.captions
    lost = {captions.image_numbers[one] for one in LOST if one.startswith("train")}
    assert not lost & set(captions.owner[setup.pairs.rows]) and len(setup.pairs.rows) == 2 * 22
    assert not lost & set(captions.owner[np.concatenate(setup.plan.epoch(0))])
    assert setup.validation.captions.image_ids == [f"val-i{k}" for k in range(1, 8)]
    assert setup.validation_relevance.shape == (7, 14)
    assert capsys.readouterr().err.splitlines() == [
        (
            "split 'train': 2 of 24 images are left out, with their 4 captions: 1 no picture, 1"
            " picture not readable"
        ),
        "split 'val': 1 of 8 images are left out, with their 2 captions: 1 picture not readable",
    ]


def test_labels_of_shards_stay_with_their_pairs(small, lacking):
    data = replace(lacking, shards=small.sampled.shards)
    sets = (
        "train.relevance=shards",
        "train.loss=[{name: info_nce, targets: relevance, softness: 0.1}]",
    )
    setup = prepare(data, params(*sets), MeasuresParams())
    images, rows = setup.pairs.captions.owner[setup.pairs.rows[:6]], setup.pairs.rows[:6]
    whole = prepare(replace(data, regions=small.data.regions), params(*sets), MeasuresParams())
    np.testing.assert_array_equal(
        setup.relevance.block(images, rows)[0], whole.relevance.block(images, rows)[0]
    )


def test_an_evaluation_is_of_the_others_and_says_so(small, lacking, tmp_path, capsys):
    """Its numbers are those of the whole matrix without the row and the columns."""
    run(lacking, tmp_path / "run", epochs=1)
    relevance(
        small.data.captions,
        tmp_path / "labels",
        RelevanceParams(split="test", measures=("rouge_l",)),
        MeasuresParams(),
    )
    line = [
        "evaluate",
        "--captions",
        str(small.data.captions),
        "--split",
        "test",
        "--set",
        "evaluate.samples=0",
    ]
    line += ["--relevance", str(tmp_path / "labels"), "--metric", "recall@1", "--metric", "ndcg@25"]
    index = tmp_path / "run" / "index"
    made_by = f"--run {tmp_path}/run --regions {lacking.regions} --split test --out {index}"
    assert call("embed", "--captions", str(small.data.captions), *made_by.split()) == 0
    capsys.readouterr()
    mine = ["--similarity", str(index / "similarity.npy"), "--out", str(tmp_path / "mine")]
    assert call(*line, *mine) == 0
    said = capsys.readouterr()
    note = "smaller gallery: 1 of 8 images are left out, with their 2 captions: 1 no region found"
    assert f"note: {note}" in said.out and "7 images, 14 captions" in said.out
    found = json.loads((tmp_path / "mine" / "metrics.json").read_text())
    assert (
        found["counts"]["left_out"] == {"images": {"no_region": 1}, "captions": 2}
        and note in found["notes"]
    )
    captions = read_captions(small.data.captions, "test")
    items = json.loads((index / "items.json").read_text())
    assert items["image_ids"] == [one for one in captions.image_ids if one != "test-i2"]
    images = np.array([k for k in range(8) if k != 2])
    rows = np.flatnonzero(captions.owner != 2)
    assert items["caption_ids"] == [captions.caption_ids[row] for row in rows]
    labels = load_task(small.data.captions, similarity=[index / "similarity.npy"], split="test",
                       relevance=tmp_path / "labels")[0]  # fmt: skip
    from capgrade.schemas.relevance import read_relevance

    whole = read_relevance(tmp_path / "labels" / "rouge_l.arrow").matrix()[np.ix_(images, rows)]
    np.testing.assert_array_equal(labels.relevance["rouge_l"], whole)
    owner = np.searchsorted(images, captions.owner[rows])
    matrix = np.load(index / "similarity.npy")
    expected = evaluate(
        matrix, {"rouge_l": whole}, ["recall@1", "ndcg@25"], owner=owner, intervals=None
    ).json()
    assert found["i2t"] == pytest.approx(expected["i2t"]) and found["t2i"] == pytest.approx(
        expected["t2i"]
    )
    assert found["i2t"]["recall@1"] != pytest.approx(0)
    # another gallery is another evaluation
    np.save(tmp_path / "whole.npy", np.random.default_rng(0).random((8, 16), np.float32))
    assert (
        call(*line, "--similarity", str(tmp_path / "whole.npy"), "--out", str(tmp_path / "other"))
        == 0
    )
    capsys.readouterr()
    assert call("compare", str(tmp_path / "mine"), str(tmp_path / "other")) == 2
    said = capsys.readouterr().err
    assert "of other images than the first (8 here, 7 there, 7 in both)" in said
    # a mean with a model that lacks none is of what both have
    both = load_task(
        small.data.captions,
        similarity=[index / "similarity.npy", tmp_path / "whole.npy"],
        split="test",
    )
    np.testing.assert_allclose(
        both[0].similarity, (matrix + np.load(tmp_path / "whole.npy")[np.ix_(images, rows)]) / 2
    )


def test_what_no_stage_left_out_is_an_error(small, lacking, tmp_path):
    there = [one for one in RegionStore(lacking.regions) if one.image_id != "train-i9"]
    write_regions(tmp_path / "regions", there, dtype="float32")
    with pytest.raises(
        InputError,
        match="no regions of 3 of the 24 images of split 'train': 'train-i3', 'train-i4'",
    ):
        prepare(replace(small.data, regions=tmp_path / "regions"), params(), MeasuresParams())


def test_a_picture_that_cannot_be_read_is_found_first(small, tmp_path, capsys):
    from tests.trainer.fit.test_pictures import params as clip

    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for one in read_captions(small.data.captions, split).image_ids:
            Image.fromarray(rng.integers(0, 256, (18, 20, 3), np.uint8)).save(folder / f"{one}.png")
    cut = (folder / "train-i3.png").read_bytes()
    (folder / "train-i3.png").write_bytes(cut[: len(cut) // 2])
    (folder / "val-i0.png").unlink()
    data, images = Data(small.data.captions), f"train.images={folder}"
    with pytest.raises(
        InputError, match=r"train-i3.png: .* -> mend it, .*--set train.unreadable=skip"
    ):
        prepare(data, clip(images), MeasuresParams())
    setup = prepare(data, clip(images, "train.unreadable=skip"), MeasuresParams())
    assert (
        setup.pairs.left_out == {"train-i3": "unreadable"}
        and setup.validation.captions.n_images == 7
    )
