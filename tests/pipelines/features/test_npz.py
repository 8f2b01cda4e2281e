"""npz files per image, made with numpy as MILVLG's and the self-critical scripts make them."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.features import READERS, WRITERS
from capgrade.pipelines.features.npz import read_npz, read_teran
from capgrade.schemas.errors import InputError
from tests.schemas.test_pickles import Runs

from .made import made

X = np.arange(10, dtype=np.float32).reshape(2, 5)
BOXES = np.array([[0, 0, 100.5, 200], [10, 20, 640, 360]], np.float32)


def milvlg(path: Path, **change: object) -> None:
    fields = {"x": X, "bbox": BOXES, "num_bbox": 2, "image_h": 360, "image_w": 640, "info": {"objects_id": [1, 2]}}
    arrays = {key: value for key, value in {**fields, **change}.items() if value is not None}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def test_milvlg_both_ways_round(tmp_path: Path) -> None:
    milvlg(tmp_path / "b.npz")
    milvlg(tmp_path / "a.jpg.npz", x=X.T)
    first, second = READERS["npz"](tmp_path)
    assert [first.image_id, second.image_id] == ["a.jpg", "b"]
    for found in (first, second):
        assert (found.features == X).all() and found.features.flags.c_contiguous
        assert (found.boxes == BOXES).all() and (found.width, found.height) == (640, 360)
        assert found.classes is None


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    milvlg(tmp_path / "a.npz", info=Runs(tmp_path / "run"))
    assert len(list(read_npz(tmp_path))) == 1
    milvlg(tmp_path / "a.npz", x=np.array([Runs(tmp_path / "run")], object))
    with pytest.raises(InputError, match="a.npz: cannot be read .Object arrays cannot be loaded"):
        list(read_npz(tmp_path))
    (tmp_path / "a.npz").write_bytes(pickle.dumps(Runs(tmp_path / "run")))
    with pytest.raises(InputError, match="a.npz: cannot be read"):
        list(read_npz(tmp_path))
    assert not (tmp_path / "run").exists()
    pickle.loads((tmp_path / "a.npz").read_bytes())
    assert (tmp_path / "run").exists()  # it would have left its file


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"x": None}, "no key 'x': it has 'bbox', 'num_bbox', 'image_h', 'image_w', 'info'"),
        ({"image_w": None}, "no key 'image_w'"),
        ({"num_bbox": 3}, r"x of shape \(2, 5\) where num_bbox is 3"),
        ({"num_bbox": 2.0}, "num_bbox is not one whole number"),
        ({"image_h": 0}, "image_h is not one whole number"),
        ({"x": X.astype(np.float64)}, "x is of type float64, not float32"),
        ({"x": X[0]}, r"x of shape \(5,\)"),
        ({"x": np.full_like(X, np.nan)}, "10 feature values are NaN"),
        ({"bbox": np.array(["a"])}, "bbox is of type <U1, not numbers"),
        ({"objects_id": np.array([0.5, 1])}, "objects_id of type float64 is not int32"),
    ],
)
def test_wrong_files_are_refused_by_name(tmp_path: Path, change: dict, problem: str) -> None:
    milvlg(tmp_path / "a.npz", **change)
    with pytest.raises(InputError, match=problem) as caught:
        list(read_npz(tmp_path))
    assert caught.value.file == tmp_path / "a.npz" and caught.value.remedy


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """More of them: tests/test_fuzz.py."""
    path = tmp_path / "a.npz"
    milvlg(path, x=np.random.default_rng(0).random((2, 500), np.float32))
    whole = path.read_bytes()
    middle = whole.index(b"x.npy") + 500  # inside the compressed features: the checksum tells
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(InputError, match="a.npz: cannot be read"):
        list(read_npz(tmp_path))
    with zipfile.ZipFile(path, "w") as z:
        for key in ("x", "bbox", "num_bbox", "image_h", "image_w"):
            z.writestr(f"{key}.npy", b"not an array")
    with pytest.raises(InputError, match="a key that is not a numpy array"):
        list(read_npz(tmp_path))
    path.unlink()
    for folder, told in ((tmp_path, r"no \*.npz in this folder"), (tmp_path / "none", "no such folder")):
        with pytest.raises(InputError, match=told):
            list(read_npz(folder))


def teran(folder: Path, image_id: str, feat: np.ndarray = X, box: np.ndarray = BOXES) -> None:
    for name in ("bu_att", "bu_box"):
        (folder / name).mkdir(exist_ok=True)
    np.savez_compressed(folder / "bu_att" / image_id, feat=feat)
    np.save(folder / "bu_box" / image_id, box)


def test_teran_folders(tmp_path: Path) -> None:
    teran(tmp_path, "9")
    teran(tmp_path, "10", X[:1], BOXES[:1].astype(np.float64))
    first, second = READERS["teran"](tmp_path)
    assert [first.image_id, second.image_id] == ["10", "9"]
    assert first.boxes is not None and first.boxes.dtype == np.float32
    assert (second.features == X).all() and (second.boxes == BOXES).all() and second.width is None


def test_teran_damage_is_refused(tmp_path: Path) -> None:
    teran(tmp_path, "1")
    (tmp_path / "bu_box" / "1.npy").rename(tmp_path / "bu_box" / "2.npy")
    with pytest.raises(InputError, match=r"bu_box/1.npy: missing, though image 1 .* \(2 images"):
        list(read_teran(tmp_path))
    (tmp_path / "bu_att" / "1.npz").unlink()
    for box, told in (
        (BOXES[:1], r"bu_box/2.npy: image '2': boxes of shape \(1, 4\)"),
        (np.array([Runs(tmp_path / "run")], object), "bu_box/2.npy: cannot be read"),
    ):
        teran(tmp_path, "2", box=box)
        with pytest.raises(InputError, match=told):
            list(read_teran(tmp_path))
    np.savez(tmp_path / "bu_att" / "2", x=X)
    with pytest.raises(InputError, match="bu_att/2.npz: no key 'feat': it has 'x'"):
        list(read_teran(tmp_path))
    assert not (tmp_path / "run").exists()


def test_written_files_are_read_by_plain_numpy(tmp_path: Path) -> None:
    image = made("a", n=3, d=7)
    assert WRITERS["npz"](tmp_path, [image]) == 1
    with np.load(tmp_path / "a.npz", allow_pickle=False) as z:
        assert (z["x"] == image.features).all() and (z["bbox"] == image.boxes).all()
        assert (int(z["num_bbox"]), int(z["image_h"]), int(z["image_w"])) == (3, 480, 640)
    with pytest.raises(InputError, match="cannot be a file name"):
        WRITERS["npz"](tmp_path, [made("../a")])
    with pytest.raises(InputError, match="no boxes or no size"):
        WRITERS["npz"](tmp_path, [replace(image, boxes=None)])
