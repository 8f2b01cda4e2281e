"""A small world to train on: captions, regions that give the objects away, and sampled shards."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import ShardsParams, WindowsParams
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.regions import Regions, write_regions
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.search.index import embed
from capgrade.trainer.stages.embed import EmbedParams
from tests.conftest import caption_table, write_captions_folder
from tests.trainer.fit.runs import run

KINDS = ("dog", "cat", "man", "woman", "bike", "ball", "tree", "boat")
DIM = 16


def sets_of(n: int, seed: int) -> tuple[list[list[str]], list[list[int]]]:
    """Two captions per image, naming its one to three objects."""
    rng = np.random.default_rng(seed)
    objects = [rng.choice(len(KINDS), rng.integers(1, 4), replace=False).tolist() for _ in range(n)]
    texts = [
        [" and ".join(f"a {KINDS[k]}" for k in found), " ".join(KINDS[k] for k in found)]
        for found in objects
    ]
    return texts, objects


def regions_of(image_id: str, objects: list[int], rng: np.random.Generator) -> Regions:
    """A region an object: its kind as one number of many, boxes side by side; the first picture's
    size is unknown."""
    features = rng.normal(0, 0.05, (len(objects), DIM)).astype(np.float32)
    features[np.arange(len(objects)), objects] += 1
    left = np.arange(len(objects), dtype=np.float32) * 30
    boxes = np.stack([left, left * 0, left + 25, left * 0 + 40], 1)
    size = (None, None) if image_id == "train-i0" else (100, 50)
    return Regions(image_id, *size, boxes, features)


@dataclass(frozen=True)
class Small:
    data: Data
    sampled: Data  # the same with shards
    train: Captions


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder: Path = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    tables, images = [], []
    for split, n, seed in (("train", 24, 1), ("val", 8, 2), ("test", 8, 3)):
        texts, objects = sets_of(n, seed)
        tables.append(caption_table(texts, split, f"{split}-i"))
        images += [regions_of(f"{split}-i{k}", found, rng) for k, found in enumerate(objects)]
    captions = write_captions_folder(folder / "captions", tables)
    write_regions(folder / "regions", images, dtype="float32")
    params = ShardsParams(
        split="train",
        measures=("cider", "rouge_l"),
        top=4,
        uniform=4,
        windows=WindowsParams(per_window=1),
    )
    shards(captions, folder / "shards", params, MeasuresParams(), [])
    found = (
        Data(captions, folder / "regions"),
        Data(captions, folder / "regions", folder / "shards"),
    )
    return Small(*found, read_captions(captions, "train"))


@pytest.fixture(scope="session")
def trained(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve epochs of VSE++ on the small world, with an index of its test split; to read
    or to copy."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run(small.data, out, epochs=12)
    told = EmbedParams(split="test")
    embed(small.data.captions, out / "index", told, run=out, regions=small.data.regions)
    return out
