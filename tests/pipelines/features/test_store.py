"""Shards of regions: what is written is read, any image by itself, in files larger than 32-bit offsets reach."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from capgrade.schemas.errors import InputError
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions, region_schema, write_regions

from .made import assert_same, made

NULLABLE = ("boxes", "classes", "confidences", "attributes", "attribute_confidences")


def test_images_come_back_by_number_and_id(tmp_path: Path) -> None:
    images = [made(f"im {k}", n=1 + k % 4, seed=k, plain=k % 2 == 1) for k in range(11)]
    images[5] = replace(images[5], boxes=None, width=None, height=None)
    manifest = write_regions(tmp_path, images, dtype="float32", metadata={"detector": "test"})
    store = RegionStore(tmp_path)
    assert (len(store), store.ids) == (11, [image.image_id for image in images])
    assert manifest["regions"] == sum(map(len, images)) and manifest["dim"] == 4
    assert manifest["rounding"] == {"max_abs": 0.0, "max_rel": 0.0}
    assert store.metadata["detector"] == "test"
    for k in (10, 0, 5, 3):
        assert_same(store[k], images[k])
        assert_same(store[f"im {k}"], images[k])
    for a, b in zip(store, images, strict=True):
        assert_same(a, b)
    assert "im 3" in store and "im 11" not in store
    assert not store[0].features.flags.writeable
    assert_same(pickle.loads(pickle.dumps(store))[7], images[7])
    with pytest.raises(InputError, match="no image 'im 11'"):
        store["im 11"]
    with pytest.raises(IndexError):
        store[11]


def test_shards_of_target_size(tmp_path: Path) -> None:
    images = [made(str(k), n=36, d=2048, seed=k, plain=True) for k in range(9)]  # 0.28 MB each
    manifest = write_regions(tmp_path, images, dtype="float32", target_mb=1)
    assert [entry["rows"] for entry in manifest["files"].values()] == [4, 4, 1]
    store = RegionStore(tmp_path)
    for k in (8, 4, 3, 0):
        assert_same(store[k], images[k])
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_regions(tmp_path, images, dtype="float32", target_mb=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    write_regions(tmp_path, images[:2], dtype="float32", target_mb=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "regions-00000.arrow"]


def test_float16_and_its_error(tmp_path: Path) -> None:
    values = np.array([[1.0, 1 + 2**-11, 1000.3, 1e-9]], np.float32)
    image = replace(made("a", n=1, plain=True), features=values)
    rounding = write_regions(tmp_path, [image])["rounding"]
    stored = RegionStore(tmp_path)[0].features
    assert stored.dtype == np.float16 and stored.tobytes() == values.astype(np.float16).tobytes()
    error = np.abs(values.astype(np.float16).astype(np.float64) - values)
    assert rounding["max_abs"] == pytest.approx(error.max(), rel=1e-6)
    assert rounding["max_rel"] == pytest.approx((error / values)[0, :3].max(), rel=1e-6)  # 1e-9 is below normal
    assert 0 < rounding["max_rel"] <= 2**-11
    with pytest.raises(InputError, match=r"70021 is beyond float16 .65504. -> store the features as float32"):
        write_regions(tmp_path, [replace(image, features=values * 70)])


class Sparse:
    """A file that writes the last part of each large piece and leaves a hole, read as zeros, before it."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    closed, readable, seekable, writable = False, lambda self: False, lambda self: False, lambda self: True

    def write(self, data: pa.Buffer) -> int:
        view = memoryview(data)
        tail = min(len(view), 2**20)
        self.file.seek(len(view) - tail, 1)
        self.file.write(view[len(view) - tail :])
        return len(view)

    def flush(self) -> None: ...

    def tell(self) -> int:
        return self.file.tell()


