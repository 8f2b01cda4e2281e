"""SCAN's arrays and DAA's HDF5 files, made with numpy and h5py."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from capgrade.pipelines.features import READERS, WRITERS
from capgrade.pipelines.features.scan import read_h5, read_scan, write_scan
from capgrade.pipelines.sources import read_source
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

from .made import made

X = np.random.default_rng(0).random((2, 3, 4), np.float32)
IDS = ["391895", "522418"]


def scan(folder: Path, rows: np.ndarray, ids: list[str]) -> Path:
    np.save(folder / "dev_ims.npy", rows)
    (folder / "dev_ids.txt").write_text("".join(f"{image_id}\n" for image_id in ids))
    return folder / "dev_ims.npy"


def h5(folder: Path, rows: np.ndarray, ids: list[str]) -> Path:
    with h5py.File(folder / "dev.h5", "w") as f:
        f.create_dataset("feat", data=rows)
    (folder / "dev_ids.txt").write_text("\n".join(ids))
    return folder / "dev.h5"


def fives(values: list[str]) -> list[str]:
    return [value for value in values for _ in range(5)]


@pytest.mark.parametrize("name", ["scan", "h5"])
@pytest.mark.parametrize(
    ("rows", "ids"),
    [(X, IDS), (X.repeat(5, 0), fives(IDS)), (X.repeat(5, 0), IDS), (X, fives(IDS))],
    ids=["an id a row", "five equal rows", "five rows an id", "an id a caption"],
)
def test_rows_repeated_or_not(tmp_path: Path, name: str, rows: np.ndarray, ids: list[str]) -> None:
    path = {"scan": scan, "h5": h5}[name](tmp_path, rows, ids)
    found = list(READERS[name](path))
    assert [regions.image_id for regions in found] == IDS
    for regions, x in zip(found, X, strict=True):
        assert regions.features.dtype == np.float32 and (regions.features == x).all()
        assert regions.boxes is None and regions.width is None and regions.height is None


@pytest.mark.parametrize("name", ["scan", "h5"])
@pytest.mark.parametrize(
    ("rows", "ids", "problem"),
    [
        (X, IDS[:1], r"dev_ids.txt: 1 ids \(1 images\) for 2 rows"),
        (X, [*IDS, "3"], r"3 ids \(3 images\) for 2 rows"),
        (X, [IDS[0]] * 2, "image 391895 comes 2 times"),
        (X.repeat(5, 0), [*fives(IDS[:1]), *IDS[1:] * 4, "3"], "row 6: image 522418 comes 4 times, neither once nor 5"),
        (X, ["1", ""], "dev_ids.txt row 2: no id in this row|1 ids"),
        (X[0], IDS, r"an array of shape \(3, 4\)"),
        (X.astype(np.float64), IDS, "of type float64, not float32"),
        (X.astype(np.int32), IDS, "of type int32, not float32"),
        (
            np.where(np.arange(24).reshape(2, 3, 4) == 20, np.float32(np.nan), X),
            IDS,
            r"row \[1\]: image '522418': 1 feature values are NaN",
        ),
        (np.arange(120, dtype=np.float32).reshape(10, 3, 4), fives(IDS), "rows 0 to 4 are one image by their ids"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, name: str, rows: np.ndarray, ids: list[str], problem: str) -> None:
    path = {"scan": scan, "h5": h5}[name](tmp_path, rows, ids)
    with pytest.raises(InputError, match=problem) as caught:
        list(READERS[name](path))
    assert caught.value.remedy


def refused(path: Path, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list((read_h5 if path.suffix == ".h5" else read_scan)(path))


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    path = scan(tmp_path, X, IDS)
    whole = path.read_bytes()
    for content, problem in (
        (whole[:-1], "dev_ims.npy: cannot be read"),
        (whole + b"12", "2 bytes after the end of the array"),
    ):
        path.write_bytes(content)
        refused(path, problem)
    path.write_bytes(whole)
    (tmp_path / "dev_ids.txt").write_bytes(b"\xff\n")
    refused(path, "dev_ids.txt row 1: byte 0xff")
    (tmp_path / "dev_ids.txt").unlink()
    refused(path, "dev_ids.txt: no such file")
    refused(tmp_path, "not a _ims.npy file")
    refused(tmp_path / "test_ims.npy", "test_ims.npy: no such file")


def test_damaged_h5_is_refused(tmp_path: Path) -> None:
    """At chosen places: on a few random changes libhdf5 itself never returns."""
    path = h5(tmp_path, X, IDS)
    whole = path.read_bytes()
    for part in (whole, *(part for part in (b"HDF", b"TREE", b"SNOD", b"HEAP", b"feat") if part in whole)):
        path.write_bytes(whole.replace(part, b"\xff" * len(part)))
        refused(path, "dev.h5: (cannot be read|no dataset 'feat')")
    with h5py.File(path, "w") as f:
        f.create_dataset("features", data=X)
    refused(path, "no dataset 'feat': it has 'features'")
    with h5py.File(path, "w") as f:
        f.create_dataset("feat", (2, 2**20, 2**10), np.float32, chunks=(1, 64, 1024))  # 4 GB an image, none of it there
    refused(path, "an array of shape")
    refused(tmp_path / "test.h5", "test.h5: no such file")


def test_compressed_h5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "train.h5", "w") as f:
        f.create_dataset("feat", data=X, compression="gzip", chunks=(2, 3, 4))
    (tmp_path / "train_ids.txt").write_text("1\r\n2\r\n")
    assert [regions.image_id for regions in read_h5(tmp_path / "train.h5")] == ["1", "2"]
    with h5py.File(tmp_path / "train.h5") as f:
        offset = f["feat"].id.get_chunk_info(0).byte_offset
    data = bytearray((tmp_path / "train.h5").read_bytes())
    data[offset + 4 : offset + 20] = bytes(16)
    (tmp_path / "train.h5").write_bytes(data)
    with pytest.raises(InputError, match=r"train.h5 row \[0\]: cannot be read"):
        list(read_h5(tmp_path / "train.h5"))


def test_what_the_layout_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test_ims.npy"
    with pytest.raises(InputError, match=r"image 'b' has \(4, 4\) features, \(3, 4\) before .* export as tsv or npz"):
        WRITERS["scan"](path, [made("a"), made("b", n=4)])
    with pytest.raises(InputError, match="no image to write"):
        write_scan(path, [])
    with pytest.raises(InputError, match="not a _ims.npy file"):
        write_scan(tmp_path / "a.npy", [made("a")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("repeat", [1, 5])
def test_without_ids_images_are_called_as_their_captions_are(tmp_path: Path, repeat: int) -> None:
    """The count of captions tells whether rows are repeated; without it there is nothing to go by."""
    path = scan(tmp_path, X.repeat(repeat, 0), IDS)
    (tmp_path / "dev_ids.txt").unlink()
    (tmp_path / "dev_caps.txt").write_text("".join(f"caption {k}\n" for k in range(10)))
    found = list(read_scan(path))
    assert [regions.image_id for regions in found] == ["dev-0", "dev-1"]
    assert all((regions.features == x).all() for regions, x in zip(found, X, strict=True))
    captions = CaptionsParams(source="precomp", input=str(tmp_path), split="dev")
    assert list(dict.fromkeys(c.image_id for c in read_source(captions))) == ["dev-0", "dev-1"]
    (tmp_path / "dev_caps.txt").write_text("a\n" * 15)
    with pytest.raises(InputError, match="dev_caps.txt: 15 captions, 5 an image, for.* -> give dev_ids.txt, which"):
        list(read_scan(path))
