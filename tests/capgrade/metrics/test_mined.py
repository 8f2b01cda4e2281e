"""The curve of mined positives against people, by plain counting."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.metrics import Positives
from capgrade.metrics.mined import mined_precision, mined_precision_classes
from capgrade.schemas.errors import InputError


@pytest.mark.parametrize("remove", [False, True])
def test_against_plain_counting(remove):
    random = np.random.default_rng(0)
    scores, owner = random.integers(0, 30, (40, 120)).astype(np.float32), np.repeat(np.arange(40), 3)
    lists = [random.choice(120, 6, replace=False) for _ in range(40)]
    groups = {"query_group": np.arange(40), "candidate_group": owner} if remove else {}
    curve = mined_precision(scores, Positives.from_lists(lists), points=10, **groups)
    human = np.zeros(scores.shape, bool)
    for row, items in enumerate(lists):
        human[row, items] = True
    counted = owner[None] != np.arange(40)[:, None] if remove else np.ones_like(human)
    for t, mined, overlap in zip(curve.thresholds, curve.mined, curve.overlap, strict=True):
        assert mined == ((scores >= t) & counted).sum() and overlap == ((scores >= t) & counted & human).sum()
    assert curve.positives == (human & counted).sum() == curve.overlap[-1]
    assert curve.precision * curve.mined == pytest.approx(curve.overlap) and curve.recall[-1] == 1


def test_classes_against_plain_counting():
    random = np.random.default_rng(1)
    codes, owner = random.integers(0, 2, (700, 5)), np.repeat(np.arange(700), 2)
    codes[:20] = 0  # not annotated: neither mined nor counted
    lists = [random.choice(1400, 3, replace=False) for _ in range(700)]
    groups = {"query_group": np.arange(700), "candidate_group": owner}
    curve = mined_precision_classes(codes, codes[owner], Positives.from_lists(lists), **groups)
    distance = (codes[:, None] != codes[owner][None]).sum(axis=2)
    used = (owner[None] != np.arange(700)[:, None]) & codes.any(1)[:, None] & codes[owner].any(1)
    human = np.zeros(used.shape, bool)
    for row, items in enumerate(lists):
        human[row, items] = True
    for zeta, mined, overlap in zip(curve.thresholds, curve.mined, curve.overlap, strict=True):
        assert mined == (used & (distance <= zeta)).sum() and overlap == (used & human & (distance <= zeta)).sum()


def test_nothing_to_compare_with():
    with pytest.raises(InputError, match="no human positives"):
        mined_precision(np.ones((2, 2)), Positives.from_lists([[], []]))
