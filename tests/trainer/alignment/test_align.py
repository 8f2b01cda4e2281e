"""Pictures and the pointing game of a run, as the command makes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.pipelines.captions import captions
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_arrow
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ModelParams, ScenesParams, TrainParams
from capgrade.schemas.regions import Regions, write_regions
from capgrade.trainer.alignment.align import align
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train

TINY = {"embed_dim": 32, "image_layers": 1, "joint_layers": 1, "feedforward": 32, "text_layers": 1, "heads": 2}
LOSS = ({"name": "triplet", "margin": 0.2},)


def opened(image_id: str) -> Image.Image:
    return Image.new("RGB", (64, 64), "white")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Scenes whose regions are the true boxes and one that covers all, with random features."""
    folder: Path = tmp_path_factory.mktemp("scenes")
    captions(folder / "captions", CaptionsParams(scenes=ScenesParams(train=12, val=0, test=6, size=64)))
    rng, regions = np.random.default_rng(0), []
    for row in read_arrow(folder / "captions" / "scenes.arrow").to_pylist():
        boxes = [[thing[side] for side in ("x0", "y0", "x1", "y1")] for thing in row["objects"]] + [[0, 0, 64, 64]]
        features = rng.normal(size=(len(boxes), 16)).astype(np.float32)
        regions.append(Regions(row["image_id"], 64, 64, np.array(boxes, np.float32), features))
    write_regions(folder / "regions", regions, dtype="float32")
    return Data(folder / "captions", folder / "regions")


def trained(data: Data, out: Path, model: str, **options: object) -> Path:
    torch.set_num_threads(1)
    chosen = ModelParams(name=model, options=options)
    train(data, out, TrainParams(model=chosen, loss=LOSS, batch_size=6, epochs=1, validation=None), MeasuresParams())
    return out


@pytest.fixture(scope="module")
def run(scenes: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(scenes, tmp_path_factory.mktemp("run"), "teran", **TINY)


def test_a_picture_and_the_pointing_game(scenes: Data, run: Path, tmp_path: Path) -> None:
    found = align(run, scenes.captions, scenes.regions, "test", tmp_path / "out", opened, count=2)
    assert found is not None and found == json.loads((tmp_path / "out" / "pointing.json").read_text())
    phrases = sum(len([s for s in row["spans"] if s["objects"]]) for row in spoken(scenes.captions))
    assert found["all"]["phrases"] == phrases == sum(one["phrases"] for kind, one in found.items() if kind != "all")
    assert 0 < found["all"]["centre_chance"] < 1  # the box that covers all is right or wrong
    assert Image.open(tmp_path / "out" / "alignment.png").width == 2 * (420 + 14) + 14

    def rewrites(image_id: str) -> Image.Image:
        (run / "vocabulary.json").write_text((run / "vocabulary.json").read_text() + " ")
        return opened(image_id)

    with pytest.raises(InputError, match="vocabulary: changed while this run read it"):
        align(run, scenes.captions, scenes.regions, "test", tmp_path / "other", rewrites, count=1)


def spoken(folder: Path) -> list[dict]:
    of_test = set(read_captions(folder, "test").caption_ids)
    return [row for row in read_arrow(folder / "meanings.arrow").to_pylist() if row["caption_id"] in of_test]


def test_captions_without_truth_have_a_picture_alone(scenes: Data, run: Path, tmp_path: Path) -> None:
    table = read_captions(scenes.captions, "test")
    rows = [f"{table.image_ids[i]}\t{text}" for i, text in zip(table.owner, table.texts, strict=True)]
    (tmp_path / "c.tsv").write_text("image_id\tcaption\n" + "\n".join(rows) + "\n")
    captions(tmp_path / "plain", CaptionsParams(source="tsv", input=f"{tmp_path}/c.tsv", split="test"))
    assert align(run, tmp_path / "plain", scenes.regions, "test", tmp_path / "out", opened) is None
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"alignment.png", "manifest.json"}


def test_a_model_without_words_is_refused(scenes: Data, tmp_path: Path) -> None:
    run = trained(scenes, tmp_path / "run", "vse", embed=8, word=8)
    with pytest.raises(InputError, match="aligns no words with regions -> give a run of --preset teran"):
        align(run, scenes.captions, scenes.regions, "test", tmp_path / "out", opened)
