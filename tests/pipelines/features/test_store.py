"""Shards of regions: what is written is read, any image by itself, in files larger than 32-bit
offsets reach."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from capgrade.pipelines.features import READERS, WRITERS
from capgrade.pipelines.features.convert import read_regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_manifest
from capgrade.schemas.regions import Regions, RegionStore, region_schema, write_regions

from .made import NAMES, assert_same, made

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
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "manifest.json",
        "regions-00000.arrow",
    ]


def test_float16_and_its_error(tmp_path: Path) -> None:
    values = np.array([[1.0, 1 + 2**-11, 1000.3, 1e-9]], np.float32)
    image = replace(made("a", n=1, plain=True), features=values)
    rounding = write_regions(tmp_path, [image])["rounding"]
    stored = RegionStore(tmp_path)[0].features
    assert stored.dtype == np.float16 and stored.tobytes() == values.astype(np.float16).tobytes()
    error = np.abs(values.astype(np.float16).astype(np.float64) - values)
    assert rounding["max_abs"] == pytest.approx(error.max(), rel=1e-6)
    assert rounding["max_rel"] == pytest.approx(
        (error / values)[0, :3].max(), rel=1e-6
    )  # 1e-9 is below normal
    assert 0 < rounding["max_rel"] <= 2**-11
    with pytest.raises(
        InputError, match=r"70021 is beyond float16 .65504. -> store the features as float32"
    ):
        write_regions(tmp_path, [replace(image, features=values * 70)])


def test_a_shard_may_hold_more_values_than_32_bits_number(tmp_path: Path) -> None:
    features = region_schema(2048, "float16").field("features").type
    assert pa.types.is_large_list(features) and pa.types.is_fixed_size_list(features.value_type)
    write_regions(tmp_path, [made("a"), made("b")])
    assert (
        pa.ipc.open_file(tmp_path / "regions-00000.arrow").get_batch(0)["features"].offsets.type
        == pa.int64()
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"image_id": ""}, "an image id has visible characters"),
        ({"image_id": "a\tb"}, "an image id has visible characters"),
        ({"image_id": " a"}, "no space around it"),
        ({"width": 0}, "a size of 0 x 480 pixels"),
        ({"features": np.zeros((0, 4), np.float32)}, r"features of shape \(0, 4\)"),
        ({"features": np.zeros((3, 4))}, "type float64"),
        (
            {"features": np.full((3, 4), np.nan, np.float32)},
            "12 feature values are NaN or infinite",
        ),
        (
            {"boxes": np.zeros((2, 4), np.float32)},
            r"boxes of shape \(2, 4\) and type float32 for 3 regions",
        ),
        ({"boxes": np.full((3, 4), np.inf, np.float32)}, "a coordinate that is NaN or infinite"),
        (
            {"boxes": np.array([[5, 0, 4, 9]] * 3, np.float32)},
            r"box \[5.0, 0.0, 4.0, 9.0\] is not x1, y1, x2, y2",
        ),
        (
            {"boxes": np.array([[0, 0, 700, 9]] * 3, np.float32)},
            "lies outside the image of 640 x 480",
        ),
        (
            {"classes": np.zeros(2, np.int32)},
            r"classes of shape \(2,\) and type int32 for 3 regions",
        ),
        ({"classes": np.full(3, -1, np.int32)}, "classes has a negative number"),
        ({"confidences": np.full(3, np.nan, np.float32)}, "confidences has a value that is NaN"),
    ],
)
def test_wrong_images_are_refused(tmp_path: Path, change: dict, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        write_regions(tmp_path, [made("ok"), replace(made("a"), **change)])
    assert not (tmp_path / "manifest.json").exists()


def test_no_image_and_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image to write"):
        write_regions(tmp_path, [])
    with pytest.raises(InputError, match="choose float16 or float32"):
        write_regions(tmp_path, [made("a")], dtype="float64")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="target_mb 0 -> .* at least 1 MB"):
        write_regions(tmp_path, [made("a")], target_mb=0)


def test_shards_of_another_length_are_refused(tmp_path: Path) -> None:
    write_regions(tmp_path, [made("a")])
    shard, other = tmp_path / "regions-00000.arrow", tmp_path / "regions-00001.arrow"
    write_regions(tmp_path / "more", [made("b", d=5)])
    (tmp_path / "more" / shard.name).rename(other)
    write_manifest(tmp_path, "regions", params={}, inputs={}, rows={shard.name: 1, other.name: 1})
    with pytest.raises(InputError, match="regions-00001.arrow: no column 'features' of type"):
        RegionStore(tmp_path)


FINITE = st.floats(-1e4, 1e4, width=32)
# and what they hold
LAYOUTS = {
    "shards": NAMES,
    "npz": NAMES,
    "tsv": ("boxes", "features"),
    "scan": ("features",),
}


@st.composite
def any_regions(draw: st.DrawFn, image_id: str, n: int, null: tuple[str, ...]) -> Regions:
    features = draw(hnp.arrays(np.float32, (n, 3), elements=FINITE)).astype(
        draw(st.sampled_from(["f2", "f4"]))
    )
    corner = draw(hnp.arrays(np.float32, (n, 2), elements=st.floats(0, 300, width=32)))
    image = replace(
        made(image_id, n), features=features, boxes=np.concatenate([corner, corner + 100], 1)
    )
    return replace(image, **dict.fromkeys(draw(st.sets(st.sampled_from(null))), None))


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_round_trip_of_anything(
    layout: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """What a layout holds comes back to the bit; npz and shards of float32 keep the type of
    features, or widen it."""
    null = NULLABLE if layout in ("shards", "scan") else NULLABLE[1:]
    n = data.draw(st.integers(1, 5))
    sizes = [
        n if layout == "scan" else data.draw(st.integers(1, 5))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    images = [data.draw(any_regions(f"im {k} \u00e9", size, null)) for k, size in enumerate(sizes)]
    folder = tmp_path_factory.mktemp("regions")
    if layout == "shards":
        write_regions(folder, images, dtype="float32")
        found = list(RegionStore(folder))
    else:
        path = folder / {"tsv": "a.tsv", "scan": "a_ims.npy", "npz": "."}[layout]
        assert WRITERS[layout](path, images) == len(images)
        found = list(read_regions(layout, path, input_dtype="float32" if layout == "tsv" else None))
    for a, b in zip(found, images, strict=True):
        if layout != "npz":
            b = replace(b, features=b.features.astype(np.float32))
        if layout == "scan":
            b = replace(b, width=None, height=None)
        assert_same(a, replace(b, **{name: None for name in NAMES if name not in LAYOUTS[layout]}))


def test_the_parameter_names_every_format() -> None:
    said = RegionsParams.model_fields["format"].description or ""
    assert re.findall(r"\w+", said.partition(":")[2].replace(" or ", " ")) == list(READERS)
