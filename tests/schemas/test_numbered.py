"""Numbered files are in the order of their numbers, however many there are and whatever wrote
them."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.labels.opening import _files
from capgrade.schemas import regions
from capgrade.schemas.files import in_order
from capgrade.schemas.regions import RegionStore, write_regions
from capgrade.schemas.shards import shard_name
from tests.pipelines.features.made import made


def test_shards_and_published_pairs_are_in_the_order_of_their_numbers() -> None:
    """Names of older versions too, which have five digits at least."""
    numbers, n = [*range(0, 100_003, 4_999), 99_999, 100_000], 100_003
    older = [f"shard-{k:05d}-of-{n:05d}.arrow" for k in numbers]
    assert in_order(sorted(older)) == [older[k] for k in np.argsort(numbers)]
    assert [shard_name(3, n), shard_name(3, 8)] == [
        "shard-000003-of-100003.arrow",
        "shard-00003-of-00008.arrow",
    ]
    names = [f"relevance/train-{k:05d}-of-100002.parquet" for k in (0, 99_999, 100_000, 100_001)]
    manifest = {"files": dict.fromkeys([*sorted(names), "captions/train-00000-of-00001.parquet"])}
    assert [str(path) for path in _files(Path(), manifest, "relevance/train")] == names


def test_regions_beyond_a_hundred_thousand_files_keep_the_order_of_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = regions.region_shard_name
    monkeypatch.setattr(regions, "region_shard_name", lambda number: name(number + 99_999))
    images = [made(f"i{k}", n=40, d=4000) for k in range(5)]  # more than half a megabyte each
    write_regions(tmp_path, images, dtype="float32", target_mb=1)
    assert (tmp_path / "regions-100000.arrow").exists()
    assert [image.image_id for image in RegionStore(tmp_path)] == [f"i{k}" for k in range(5)]
