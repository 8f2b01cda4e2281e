"""Rank shares, disagreement, and what is put first."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.explorer.pairs import LabelledPairs, joined, ranked


def make_pairs(image: list[int], caption: list[int], **values: list[float]) -> LabelledPairs:
    columns = {name: np.array(column, np.float32) for name, column in values.items()}
    return LabelledPairs(
        np.array(image, np.int32), np.array(caption, np.int32), columns, np.array(image) == np.array(caption)
    )


def test_shares_take_no_notice_of_scale_and_ties_share_theirs() -> None:
    for values in ([3, 1, 2, 2], [300, 0.1, 7, 7]):
        np.testing.assert_allclose(make_pairs([0] * 4, [0] * 4, a=values).shares("a"), [3.5 / 4, 0.5 / 4, 2 / 4, 2 / 4])
    assert len(make_pairs([], [], a=[]).shares("a")) == 0


def test_an_item_comes_no_more_often_than_allowed() -> None:
    pairs = make_pairs([0, 0, 0, 1, 2], [0, 1, 2, 3, 3], a=[0] * 5)
    strength = np.array([5.0, 4, 3, 2, 1])
    assert ranked(pairs, strength, 10).tolist() == [0, 1, 3, 4]
    assert ranked(pairs, strength, 10, per_item=1).tolist() == [0, 3]
    assert ranked(pairs, strength, 1).tolist() == [0]
    assert ranked(pairs, np.zeros(5), 2).tolist() == [0, 1], "equal ones keep their order"


def test_joined_parts() -> None:
    one, two = make_pairs([0], [1], a=[0.5]), make_pairs([2, 3], [4, 5], a=[1, 2])
    both = joined([one, two])
    assert (both.image.tolist(), both.caption.tolist(), both.values["a"].tolist()) == (
        [0, 2, 3],
        [1, 4, 5],
        [0.5, 1, 2],
    )
    with pytest.raises(KeyError):
        joined([one, make_pairs([0], [1], b=[1])])
