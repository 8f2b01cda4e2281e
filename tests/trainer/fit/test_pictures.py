"""Runs that read pictures: CLIP from nothing on a small world, from the first step to a search."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capgrade.measures.params import MeasuresParams
from capgrade.params import load_params
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import folder_digest
from capgrade.trainer.data.images import PictureStore
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.fit.setup import Data, prepare
from capgrade.trainer.stages.train import TrainParams
from tests.conftest import call
from tests.trainer.fit.runs import train
from tests.trainer.models.test_dual_encoder import folders  # noqa: F401

SIZES = (
    "image: 16, patch: 8, image_width: 16, image_layers: 1, image_heads: 2, text_width: 16,"
    " text_layers: 1"
)
OPTIONS = f"train.model.options={{{SIZES}, text_heads: 2, positions: 16}}"
SETS = [
    OPTIONS,
    "train.model.options.pretrained=null",
    "train.epochs=2",
    "train.batch_size=8",
    "train.min_count=1",
]
SETS += ["train.lr=0.005", "train.measure=rouge_l", "train.device=cpu"]


@dataclass(frozen=True)
class Pictured:
    captions: Path
    images: Path

    @property
    def data(self) -> Data:
        return Data(self.captions)

    @property
    def key(self) -> str:
        return f"train.images={self.images}"


@pytest.fixture(scope="module")
def pictured(small, tmp_path_factory) -> Pictured:
    """The captions of the small world, and a picture of noise for each image of it."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for image_id in read_captions(small.data.captions, split).image_ids:
            Image.fromarray(rng.integers(0, 256, (18, 20, 3), np.uint8)).save(
                folder / f"{image_id}.png"
            )
    return Pictured(small.data.captions, folder)


def params(*more: str, sets: Sequence[str] = SETS) -> TrainParams:
    return load_params(None, ["train.preset=clip", *sets, *more]).train


