"""Other people's feature files, made with csv, base64, numpy and h5py as their authors' scripts
make them."""

import base64
import csv
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capgrade.pipelines.features import WRITERS
from capgrade.pipelines.features.convert import read_regions
from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from tests.capgrade.test_pickles import Runs

from .made import assert_same, made


def b64(values: Any, kind: str = "<f4") -> str:
    return base64.b64encode(np.array(values, kind).tobytes()).decode()


X = np.array([[0, 1, 2], [3, 4, 0.1]], np.float32)  # two regions of an image of 640 x 360
BOXES = np.array([[0, 0, 100.5, 200], [10, 20, 640, 360]], np.float32)
LAST = {"num_boxes": "2", "boxes": b64(BOXES), "features": b64(X)}
TSV = {"image_id": "391895", "image_w": "640", "image_h": "360", **LAST}
LXMERT = {
    "img_id": "COCO_val2014_000000391895",
    "img_h": "360",
    "img_w": "640",
    "objects_id": b64([7, 1599], "<i8"),
    "objects_conf": b64([0.5, 0.25]),
    "attrs_id": b64([0, 399], "<i8"),
    "attrs_conf": b64([0.125, 1]),
    **LAST,
}
PLAIN = Regions("391895", 640, 360, BOXES, X)
ROWS = np.random.default_rng(0).random((2, 3, 4), np.float32)  # of two images
FIVES = ROWS.repeat(5, 0)
IDS = ["391895", "522418"]


def unplaced(ids: list[str]) -> list[Regions]:
    """ROWS as images without boxes and sizes."""
    return [Regions(image_id, None, None, None, x) for image_id, x in zip(ids, ROWS, strict=True)]


def fives(values: list[str]) -> list[str]:
    return [value for value in values for _ in range(5)]


def table(folder: Path, *rows: dict[str, str]) -> Path:
    with (folder / "a.tsv").open("w", newline="") as f:
        csv.writer(f, delimiter="\t").writerows(row.values() for row in rows)
    return folder / "a.tsv"


