"""Tables of pairs: rows, and lists of images."""

from collections.abc import Sequence

import numpy as np

from capgrade.schemas.pairs import PairLists, Pairs


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
