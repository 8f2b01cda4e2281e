"""Bottom-up and LXMERT rows, made with csv and base64 as the authors' scripts make them."""

from __future__ import annotations

import base64
import csv
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.features import READERS
from capgrade.pipelines.features.tsv import read_lxmert, read_tsv, write_tsv
from capgrade.schemas.errors import InputError

from .made import made


def b64(kind: str, values: list) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}{kind}", *values)).decode()


def row(**change: str) -> list[str]:
    """Image 391895, 640 x 360, two regions of three numbers."""
    fields = {
        "image_id": "391895", "image_w": "640", "image_h": "360", "num_boxes": "2",
        "boxes": b64("f", [0, 0, 100.5, 200, 10, 20, 640, 360]), "features": b64("f", [0, 1, 2, 3, 4, 0.1]),
    }  # fmt: skip
    return list({**fields, **change}.values())


def lxmert_row(**change: str) -> list[str]:
    fields = {
        "img_id": "COCO_val2014_000000391895", "img_h": "360", "img_w": "640",
        "objects_id": b64("q", [7, 1599]), "objects_conf": b64("f", [0.5, 0.25]),
        "attrs_id": b64("q", [0, 399]), "attrs_conf": b64("f", [0.125, 1]), "num_boxes": "2",
        "boxes": b64("f", [0, 0, 100.5, 200, 10, 20, 640, 360]), "features": b64("f", [0, 1, 2, 3, 4, 0.1]),
    }  # fmt: skip
    return list({**fields, **change}.values())


def save(path: Path, *rows: list[str]) -> Path:
    with path.open("w", newline="") as f:
        csv.writer(f, delimiter="\t").writerows(rows)
    return path


def test_bottom_up_rows(tmp_path: Path) -> None:
    path = save(tmp_path / "a.tsv", row(), row(image_id="5", num_boxes="1", boxes=b64("f", [1, 2, 3, 4]),
                                               features=b64("f", [7, 8, 9])))  # fmt: skip
    first, second = READERS["tsv"](path)
    assert (first.image_id, first.width, first.height) == ("391895", 640, 360)
    assert first.boxes is not None and first.boxes.tolist() == [[0, 0, 100.5, 200], [10, 20, 640, 360]]
    assert first.features.tolist() == [[0, 1, 2], [3, 4, np.float32(0.1)]] and first.features.dtype == np.float32
    assert first.classes is None and first.confidences is None
    assert second.features.tolist() == [[7, 8, 9]]