def milvlg(folder: Path, name: str = "a", **change: object) -> Path:
    fields = {
        "x": X,
        "bbox": BOXES,
        "num_bbox": 2,
        "image_h": 360,
        "image_w": 640,
        "info": {"objects_id": [1, 2]},
    }
    arrays = {key: value for key, value in {**fields, **change}.items() if value is not None}
    np.savez_compressed(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    return folder


def teran(
    folder: Path, name: str = "2", feat: np.ndarray = X, box: np.ndarray = BOXES, key: str = "feat"
) -> Path:
    for part in ("bu_att", "bu_box"):
        (folder / part).mkdir(exist_ok=True)
    np.savez_compressed(folder / "bu_att" / name, **{key: feat})  # type: ignore[arg-type]
    np.save(folder / "bu_box" / name, box)
    return folder


def scan(folder: Path, rows: np.ndarray = ROWS, ids: list[str] = IDS) -> Path:
    np.save(folder / "dev_ims.npy", rows)
    (folder / "dev_ids.txt").write_text("".join(f"{image_id}\n" for image_id in ids))
    return folder / "dev_ims.npy"


def h5(folder: Path, rows: np.ndarray = ROWS, ids: list[str] = IDS, **options: Any) -> Path:
    with h5py.File(folder / "dev.h5", "w") as f:
        f.create_dataset("feat", data=rows, **options)
    (folder / "dev_ids.txt").write_text("\r\n".join(ids))
    return folder / "dev.h5"


MADE = {
    "tsv": lambda folder, **change: table(folder, TSV | {"image_id": "5"}, TSV | change),
    "lxmert": lambda folder, **change: table(folder, LXMERT | change),
    "npz": milvlg, "teran": teran, "scan": scan, "h5": h5,
}  # fmt: skip
PLACES = {"tsv": ("a.tsv", 2), "lxmert": ("a.tsv", 1), "npz": ("a.npz", None)}
NAN = np.where(np.arange(24).reshape(2, 3, 4) == 20, np.float32(np.nan), ROWS)
SCAN: list[tuple[dict, str]] = [
    ({"ids": IDS[:1]}, r"dev_ids.txt: 1 ids \(1 images\) for 2 rows"),
    ({"ids": [*IDS, "3"]}, r"3 ids \(3 images\) for 2 rows"),
    (
        {"ids": [IDS[0]] * 2},
        "row 1: image 391895 comes 2 times, neither once nor 5 times in turn like every other",
    ),
    (
        {"rows": FIVES[:9], "ids": ["1"] * 9},
        "row 1: image 1 comes 9 times, neither once nor 5 times",
    ),
    (
        {"rows": FIVES, "ids": [*fives(IDS[:1]), *IDS[1:] * 4, "3"]},
        "row 6: image 522418 comes 4 times, neither once ",
    ),
    ({"ids": ["1", ""]}, "dev_ids.txt row 2: no id in this row -> delete the empty row|: 1 ids"),
    ({"rows": ROWS[0]}, r"an array of shape \(3, 4\)"),
    ({"rows": ROWS.astype(np.int32)}, "of type int32, not float32"),
    ({"rows": NAN}, r"row \[1\]: image '522418': 1 feature values are NaN"),
    (
        {"rows": np.arange(120, dtype="f4").reshape(10, 3, 4), "ids": fives(IDS)},
        "rows 0 to 4 are one image by their",
    ),
]
WRONG: dict[str, list[tuple[dict, str]]] = {
    "tsv": [
        ({"boxes": b64(range(8))[:-4] + "!!!!"}, "boxes is not base64"),
        ({"features": b64(range(6))[:-3]}, "features is not base64"),
        ({"features": b64(range(5))}, "features has 20 bytes where num_boxes 2 asks for 24"),
        ({"features": ""}, "features has 0 bytes"),
        ({"boxes": b64(range(4))}, "boxes has 16 bytes where num_boxes 2 asks for 32"),
        ({"num_boxes": "0"}, "num_boxes is '0', not a whole number from 1"),
        ({"image_w": "640.0"}, "image_w is '640.0', not a whole number"),
        ({"image_h": "-1"}, "image_h is '-1'"),
        ({"image_w": "360", "image_h": "640"}, "lies outside the image of 360 x 640"),
        (
            {"extra": "x"},
            "7 fields between tabs, not the 6 of image_id image_w.* check regions.format",
        ),
        (
            dict.fromkeys("abcd", "x"),
            "10 fields between tabs, not the 6 .* -> this looks like the format lxmert",
        ),
    ],
    "lxmert": [
        (
            {"objects_id": b64([1, 2, 3, 4], "<i8")},
            "objects_id has 32 bytes where num_boxes 2 asks for 16",
        ),
        ({"objects_id": b64([-1, 2], "<i8")}, "image .*: classes has a negative number"),
        ({"attrs_id": b64([1, 2**40], "<i8")}, "attrs_id of type int64 is not int32"),
        ({"extra": ""}, "11 fields between tabs, not the 10"),
    ],
    "npz": [
        ({"x": None}, "no key 'x': it has 'bbox', 'num_bbox', 'image_h', 'image_w', 'info'"),
        ({"image_w": None}, "no key 'image_w'"),
        ({"num_bbox": 4}, r"x of shape \(2, 3\) where num_bbox is 4"),
        ({"num_bbox": 2.0}, "num_bbox is not one whole number"),
        ({"image_h": 0}, "image_h is not one whole number"),
        ({"x": X.astype(np.int64)}, "x is of type int64, not float32"),
        ({"x": X[0]}, r"x of shape \(3,\)"),
        ({"bbox": np.array(["a"])}, "bbox is of type <U1, not numbers"),
        ({"objects_id": np.array([0.5, 1])}, "objects_id of type float64 is not int32"),
    ],
    "teran": [
        ({"box": BOXES[:1]}, r"bu_box/2.npy: image '2': boxes of shape \(1, 4\)"),
        ({"feat": np.full_like(X, np.inf)}, "bu_att/2.npz: image '2': .* are NaN"),
        ({"key": "x"}, "bu_att/2.npz: no key 'feat': it has 'x'"),
    ],
    "scan": SCAN,
    "h5": SCAN,
}


def holds(layout: str, path: Path, *expected: Regions) -> None:
    for found, regions in zip(read_regions(layout, path), expected, strict=True):
        assert_same(found, regions)


def refused(layout: str, path: Path, told: str) -> InputError:
    with pytest.raises(InputError, match=told) as caught:
        list(read_regions(layout, path))
    return caught.value


@pytest.mark.parametrize(
    ("layout", "change", "told"), [(name, *case) for name in WRONG for case in WRONG[name]]
)
def test_wrong_files_are_refused_by_name(
    tmp_path: Path, layout: str, change: dict, told: str
) -> None:
    error = refused(layout, MADE[layout](tmp_path, **change), told)
    assert error.file is not None and error.remedy
    assert (Path(error.file).name, error.row) == PLACES.get(
        layout, (Path(error.file).name, error.row)
    )


def test_what_images_have_in_common_is_asked_of_all_files_together(tmp_path: Path) -> None:
    milvlg(tmp_path, "b", x=X[:, :2])
    with pytest.raises(
        InputError,
        match="b.npz: 2 numbers per region, 3 in the others -> keep features of different",
    ):
        list(read_regions("npz", milvlg(tmp_path)))
    (tmp_path / "more").mkdir()
    with pytest.raises(
        InputError, match="more/a.tsv row 1: image 391895 is in .*a.tsv row 1 too -> give every"
    ):
        list(read_regions("tsv", table(tmp_path, TSV), table(tmp_path / "more", TSV)))


def test_bottom_up_and_lxmert_rows(tmp_path: Path) -> None:
    small = {
        "image_id": "5",
        "num_boxes": "1",
        "boxes": b64([1, 2, 3, 4]),
        "features": b64([7, 8, 9]),
    }
    second = Regions("5", 640, 360, np.array([[1, 2, 3, 4]], "f4"), np.array([[7, 8, 9]], "f4"))
    holds("tsv", table(tmp_path, TSV, TSV | small), PLAIN, second)
    classes, attributes = np.array([[7, 1599], [0, 399]], np.int32)
    first, other = np.array([[0.5, 0.25], [0.125, 1]], np.float32)
    holds(
        "lxmert",
        table(tmp_path, LXMERT),
        Regions(LXMERT["img_id"], 640, 360, BOXES, X, classes, first, attributes, other),
    )


def test_a_table_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = MADE["tsv"](tmp_path)
    whole = path.read_bytes()
    end = whole.index(b"\n") + 1  # a whole row: nothing in the format says that more follow
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[: cut + (cut == end)])
        error = refused("tsv", path, "cut short|an empty file")
        assert error.row == (None if cut == 0 else 1 if cut < end else 2)
    path.write_bytes(b"\xff" + whole)
    refused("tsv", path, "row 1: image_id is not UTF-8")
    refused("tsv", tmp_path / "none.tsv", "no such file")
    refused("tsv", tmp_path, "a folder where a file is needed")


