"""The curve of mined positives against people, by plain counting."""

import numpy as np
import pytest

from capgrade.metrics import Positives
from capgrade.metrics.mined import mined_precision, mined_precision_classes


def counted(curve: list[dict], values: np.ndarray, among: np.ndarray, lists: list) -> None:
    """`values` fall from one threshold to the next; `among` are the pairs that may be mined."""
    human = np.zeros(values.shape, bool)
    for row, items in enumerate(lists):
        human[row, items] = True
    for row in curve:
        mined = (values >= row["threshold"]) & among
        assert (row["mined"], row["overlap"]) == (mined.sum(), (mined & human).sum())
        assert row["precision"] == pytest.approx((mined & human).sum() / mined.sum())
        assert row["recall"] == pytest.approx((mined & human).sum() / (among & human).sum())
    assert curve[-1]["recall"] == 1 and curve[0]["threshold"] > curve[-1]["threshold"]


def test_against_plain_counting():
    random = np.random.default_rng(0)
    scores = random.integers(0, 30, (40, 120)).astype(np.float32)
    owner = np.repeat(np.arange(40), 3)
    lists = [random.choice(120, 6, replace=False) for _ in range(40)]
    curve = mined_precision(scores, Positives.from_lists(lists), owner)
    counted(curve, scores, owner[None] != np.arange(40)[:, None], lists)


def test_classes_against_plain_counting():
    random = np.random.default_rng(1)
    codes, owner = random.integers(0, 2, (700, 5)), np.repeat(np.arange(700), 2)
    codes[:20] = 0  # not annotated: neither mined nor counted
    lists = [random.choice(1400, 3, replace=False) for _ in range(700)]
    curve = mined_precision_classes(codes, Positives.from_lists(lists), owner)
    distance = (codes[:, None] != codes[owner][None]).sum(axis=2)
    among = (owner[None] != np.arange(700)[:, None]) & codes.any(1)[:, None] & codes[owner].any(1)
    counted([{**row, "threshold": -row["threshold"]} for row in curve], -distance, among, lists)