def test_lxmert_rows(tmp_path: Path) -> None:
    (found,) = READERS["lxmert"](save(tmp_path / "a.tsv", lxmert_row()))
    assert (found.image_id, found.width, found.height) == ("COCO_val2014_000000391895", 640, 360)
    assert found.classes is not None and found.classes.dtype == np.int32 and found.classes.tolist() == [7, 1599]
    assert found.attributes is not None and found.attributes.tolist() == [0, 399]
    assert found.confidences is not None and found.confidences.tolist() == [0.5, 0.25]
    assert found.attribute_confidences is not None and found.attribute_confidences.tolist() == [0.125, 1]
    assert found.features.tolist() == [[0, 1, 2], [3, 4, np.float32(0.1)]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"boxes": b64("f", range(8))[:-4] + "!!!!"}, "boxes is not base64"),
        ({"features": b64("f", range(6))[:-3]}, "features is not base64"),
        ({"features": b64("f", range(5))}, "features has 20 bytes where num_boxes 2 asks for a multiple of 8"),
        ({"features": ""}, "features has 0 bytes"),
        ({"features": b64("f", range(8))}, "4 numbers per region, 3 in the rows before"),
        ({"boxes": b64("f", range(4))}, "boxes has 16 bytes where num_boxes 2 asks for 32"),
        ({"num_boxes": "3"}, "boxes has 32 bytes where num_boxes 3 asks for 48"),
        ({"num_boxes": "0"}, "num_boxes is '0', not a whole number from 1"),
        ({"image_w": "640.0"}, "image_w is '640.0', not a whole number"),
        ({"image_h": "-1"}, "image_h is '-1'"),
        ({"features": b64("f", [0, 1, 2, 3, float("nan"), 5])}, "1 feature values are NaN or infinite"),
        ({"image_w": "360", "image_h": "640"}, "lies outside the image of 360 x 640"),
        ({"image_id": "5"}, "image 5 is in row 1 too"),
        ({"extra": "x"}, "7 fields between tabs, not the 6 of image_id image_w"),
    ],
)
def test_wrong_rows_are_refused_by_name(tmp_path: Path, change: dict[str, str], problem: str) -> None:
    path = save(tmp_path / "a.tsv", row(image_id="5"), row(**change))
    with pytest.raises(InputError, match=problem) as caught:
        list(read_tsv(path))
    assert (caught.value.file, caught.value.row) == (path, 2) and caught.value.remedy


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"objects_id": b64("q", [1])}, "objects_id has 8 bytes where num_boxes 2 asks for 16"),
        ({"objects_id": b64("q", [-1, 2])}, "image .*: classes has a negative number"),
        ({"attrs_id": b64("q", [1, 2**40])}, "attrs_id of type int64 is not int32"),
        ({"objects_conf": b64("f", [0.5])}, "objects_conf has 4 bytes where num_boxes 2 asks for 8"),
        ({"attrs_conf": b64("f", [float("nan"), 1])}, "attribute_confidences has a value that is NaN"),
        ({"extra": ""}, "11 fields between tabs, not the 10"),
    ],
)
def test_wrong_lxmert_rows_are_refused(tmp_path: Path, change: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        list(read_lxmert(save(tmp_path / "a.tsv", lxmert_row(**change))))
    assert caught.value.row == 1


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.tsv", row(image_id="5"), row())
    whole = path.read_bytes()
    end = whole.index(b"\n") + 1  # a whole row: nothing in the format says that more follow
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[: cut + (cut == end)])
        with pytest.raises(InputError, match="cut short|an empty file") as caught:
            list(read_tsv(path))
        assert caught.value.row == (None if cut == 0 else 1 if cut < end else 2)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        list(read_tsv(tmp_path / "none.tsv"))
    with pytest.raises(InputError, match="a folder where a file is needed"):
        list(read_tsv(tmp_path))
    with pytest.raises(InputError, match="10 fields between tabs, not the 6 .* check --format"):
        list(read_tsv(save(tmp_path / "a.tsv", lxmert_row())))
    (tmp_path / "a.tsv").write_bytes(b"\xff" + "\t".join(row()).encode() + b"\n")
    with pytest.raises(InputError, match="row 1: image_id is not UTF-8"):
        list(read_tsv(tmp_path / "a.tsv"))


def test_written_rows_are_read_by_the_authors_loop(tmp_path: Path) -> None:
    images = [made(f"i{k}", n=k + 1, seed=k, plain=True) for k in range(3)]
    assert write_tsv(tmp_path / "a.tsv", images) == 3
    names = ["image_id", "image_w", "image_h", "num_boxes", "boxes", "features"]
    with (tmp_path / "a.tsv").open() as f:
        for item, image in zip(csv.DictReader(f, delimiter="\t", fieldnames=names), images, strict=True):
            n = int(item["num_boxes"])
            assert (item["image_id"], item["image_w"], item["image_h"]) == (image.image_id, "640", "480")
            for name, array in (("boxes", image.boxes), ("features", image.features)):
                read = np.frombuffer(base64.b64decode(item[name]), np.float32).reshape(n, -1)
                assert (read == array).all()


def test_what_the_layout_cannot_hold_is_refused(tmp_path: Path) -> None:
    for change in ({"boxes": None}, {"width": None}, {"height": None}):
        with pytest.raises(InputError, match="has no boxes or no size.* export as scan"):
            write_tsv(tmp_path / "a.tsv", [replace(made("a"), **change)])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="begins with a quote"):
        write_tsv(tmp_path / "a.tsv", [made('"a"')])
    assert not list(tmp_path.iterdir())
