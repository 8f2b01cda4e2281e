"""What tells a picture from a changed one: the file whose bytes are read."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.pictures.listing import list_pictures


def test_a_row_that_names_a_file_has_the_stamp_of_that_file(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    rows = [{"bytes": None, "path": "1.jpg"}, {"bytes": None, "path": str(tmp_path / "2.jpg")}]
    pq.write_table(pa.table({"image": pa.array(rows, kind)}), tmp_path / "rows.parquet")
    before = list_pictures(tmp_path / "rows.parquet")
    stamps = [picture.stamp() for picture in before]
    assert [picture.read()[3:] for picture in before] == [b"1.jpg", b"2.jpg"]
    os.utime(tmp_path / "2.jpg")
    assert [a == b.stamp() for a, b in zip(stamps, before, strict=True)] == [True, False]


def test_pictures_that_are_swapped_in_a_list_have_other_stamps(tmp_path: Path) -> None:
    """Though both were written in one tick of the clock, with one size."""
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    listed = tmp_path / "list.txt"
    listed.write_text("a\t1.jpg\nb\t2.jpg\n")
    before = {picture.image_id: picture.stamp() for picture in list_pictures(listed)}
    listed.write_text("a\t2.jpg\nb\t1.jpg\n")
    after = {picture.image_id: picture.stamp() for picture in list_pictures(listed)}
    assert before.keys() == after.keys() and not {*before.values()} & {*after.values()}