@pytest.mark.parametrize("dim", [1, 2048])
def test_more_than_2_gb(tmp_path: Path, dim: int) -> None:
    """A real shard of 4.3 GB on disk but for its holes: 2**31 values before the image that is read."""
    schema = region_schema(dim, "float16")
    last = made("last", n=3, d=dim).features.astype(np.float16)
    before = 2**31 // dim
    values = np.memmap(tmp_path / "zeros", np.float16, "w+", shape=((before + 3) * dim,))
    values[-3 * dim :] = last.reshape(-1)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values), type=schema.field("features").type.value_type)
    offsets = pa.array(np.array([0, before, before + 3], np.int64))
    features = pa.LargeListArray.from_arrays(offsets, flat, type=schema.field("features").type)
    others = [pa.nulls(2, field.type) for field in schema if field.name not in ("image_id", "features")]
    columns = [pa.array(["first", "last"]), *others[:2], others[2], features, *others[3:]]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    sink = Sparse(tmp_path / "regions-00000.arrow")
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)  # one batch of it all: our writer's batches are of 32 MB
    with pa.ipc.new_file(pa.PythonFile(sink, "w"), schema, options=options) as out:
        out.write_batch(batch)
    sink.file.close()
    size = (tmp_path / "regions-00000.arrow").stat().st_size
    assert size > 2**32
    manifest = {"kind": "regions", "files": {"regions-00000.arrow": {"bytes": size}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    found = RegionStore(tmp_path)["last"]
    assert found.features.tobytes() == last.tobytes()
    assert found.boxes is None and found.width is None
    (tmp_path / "zeros").unlink()
    (tmp_path / "regions-00000.arrow").unlink()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"image_id": ""}, "an image id has visible characters"),
        ({"image_id": "a\tb"}, "an image id has visible characters"),
        ({"image_id": " a"}, "no space around it"),
        ({"width": 0}, "a size of 0 x 480 pixels"),
        ({"features": np.zeros((0, 4), np.float32)}, r"features of shape \(0, 4\)"),
        ({"features": np.zeros((3, 4))}, "type float64"),
        ({"features": np.full((3, 4), np.nan, np.float32)}, "12 feature values are NaN or infinite"),
        ({"boxes": np.zeros((2, 4), np.float32)}, r"boxes of shape \(2, 4\) and type float32 for 3 regions"),
        ({"boxes": np.full((3, 4), np.inf, np.float32)}, "a coordinate that is NaN or infinite"),
        ({"boxes": np.array([[5, 0, 4, 9]] * 3, np.float32)}, r"box \[5.0, 0.0, 4.0, 9.0\] is not x1, y1, x2, y2"),
        ({"boxes": np.array([[0, 0, 700, 9]] * 3, np.float32)}, "lies outside the image of 640 x 480"),
        ({"classes": np.zeros(2, np.int32)}, r"classes of shape \(2,\) and type int32 for 3 regions"),
        ({"classes": np.full(3, -1, np.int32)}, "classes has a negative number"),
        ({"confidences": np.full(3, np.nan, np.float32)}, "confidences has a value that is NaN"),
    ],
)
def test_wrong_images_are_refused(tmp_path: Path, change: dict, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        write_regions(tmp_path, [made("ok"), replace(made("a"), **change)])
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    ("images", "dtype", "problem"),
    [
        ([made("a"), made("a")], "float16", "image 'a' comes twice"),
        ([made("a"), made("b", d=5)], "float16", "image 'b': 5 numbers per region, 4 before"),
        ([], "float16", "no image to write"),
        ([made("a")], "float64", "choose float16 or float32"),
    ],
)
def test_wrong_sets_are_refused(tmp_path: Path, images: list[Regions], dtype: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        write_regions(tmp_path, images, dtype=dtype)


def test_a_truncated_shard_is_refused(tmp_path: Path) -> None:
    write_regions(tmp_path, [made("a")])
    shard = tmp_path / "regions-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(InputError, match="bytes where the manifest says"):
        RegionStore(tmp_path)


FINITE = st.floats(-1e4, 1e4, width=32)


@st.composite
def any_regions(draw: st.DrawFn, image_id: str) -> Regions:
    n = draw(st.integers(1, 5))
    features = draw(hnp.arrays(np.float32, (n, 3), elements=FINITE)).astype(draw(st.sampled_from(["f2", "f4"])))
    corner = draw(hnp.arrays(np.float32, (n, 2), elements=st.floats(0, 300, width=32)))
    image = replace(made(image_id, n), features=features, boxes=np.concatenate([corner, corner + 100], 1))
    dropped = draw(st.sets(st.sampled_from(NULLABLE)))
    return replace(image, **dict.fromkeys(dropped, None))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_round_trip_of_anything(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    images = [data.draw(any_regions(str(k))) for k in range(data.draw(st.integers(1, 4)))]
    folder = tmp_path_factory.mktemp("regions")
    write_regions(folder, images, dtype="float32")
    for a, b in zip(RegionStore(folder), images, strict=True):
        assert_same(a, replace(b, features=b.features.astype(np.float32)))