@pytest.mark.parametrize("preset", ["clip_graded", "siglip_graded"])
def test_a_run_from_the_first_step_to_a_search(
    pictured: Pictured, tmp_path: Path, capsys, preset: str
) -> None:
    data = "--captions", str(pictured.captions), "--images", str(pictured.images)
    sets = [word for one in SETS for word in ("--set", one)]
    run, index = tmp_path / "run", tmp_path / "run" / "index"
    assert call("train", "--preset", preset, *data, *sets, "--out", str(run), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["epochs"] == 2 and np.isfinite(summary["loss"])
    model, _, config = load_run(run)
    start = np.log(10) if preset.startswith("siglip") else np.log(1 / 0.07)
    assert model.encoder.logit_scale.item() != pytest.approx(start, abs=1e-4), (
        "the temperature learns"
    )
    assert config["inputs"]["images"] != config["inputs"]["captions"]
    capsys.readouterr()
    line = ("embed", "--run", str(run), *data, "--split", "test", "--out", str(index))
    assert call(*line) == 0
    capsys.readouterr()
    captions = read_captions(pictured.captions, "test")
    matrix = np.load(index / "similarity.npy")
    assert (
        matrix.shape == (captions.n_images, captions.n_captions)
        and np.abs(matrix).max() <= 1 + 1e-6
    )
    inputs = json.loads((index / "manifest.json").read_text())["inputs"]
    assert inputs["images"] != config["inputs"]["images"], "of the pictures of this split"
    assert (
        call("search", "--run", str(run), "--query", captions.texts[0], "--top", "3", "--json") == 0
    )
    best = json.loads(capsys.readouterr().out)["hits"][0]
    assert best["similarity"] == pytest.approx(float(matrix[:, 0].max()), abs=1e-6)


def test_a_checkpoint_is_tuned_from_its_weights(
    pictured: Pictured,
    folders,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Without a step worth the name a run's model is the checkpoint, which is known by its
    digest."""
    given = f"train.model.options={{pretrained: {folders['clip']}}}"
    still = params(
        *SETS[2:],
        given,
        pictured.key,
        "train.lr=1e-12",
        "train.encoder_lr=1e-12",
        "train.epochs=1",
        sets=(),
    )
    train(pictured.data, tmp_path, still, MeasuresParams())
    model, tokens, config = load_run(tmp_path)
    from transformers import AutoModel

    for name, value in AutoModel.from_pretrained(folders["clip"]).state_dict().items():
        np.testing.assert_allclose(model.encoder.state_dict()[name], value, atol=1e-6)
    assert config["inputs"]["pretrained"] == folder_digest(folders["clip"])
    assert tokens.encode_texts(["a"])[0].tolist() == [52, 26, 53]


def test_other_pictures_are_another_run(pictured: Pictured, tmp_path: Path) -> None:
    listed, changed = tmp_path / "list.txt", tmp_path / "changed.png"
    other, measures = replace(pictured, images=listed), MeasuresParams()

    def made_of(one: Pictured) -> dict[str, Any] | None:
        return prepare(one.data, params(one.key), measures).run.made_of

    rows = [
        f"{path.stem}\t{path}"
        for path in sorted(pictured.images.glob("*.png"))
        if path.stem != "train-i0"
    ]
    Image.new("RGB", (30, 30), "red").save(changed)
    listed.write_text("\n".join([*rows, f"train-i0\t{changed}"]) + "\n")
    assert made_of(pictured) != made_of(other)
    for content, problem in ((b"no picture", "not a readable picture"), (None, "no such file")):
        changed.unlink() if content is None else changed.write_bytes(content)
        with pytest.raises(InputError, match=f"changed.png: {problem}"):
            train(other.data, tmp_path / "new", params(other.key), measures)
    listed.write_text("\n".join(rows) + "\n")
    with pytest.raises(
        InputError, match="no pictures of 1 of the 24 images of split 'train': 'train-i0'"
    ):
        made_of(other)


def test_a_picture_is_one_region_of_its_pixels(pictured: Pictured) -> None:
    store = PictureStore(
        pictured.images, lambda rgb: rgb[:4, :4].transpose(2, 0, 1).astype(np.float32)
    )
    found = store[store.match({"val-i3": None}).numbers["val-i3"]]
    expected = np.array(Image.open(pictured.images / "val-i3.png"))[:4, :4]
    assert (found.width, found.height, found.features.shape, store.metadata["dim"]) == (
        20,
        18,
        (1, 48),
        48,
    )
    np.testing.assert_array_equal(found.features.reshape(3, 4, 4), expected.transpose(2, 0, 1))


def test_a_file_that_a_row_names_is_a_part_of_the_digest(tmp_path: Path) -> None:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    image = pa.array([{"bytes": None, "path": "a.png"}], kind)
    pq.write_table(pa.table({"image_id": ["a"], "image": image}), tmp_path / "rows.parquet")
    digests = set()
    for grey in (0, 255):
        Image.new("L", (4, 4), grey).save(tmp_path / "a.png")
        store = PictureStore(tmp_path / "rows.parquet", lambda rgb: rgb)
        digests.add(store.digest({"a": None}))
    assert len(digests) == 2


def test_each_model_is_given_what_it_reads(
    pictured: Pictured, small, tmp_path: Path, capsys
) -> None:
    captions, out = ("--captions", str(pictured.captions)), ("--out", str(tmp_path / "run"))
    images, regions = ("--images", str(pictured.images)), ("--regions", str(small.data.regions))
    clip, vse = ("--preset", "clip", "--set", OPTIONS), ("--preset", "triplet")
    for given, message in (
        ((*clip, *regions), "model 'clip' reads pictures, which are not given -> give --images"),
        ((*vse, *images), "model 'vse' reads regions, which are not given -> give --regions"),
    ):
        assert call("train", *given, *captions, *out) == 2
        said = capsys.readouterr().err
        assert message in said and len(said.splitlines()) == 1
    few = "--epochs", "1", "--set", "train.model.options.pretrained=null", "--batch-size", "8"
    both = (*clip, *images, *regions, *few, "--measure", "rouge_l", "--device", "cpu")
    assert call("train", *both, *captions, *out) == 0
    said = capsys.readouterr().err
    assert f"model 'clip' reads the pictures of train.images, not {small.data.regions}" in said
