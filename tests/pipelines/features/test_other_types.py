"""Feature files as people hold them: other float types, bad rows, folders of COCO trainers, arrays
of one's own."""

import base64
import csv
from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.features.convert import import_regions, read_regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore

RNG = np.random.default_rng(3)
BOXES = np.array([[0, 0, 50, 60], [10, 20, 90, 95], [5, 5, 40, 80]])
PLACES = BOXES.astype("<f4")
FEATURES = np.maximum(RNG.normal(size=(6, 3, 8)), 0)


def write(path: Path, features: np.ndarray, boxes: np.ndarray = PLACES) -> Path:
    with path.open("w", newline="") as f:
        for k, x in enumerate(features):
            cells = [base64.b64encode(a.tobytes()).decode() for a in (boxes, x)]
            csv.writer(f, delimiter="\t").writerow([k, 96, 96, len(x), *cells])
    return path


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
@pytest.mark.parametrize("of_boxes", ["<f2", "<f4", "<f8"])
def test_float_types_are_told_by_bytes_and_values(
    tmp_path: Path, dtype: str, of_boxes: str
) -> None:
    path = write(tmp_path / "a.tsv", FEATURES.astype(dtype), BOXES.astype(of_boxes))
    for found, x in zip(read_regions("tsv", path), FEATURES.astype(dtype), strict=True):
        assert found.boxes is not None
        assert (found.features == x.astype("f4")).all() and (found.boxes == BOXES).all()


def test_what_stays_open_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", np.zeros((2, 3, 8), "<f4"))
    with pytest.raises(
        InputError,
        match=r"may be .* -> say which they are: --set regions.input_dtype=float16\|float32\|float64",
    ):
        list(read_regions("tsv", path))
    assert [len(one.features[0]) for one in read_regions("tsv", path, input_dtype="float32")] == [
        8,
        8,
    ]


def test_boxes_in_shares_and_absurd_features_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", FEATURES.astype("<f4"), (BOXES / 96).astype("<f4"))
    with pytest.raises(InputError, match="boxes in shares of the sides .* -> multiply x1"):
        list(read_regions("tsv", path))
    (tmp_path / "bu_att").mkdir()
    (tmp_path / "bu_box").mkdir()
    np.savez(tmp_path / "bu_att" / "1", feat=FEATURES[0].astype("f4"))
    np.save(tmp_path / "bu_box" / "1", BOXES / 96)
    with pytest.raises(InputError, match="boxes in shares of the sides"):
        list(read_regions("teran", tmp_path))
    np.savez(tmp_path / "bu_att" / "1", feat=np.full((3, 8), 1e9, "f4"))
    with pytest.raises(InputError, match="1e[+]09 is beyond 1,000,000"):
        list(read_regions("teran", tmp_path / "bu_att"))


def test_bad_rows_are_counted_or_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", FEATURES.astype("<f4"))
    rows = path.read_text().splitlines(keepends=True)
    rows[1], rows[4] = rows[1].replace("\t3\t", "\t0\t"), rows[4].replace("\t3\t", "\t2\t")
    path.write_text("".join(rows))
    with pytest.raises(
        InputError, match="a.tsv row 2: num_boxes is '0'.*; 2 of 6 images are bad, next a.tsv row 5"
    ):
        import_regions(tmp_path / "out", RegionsParams(format="tsv", features=(str(path),)))
    params = RegionsParams(format="tsv", features=(str(path),), unreadable="skip")
    manifest = import_regions(tmp_path / "out", params)
    assert [(one["image_id"], one["file"]) for one in manifest["left_out"]] == [
        ("1", "a.tsv row 2"),
        ("4", "a.tsv row 5"),
    ]
    assert RegionStore(tmp_path / "out").ids == ["0", "2", "3", "5"]


def test_folders_of_coco_trainers(tmp_path: Path) -> None:
    for name in ("cocobu_att", "cocobu_box", "cocobu_fc", "cocotalk_att"):
        (tmp_path / name).mkdir()
    np.savez_compressed(tmp_path / "cocobu_att" / "391895", feat=FEATURES[0].astype("f4"))
    np.save(tmp_path / "cocobu_box" / "391895", BOXES.astype("f4"))
    for sources in ([tmp_path], [tmp_path / "cocobu_att", tmp_path / "cocobu_box"]):
        (found,) = read_regions("teran", *sources)
        assert found.image_id == "391895" and found.boxes is not None
        assert (found.features == FEATURES[0].astype("f4")).all()
    (found,) = read_regions("teran", tmp_path / "cocobu_att")
    assert found.boxes is None


def test_an_array_of_ones_own(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", FEATURES[:, 0])
    (tmp_path / "ids").write_text("".join(f"i{k}\n" for k in range(6)))
    found = list(read_regions("npy", tmp_path / "x.npy", ids=[tmp_path / "ids"]))
    assert [one.image_id for one in found] == [f"i{k}" for k in range(6)]
    assert (found[2].features == FEATURES[2, :1].astype("f4")).all()
    np.savez(tmp_path / "x.npz", x=FEATURES, ids=np.arange(6))
    assert [one.image_id for one in read_regions("npy", tmp_path / "x.npz")] == list("012345")
    with pytest.raises(InputError, match="without its image ids -> give --set regions.ids"):
        list(read_regions("npy", tmp_path / "x.npy"))
