"""Pairs of published files, as they lie."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import PairLists
from capgrade.schemas.published import from_parquet

IDS = ["a", "b", "c"]
CAPTIONS = pa.array(["a1", "a2", "b1", "c1"])


def write(path: Path, **other: pa.Array) -> Path:
    columns = {
        "image_id": pa.array(["a", "a", "c"]),
        "caption_id": pa.array(["a2", "a1", "c1"]),
        "weight": pa.array([4.0, 1.0, 2.0], pa.float32()),
        "reasons": pa.array([["drawn"], ["own", "drawn"], ["drawn"]]),
        "m": pa.array([0.25, 1.0, 0.5], pa.float32()),
    }
    pq.write_table(pa.table({**columns, **other}), path)
    return path


def read(*paths: Path, **columns: str) -> tuple[list[PairLists], list[str]]:
    return from_parquet(paths, IDS, CAPTIONS, columns or {"m": "m"})


def test_published_files_are_read_as_they_lie(tmp_path: Path) -> None:
    """Several files; texts with and without a dictionary; float64; another name of list items."""
    last = write(
        tmp_path / "1", image_id=pa.array(["c"] * 3), caption_id=pa.array(["a1", "a2", "b1"])
    )
    table = pq.read_table(write(tmp_path / "0", m=pa.array([0.25, 1.0, 0.5], pa.float64())))
    pq.write_table(table, tmp_path / "0", use_dictionary=False, use_compliant_nested_type=False)
    (lists,), reasons = read(tmp_path / "0", last)
    assert reasons == ["drawn", "own"] and lists.start.tolist() == [0, 2, 2, 6]
    assert lists.caption.tolist() == [1, 0, 3, 0, 1, 2] and lists.reasons.tolist() == [1, 3, 1] * 2
    assert lists.values["m"].tolist() == [0.25, 1, 0.5] * 2 and lists.weight.dtype == np.float32


@pytest.mark.parametrize(("other", "said"), [
    ({"image_id": pa.array(["a", "a", "z"])}, "a pair of an image or caption that the captions lack"),
    ({"caption_id": pa.array(["a2", None, "c1"])}, "a pair of an image or caption that the captions"),
    ({"image_id": pa.array(["c", "a", "a"])}, "pairs are not in the order of images"),
    ({"m": pa.array([0.5, None, 1.0])}, r"pairs\[1\].*'m' has no value -> publish it again"),
    ({"weight": pa.array([1.0, 2.0, None])}, r"pairs\[2\].*'weight' has no value"),
    ({"m": pa.array(["x", "y", "z"])}, "not a table of image_id, caption_id, weight, reasons, m"),
    ({"reasons": pa.array([[f"r{k}" for k in range(33)]] * 3)}, "more than 32 reasons"),
])  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, other: dict[str, pa.Array], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(write(tmp_path / "0", **other))


def test_a_measure_of_some_pairs_may_lack_values(tmp_path: Path) -> None:
    path = write(
        tmp_path / "0",
        m=pa.array([0.5, None, 1.0]),
        reasons=pa.array([["scored_m"], ["own"], ["scored_m"]]),
    )
    (lists,), _ = read(path)
    assert np.isnan(lists.values["m"]).tolist() == [False, True, False]
    with pytest.raises(InputError, match="no column n"):
        read(path, n="n")