def test_milvlg_both_ways_round_and_teran_folders(tmp_path: Path) -> None:
    milvlg(tmp_path, "b")
    holds(
        "npz",
        milvlg(tmp_path, "a.jpg", x=X.T),
        replace(PLAIN, image_id="a.jpg"),
        replace(PLAIN, image_id="b"),
    )
    teran(tmp_path, "9")
    expected = Regions("10", None, None, BOXES[:1], X[:1]), Regions("9", None, None, BOXES, X)
    holds("teran", teran(tmp_path, "10", X[:1], BOXES[:1].astype(np.float64)), *expected)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trap = np.array([Runs(tmp_path / "run")], object)
    assert len(list(read_regions("npz", milvlg(tmp_path, info=Runs(tmp_path / "run"))))) == 1
    refused(
        "npz", milvlg(tmp_path, x=trap), "a.npz: cannot be read .Object arrays cannot be loaded"
    )
    (tmp_path / "a.npz").write_bytes(pickle.dumps(Runs(tmp_path / "run")))
    refused("npz", tmp_path, "a.npz: cannot be read")
    refused("teran", teran(tmp_path, box=trap), "bu_box/2.npy: cannot be read")
    assert not (tmp_path / "run").exists()
    pickle.loads((tmp_path / "a.npz").read_bytes())
    assert (tmp_path / "run").exists()  # it would have left its file


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    """More of them: tests/test_fuzz.py."""
    path = milvlg(tmp_path, x=np.random.default_rng(0).random((2, 500), np.float32)) / "a.npz"
    whole = path.read_bytes()
    middle = whole.index(b"x.npy") + 500  # inside the compressed features: the checksum tells
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    refused("npz", tmp_path, "a.npz: cannot be read")
    with zipfile.ZipFile(path, "w") as z:
        for key in ("x", "bbox", "num_bbox", "image_h", "image_w"):
            z.writestr(f"{key}.npy", b"not an array")
    refused("npz", tmp_path, "a key that is not a numpy array")
    path.unlink()
    refused("npz", tmp_path, r"no \*.npz in this folder")
    refused("npz", tmp_path / "none", "no such folder")
    (teran(tmp_path, "1") / "bu_box" / "1.npy").rename(tmp_path / "bu_box" / "2.npy")
    refused(
        "teran", tmp_path, r"bu_box/1.npy: missing, though image 1 .*; none of the first 2 images"
    )


