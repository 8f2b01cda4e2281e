"""SCAN's folder as it is shared: three splits, dev for validation, five equal rows of features in dev and test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from capgrade.pipelines.features.convert import import_regions
from capgrade.schemas import say
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams
from capgrade.schemas.region_store import RegionStore
from capgrade.trainer.fit.setup import Data
from tests.conftest import call
from tests.trainer.fit.runs import SMALL

SPLITS = {"train": (16, 1), "dev": (6, 5), "test": (6, 5)}  # images, rows of features per image


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    folder, first, rng = tmp_path_factory.mktemp("scan"), 0, np.random.default_rng(0)
    for split, (images, rows) in SPLITS.items():
        features = rng.random((images, 3, 8), np.float32)
        np.save(folder / f"{split}_ims.npy", np.repeat(features, rows, axis=0))
        (folder / f"{split}_ids.txt").write_text("".join(f"{first + k // rows}\n" for k in range(images * rows)))
        (folder / f"{split}_caps.txt").write_text("".join(f"a dog number {k}\n" for k in range(images * 5)))
        first += images
    return folder


@pytest.fixture(scope="module")
def data(scan):
    from capgrade.pipelines.captions import captions

    captions(scan / "captions", CaptionsParams(source="precomp", input=str(scan), split="train+dev+test"))
    import_regions("scan", [scan / f"{split}_ims.npy" for split in SPLITS], scan / "regions")
    return Data(scan / "captions", scan / "regions")


def test_features_of_several_splits_are_one_store(data, scan):
    store = RegionStore(data.regions)
    assert len(store) == 28 and store.metadata["split"] == "train+dev+test"
    for split, first in (("dev", 16), ("test", 22)):
        np.testing.assert_array_equal(store[str(first)].features, np.load(scan / f"{split}_ims.npy")[0])
        store.require(read_captions(data.captions, split))
    with pytest.raises(InputError, match="was written by `capgrade regions import --format scan --input train_ims.npy"):
        import_regions("scan", scan / "dev_ims.npy", data.regions)
    import_regions("scan", scan / "train_ims.npy", scan / "alone")
    assert RegionStore(scan / "alone").metadata["split"] == "train"


def test_train_validates_on_dev_and_says_so(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(say, "_said", set())  # a process says it once
    common = ["--captions", str(data.captions), "--regions", str(data.regions), "--preset", "triplet", "--epochs", "1"]
    common += [word for one in SMALL for word in ("--set", one)]
    chosen = ["--split", "test", "--set", "train.validation=train"]
    for name, more, splits in (("a", [], ("train", "dev")), ("b", chosen, ("test", "train"))):
        assert call("train", *common, *more, "--out", str(tmp_path / name)) == 0
        assert ("validation split: dev, as there is no val" in capsys.readouterr().err) == (not more)
        params = json.loads((tmp_path / name / "config.json").read_text())["params"]
        assert (params["split"], params["validation"]) == splits
    for option, remedy in (
        (
            "--set=train.validation=x",
            "to validate on -> choose with --set train.validation=NAME from: train, dev",
        ),
        ("--split=x", "no split 'x' -> choose with --split from: train, dev, test"),
    ):
        assert call("train", *common, option, "--out", str(tmp_path / "other")) == 2
        assert remedy in " ".join(capsys.readouterr().err.split())
