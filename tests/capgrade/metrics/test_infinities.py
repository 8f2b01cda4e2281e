"""+inf, -inf and NaN in similarities and labels: ranked, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.metrics import (
    Positives,
    asp,
    coherent_score,
    collapse,
    kendall_tau,
    ncs,
    ndcg,
    recall,
    recall_share,
    semantic_map,
    semantic_recall,
)
from capgrade.metrics.base import Queries, own_positives
from capgrade.metrics.catalogue import metric, score_all
from capgrade.metrics.mined import mined_precision
from capgrade.metrics.ranking import COLUMNS, rank
from capgrade.metrics.semantic_recall import extension_images
from capgrade.schemas.errors import InputError
from capgrade.trainer.evaluation.inputs import read_similarity
from tests.conftest import make_captions

INF = np.inf
DTYPES = st.sampled_from([np.float32, np.float64])


@given(
    st.integers(COLUMNS, 3 * COLUMNS), st.integers(1, 40), st.sampled_from([1, 2, 3, 30, 10_000]), DTYPES,
    st.integers(0, 1000), st.floats(0, 1),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_selection_is_the_head_of_the_whole_ranking(
    n: int, depth: int, levels: int, dtype: type, seed: int, infinite: float
) -> None:
    """Groups of ties that reach into the first `depth`, few levels, many infinities, later index first."""
    random = np.random.default_rng(seed)
    scores = random.integers(-levels, levels, (3, n)).astype(dtype)
    scores[random.random((3, n)) < infinite] = -INF
    scores[random.random((3, n)) < 0.001] = INF
    found = rank(scores, depth=depth)
    for row, order, end in zip(scores, found.order, found.end, strict=True):
        whole = np.argsort(row, kind="stable")[::-1]
        position = 0
        while position < min(depth, n // 16):
            stop = int((row >= row[whole[position]]).sum())
            assert (end[position:stop] == stop).all()
            np.testing.assert_array_equal(order[position:stop], whole[position:stop])
            position = stop


def test_three_finite_columns() -> None:
    """64 x 6400: once never came back. Of the tied rest a place is as good as another."""
    scores = np.full((64, 6400), -INF, np.float32)
    scores[:, [5, 700, 6000]] = [3.0, 2.0, 1.0]
    own = own_positives(np.arange(64), np.repeat(np.arange(64), 100))
    value = recall(scores, own, k=100)
    hidden = [100 - sum(100 * q <= c < 100 * q + 100 for c in (5, 700, 6000)) for q in range(64)]
    for query, among in enumerate(hidden):
        missed = np.prod([(6397 - 97 - j) / (6397 - j) for j in range(among)])
        assert value[query] == pytest.approx(1.0 if among < 100 else 1 - missed, abs=1e-9)
    share = recall_share(np.full((1, 6400), -INF, np.float32), Positives.from_lists([[3]]), k=40)
    assert share[0] == pytest.approx(40 / 6400)


S = np.random.default_rng(0).random((4, 8))
LISTS = own_positives(np.arange(4), np.repeat(np.arange(4), 2))


def asp_of_mean(matrix: np.ndarray) -> dict[str, np.ndarray]:
    return score_all(Queries(S, relevance={"a": S, "b": matrix}), [metric("asp_a", names=["a", "b"], weights=[1, 1])])


def holed(value: float) -> np.ndarray:
    out = S.copy()
    out[2, 5] = value
    return out


@pytest.mark.parametrize(("value", "held"), [(np.nan, "NaN"), (INF, "infinity"), (-INF, "infinity")])
@pytest.mark.parametrize(
    "call",
    [
        lambda bad: semantic_map(bad, k=1),
        lambda bad: collapse(bad),
        lambda bad: ndcg(S, bad, k=2),
        lambda bad: ncs(S, bad, k=2),
        lambda bad: asp(S, bad),
        lambda bad: asp_of_mean(bad),
        lambda bad: kendall_tau(S, bad),
        lambda bad: coherent_score(S, bad, k=3),
        lambda bad: semantic_recall(S, bad, k=2, m=2),
        lambda bad: extension_images(bad, np.repeat(np.arange(4), 2), m=2),
    ],
)
def test_refused_where_values_are_added_up(call, value: float, held: str) -> None:
    with pytest.raises(InputError, match=f"holds {held}"):
        call(holed(value))


@pytest.mark.parametrize("value", [np.nan, INF, -INF])
def test_mined_scores_are_finite(value: float) -> None:
    with pytest.raises(InputError, match="NaN|infinity"):
        mined_precision(holed(value), LISTS)


def test_labels_whose_sums_overflow() -> None:
    with pytest.raises(InputError, match="sums overflow -> scale it"):
        ncs(S, S * 1e308, k=3)
    with pytest.raises(InputError, match="use the linear gain"):
        ndcg(S, S * 2000, k=3, gain="exponential")
    with pytest.raises(InputError, match="one scale"):
        asp_of_mean(S * 1e300)
    assert np.isfinite(ndcg(S, S * 900, k=3, gain="exponential")).all()


def test_a_similarity_file_may_leave_pairs_out_with_minus_infinity(tmp_path) -> None:
    captions = make_captions([["a", "b"], ["c", "d"]])
    matrix = np.array([[1.0, -INF, 0.5, -INF], [-INF, INF, 0.5, 2.0]], np.float32)
    np.save(tmp_path / "s.npy", matrix)
    np.testing.assert_array_equal(read_similarity(tmp_path / "s.npy", captions), matrix)
    matrix[1, 2] = np.nan
    np.save(tmp_path / "s.npy", matrix)
    with pytest.raises(InputError, match="NaN for image 'i1', caption 'i1#0'"):
        read_similarity(tmp_path / "s.npy", captions)
