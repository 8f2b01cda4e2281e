"""Tables of pairs: rows, lists of images, and published files as they lie."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import PairLists, Pairs

IDS = ["a", "b", "c"]
CAPTIONS = pa.array(["a1", "a2", "b1", "c1"])


def table(
    image: Sequence[int] = (2, 0, 0),
    caption: Sequence[int] = (3, 1, 0),
    value: Sequence[float] = (0.5, 0.25, 1.0),
) -> Pairs:
    weight = np.array([2.0, 4.0, 1.0])[: len(image)]
    reasons = np.array([2, 2, 1], np.uint32)[: len(image)]
    return Pairs(np.array(image), np.array(caption), weight, {"m": np.array(value)}, reasons)


def test_rows_keep_their_columns_together() -> None:
    pairs, most = table(), np.array([9.0, 8.0, 7.0])
    taken = Pairs(pairs.image, pairs.caption, pairs.weight, most=most).take(np.array([2, 0]))
    assert taken.image.tolist() == [0, 2] and taken.most.tolist() == [7, 9] and not taken.values
    twice = Pairs.concatenate([pairs, pairs.take([1])])
    assert twice.value.tolist() == [0.5, 0.25, 1.0, 0.25] and twice.reasons.tolist() == [2, 2, 1, 2]
    assert len(twice) == 4 and twice.most is None
    assert pairs.of_others(np.array([0, 0, 1, 2])).caption.tolist() == []
    assert pairs.of_others(np.array([0, 1, 1, 2])).caption.tolist() == [1]
    other = pairs.transposed()
    assert (other.image.tolist(), other.caption.tolist()) == ([3, 1, 0], [2, 0, 0])
    assert pairs.valued(np.zeros(3)).value.tolist() == [0, 0, 0]


def test_a_pair_is_found_in_any_order() -> None:
    pairs = table()
    assert pairs.rows_of(np.array([0, 1, 0, 2]), np.array([0, 1, 9, 3])).tolist() == [2, -1, -1, 0]
    assert pairs.take([]).rows_of(np.array([0]), np.array([0])).tolist() == [-1]


def test_dense_relevance_is_a_table_of_every_pair() -> None:
    pairs = Pairs.from_dense(np.array([4, 5]), {"m": np.arange(6.0).reshape(2, 3)})
    assert pairs.image.tolist() == [4, 4, 4, 5, 5, 5] and pairs.caption.tolist() == [0, 1, 2] * 2
    assert pairs.value.tolist() == [0, 1, 2, 3, 4, 5] and (pairs.weight == 1).all()


def test_lists_are_the_same_pairs_by_image() -> None:
    pairs = table().take([1, 2, 0])
    lists = PairLists.from_pairs(pairs, 3)
    assert lists.start.tolist() == [0, 2, 2, 3] and len(lists) == 3
    again = lists.pairs(10, ["m"])
    assert again.image.tolist() == [10, 10, 12] and again.value.tolist() == [0.25, 1, 0.5]
    some = lists.of_images(1, 3)
    assert some.start.tolist() == [0, 0, 1] and some.caption.tolist() == [3]


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
    return PairLists.from_parquet(paths, IDS, CAPTIONS, columns or {"m": "m"})


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
