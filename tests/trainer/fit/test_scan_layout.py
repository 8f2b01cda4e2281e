"""SCAN's folder as it is shared: three splits, dev for validation, five equal rows of features in
dev and test."""

import numpy as np
import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import captions
from capgrade.pipelines.features.convert import import_regions
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore
from capgrade.trainer.fit.setup import Data, choose_validation, prepare
from capgrade.trainer.stages.train import TrainParams

SPLITS = {"train": (16, 1), "dev": (6, 5), "test": (6, 5)}  # images, rows of features per image


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    folder, first, rng = tmp_path_factory.mktemp("scan"), 0, np.random.default_rng(0)
    for split, (images, rows) in SPLITS.items():
        features = rng.random((images, 3, 8), np.float32)
        np.save(folder / f"{split}_ims.npy", np.repeat(features, rows, axis=0))
        (folder / f"{split}_ids.txt").write_text(
            "".join(f"{first + k // rows}\n" for k in range(images * rows))
        )
        (folder / f"{split}_caps.txt").write_text(
            "".join(f"a dog number {k}\n" for k in range(images * 5))
        )
        first += images
    return folder


@pytest.fixture(scope="module")
def data(scan):
    captions(
        scan / "captions", CaptionsParams(source="precomp", input=str(scan), split="train+dev+test")
    )
    files = tuple(str(scan / f"{split}_ims.npy") for split in SPLITS)
    import_regions(scan / "regions", RegionsParams(format="scan", features=files))
    return Data(scan / "captions", scan / "regions")


def test_features_of_several_splits_are_one_store(data, scan):
    store = RegionStore(data.regions)
    assert len(store) == 28 and store.metadata["split"] == "train+dev+test"
    for split, first in (("dev", 16), ("test", 22)):
        np.testing.assert_array_equal(
            store[str(first)].features, np.load(scan / f"{split}_ims.npy")[0]
        )
        store.require(read_captions(data.captions, split))
    params = RegionsParams(format="scan", features=(str(scan / "train_ims.npy"),))
    import_regions(scan / "alone", params)
    assert RegionStore(scan / "alone").metadata["split"] == "train"


def test_train_validates_on_dev_and_says_so(data, capsys):
    assert choose_validation(data, TrainParams()).validation == "dev"
    assert "validation split: dev, as there is no val" in capsys.readouterr().err
    assert choose_validation(data, TrainParams(validation="train")).validation == "train"
    assert not capsys.readouterr().err
    with pytest.raises(
        InputError,
        match="to validate on -> --set train.validation=NAME, choose from: train, dev",
    ):
        choose_validation(data, TrainParams(validation="x"))
    with pytest.raises(InputError, match="no split 'x' -> choose from: train, dev, test"):
        prepare(data, TrainParams(split="x"), MeasuresParams())