@pytest.mark.parametrize("layout", ["scan", "h5"])
@pytest.mark.parametrize(
    ("rows", "ids"),
    [(ROWS, IDS), (FIVES, fives(IDS)), (FIVES, IDS), (ROWS, fives(IDS)), (ROWS.astype(">f4"), IDS)],
    ids=[
        "an id a row",
        "five equal rows",
        "five rows an id",
        "an id a caption",
        "of the other byte order",
    ],
)
def test_rows_repeated_or_not(
    tmp_path: Path, layout: str, rows: np.ndarray, ids: list[str]
) -> None:
    holds(layout, MADE[layout](tmp_path, rows, ids), *unplaced(IDS))


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    path = scan(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused("scan", path, "dev_ims.npy: cannot be read")
    path.write_bytes(whole + b"12")
    refused("scan", path, "2 bytes after the end of the array")
    path.write_bytes(whole)
    (tmp_path / "dev_ids.txt").unlink()
    refused("scan", path, "dev_ids.txt: no such file")


def test_damaged_h5_is_refused(tmp_path: Path) -> None:
    """At chosen places: on a few random changes libhdf5 itself never returns."""
    path = h5(tmp_path)
    whole = path.read_bytes()
    for part in (
        whole,
        *(part for part in (b"HDF", b"TREE", b"SNOD", b"HEAP", b"feat") if part in whole),
    ):
        path.write_bytes(whole.replace(part, b"\xff" * len(part)))
        refused("h5", path, "dev.h5: (cannot be read|no dataset 'feat')")
    with h5py.File(path, "w") as f:
        f.create_dataset("features", data=ROWS)
    refused("h5", path, "no dataset 'feat': it has 'features'")
    with h5py.File(path, "w") as f:
        # 4 GB an image, none of it there
        f.create_dataset("feat", (2, 2**20, 2**10), np.float32, chunks=(1, 64, 1024))
    refused("h5", path, "an array of shape")
    refused("h5", tmp_path / "test.h5", "test.h5: no such file")
    path = h5(tmp_path, compression="gzip", chunks=(2, 3, 4))
    assert [regions.image_id for regions in read_regions("h5", path)] == IDS
    with h5py.File(path) as f:
        offset = f["feat"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset + 4 : offset + 20] = bytes(16)
    path.write_bytes(data)
    refused("h5", path, r"dev.h5 row \[0\]: cannot be read")


@pytest.mark.parametrize("repeat", [1, 5])
def test_without_ids_images_are_called_as_their_captions_are(tmp_path: Path, repeat: int) -> None:
    """The count of captions tells whether rows are repeated; without it there is nothing to go
    by."""
    path = scan(tmp_path, ROWS.repeat(repeat, 0))
    (tmp_path / "dev_ids.txt").unlink()
    (tmp_path / "dev_caps.txt").write_text("".join(f"caption {k}\n" for k in range(10)))
    holds("scan", path, *unplaced(["dev-0", "dev-1"]))
    captions = CaptionsParams(source="precomp", input=str(tmp_path), split="dev")
    assert list(dict.fromkeys(c.image_id for c in read_source(captions))) == ["dev-0", "dev-1"]
    (tmp_path / "dev_caps.txt").write_text("a\n" * 15)
    refused("scan", path, "dev_caps.txt: 15 captions, 5 an image, for.* -> give dev_ids.txt, which")


def test_written_files_are_read_by_their_authors_code(tmp_path: Path) -> None:
    images = [made(f"i{k}", n=k + 1, seed=k, plain=True) for k in range(3)]
    assert WRITERS["tsv"](tmp_path / "a.tsv", images) == WRITERS["npz"](tmp_path, images) == 3
    with (tmp_path / "a.tsv").open() as f:
        for item, image in zip(csv.DictReader(f, list(TSV), delimiter="\t"), images, strict=True):
            n = int(item["num_boxes"])
            assert (item["image_id"], item["image_w"], item["image_h"]) == (
                image.image_id,
                "640",
                "480",
            )
            with np.load(tmp_path / f"{image.image_id}.npz", allow_pickle=False) as z:
                assert (int(z["num_bbox"]), int(z["image_h"]), int(z["image_w"])) == (n, 480, 640)
                for field, key, array in (
                    ("boxes", "bbox", image.boxes),
                    ("features", "x", image.features),
                ):
                    read = np.frombuffer(base64.b64decode(item[field]), np.float32).reshape(n, -1)
                    assert (read == array).all() and (z[key] == array).all()


@pytest.mark.parametrize(
    ("layout", "name", "images", "told"),
    [
        *(
            (layout, name, [replace(made("a"), **{lacking: None})], "has no boxes or no size.* export as scan")  # type: ignore[arg-type]
            for layout, name in (("tsv", "a.tsv"), ("npz", "."))
            for lacking in ("boxes", "width", "height")
        ),
        ("tsv", "a.tsv", [made('"a"')], "begins with a quote"),
        *(("npz", ".", [made(name)], "cannot be a file name") for name in ("a/b", "../x", "..", ".hidden", "a\\b")),
        *(("npz", ".", [made(name)], "an image id has visible characters") for name in ("a\0b", "a\nb")),
        ("scan", "a_ims.npy", [made("a"), made("b", n=4)], r"image 'b' has \(4, 4\) features, \(3, 4\) before .* tsv"),
        ("scan", "a_ims.npy", [], "no image to write"),
        ("scan", "a.npy", [made("a")], "not a _ims.npy file"),
    ],
)  # fmt: skip
def test_what_a_layout_cannot_hold_is_refused(
    tmp_path: Path, layout: str, name: str, images: list, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        WRITERS[layout](tmp_path / name, images)
    assert not list(tmp_path.iterdir())
