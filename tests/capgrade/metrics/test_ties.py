"""The tie rule: every metric is the mean over all orders of tied candidates, found here by listing them; infinities are
levels like any other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.metrics import (
    Positives,
    asp,
    coherent_score,
    first_rank,
    kendall_tau,
    map_at_r,
    ncs,
    ndcg,
    pmrp,
    r_precision,
    recall,
    recall_share,
    semantic_recall,
)

from . import slow

N = 5
LEVELS = [-np.inf, -1.0, 0.0, -0.0, 1.0, np.inf]
ROWS = st.lists(st.sampled_from(LEVELS), min_size=N, max_size=N)
LABELS = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=N, max_size=N)
OWN = st.sets(st.integers(0, N - 1), min_size=1, max_size=N - 2).map(sorted)
DTYPES = st.sampled_from([np.float32, np.float64])


def task(levels, seed, dtype=np.float32):
    """One query, five candidates: similarity and relevance of few levels, one to four positives."""
    random = np.random.default_rng(100 * levels + seed)
    scores = random.integers(0, levels, (1, N)).astype(dtype)
    relevance = random.integers(0, 4, (1, N)).astype(dtype)
    return scores, relevance, random.choice(N, random.integers(1, 5), replace=False)


def close(value, reference):
    assert value == pytest.approx(reference, abs=1e-12), f"{value} against {reference}"


def exactly(values: np.ndarray, reference: float) -> None:
    """The value of the only query."""
    close(values[0], reference)


@given(ROWS, OWN, DTYPES, st.integers(1, N + 3))
@settings(max_examples=60, deadline=None)
def test_lists_of_positives(row: list[float], own: list[int], dtype: type, k: int) -> None:
    scores, positives = np.array([row], dtype), Positives.from_lists([own])
    exactly(recall(scores, positives, k=k), slow.expected(lambda o: slow.recall(o, own, k), row))
    exactly(recall_share(scores, positives, k=k), slow.expected(lambda o: slow.share(o, own, k), row))
    exactly(first_rank(scores, positives), slow.expected(lambda o: slow.first(o, own), row))
    exactly(map_at_r(scores, positives), slow.expected(lambda o: slow.average_precision(o, own), row))
    exactly(r_precision(scores, positives), slow.expected(lambda o: slow.share(o, own, len(own)), row))


@given(ROWS, LABELS, OWN, DTYPES, st.integers(1, N + 3))
@settings(max_examples=60, deadline=None)
def test_labels(row: list[float], labels: list[float], own: list[int], dtype: type, k: int) -> None:
    scores, relevance = np.array([row], dtype), np.array([labels], dtype)
    groups = {"query_group": np.array([7]), "candidate_group": np.where(np.isin(np.arange(N), own), 7, 1)}
    exactly(ndcg(scores, relevance, k=k), slow.expected(lambda o: slow.ndcg(o, labels, k), row))
    exactly(
        ndcg(scores, relevance, k=k, gain="exponential"), slow.expected(lambda o: slow.ndcg(o, labels, k, True), row)
    )
    exactly(ncs(scores, relevance, k=k), slow.expected(lambda o: slow.ncs(o, labels, k), row))
    removed = ncs(scores, relevance, k=k, **groups)
    exactly(removed, slow.expected(lambda o: slow.ncs(o, labels, k, own), row))
    if k > 1:
        places = np.unique(row, return_inverse=True)[1].tolist()  # the order is all that it takes of the scores
        exact = slow.expected(lambda o: slow.coherent_a(o, places, labels, k), row)
        exactly(coherent_score(scores, relevance, k=k, variant="a"), exact)
        exactly(kendall_tau(scores, relevance), slow.tau_a(places, labels))


@given(ROWS, LABELS, st.integers(1, N), st.integers(1, N))
@settings(max_examples=15, deadline=None)
def test_two_rankings(row: list[float], labels: list[float], k: int, m: int) -> None:
    scores, relevance = np.array([row]), np.array([labels])
    exactly(asp(scores, relevance), slow.expected(slow.asp, row, labels))
    exactly(
        ncs(scores, relevance, k=k, form="eq5"), slow.expected(lambda o, r: slow.ncs_eq5(o, r, labels, k), row, labels)
    )
    for weight in ("hard", "soft"):
        one = slow.expected(lambda o, r, s=weight == "soft": slow.semantic_recall(o, r, labels, k, m, s), row, labels)
        exactly(semantic_recall(scores, relevance, k=k, m=m, weight=weight), one)


@given(ROWS, st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_classes(row: list[float], seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 2, (N, 3))
    codes[0], codes[1], query = 0, 1, np.ones(3, np.int64)
    of = [slow.expected(lambda o, z=zeta: slow.r_precision_of_classes(o, query, codes, z), row) for zeta in (0, 1, 2)]
    exactly(pmrp(np.array([row]), query[None], codes), sum(of) / 3)


@pytest.mark.parametrize(("levels", "seed"), [(1, 0), (2, 1), (3, 2)])
@pytest.mark.parametrize(("k", "m"), [(1, 1), (2, 3), (5, 2)])
@pytest.mark.parametrize("weight", ["hard", "soft"])
@pytest.mark.parametrize("removal", ["kept", "removed"])
def test_semantic_recall_is_an_expectation_over_both_rankings(levels, seed, k, m, weight, removal):
    scores, relevance, own = task(levels, seed)
    gone = own if removal == "removed" else ()
    groups = {"query_group": np.array([7]), "candidate_group": np.where(np.isin(np.arange(N), own), 7, 1)}
    value = semantic_recall(scores, relevance, k=k, m=m, weight=weight, **(groups if len(gone) else {}))[0]
    if N - len(gone) < m:
        pytest.skip("fewer candidates than m")

    def one(order, labelled):
        return slow.semantic_recall(order, labelled, relevance[0].tolist(), k, m, weight == "soft", gone)

    close(value, slow.expected(one, scores[0], relevance[0]))


def test_asp_of_large_tie_groups_agrees_with_the_double_sum():
    """Groups above 32 take the closed form of the corners; here against the plain double sum."""
    random = np.random.default_rng(3)
    scores, relevance = random.integers(0, 3, (1, 400)), random.integers(0, 4, (1, 400))
    total = 0.0
    for item in range(400):
        spans = []
        for row in (scores[0], relevance[0]):
            above, tied = int((row > row[item]).sum()), int((row == row[item]).sum())
            spans.append(np.arange(above + 1, above + tied + 1))
        r, s = np.meshgrid(*spans)
        total += (np.minimum(r, s) / np.maximum(r, s)).mean()
    close(asp(scores, relevance)[0], total / 400)


@pytest.mark.parametrize("levels", [1, 3, 50])
def test_index_order_never_matters(levels):
    random = np.random.default_rng(levels)
    scores = random.integers(0, levels, (5, 40)).astype(np.float32)
    relevance = random.integers(0, 6, (5, 40)).astype(np.float32)
    own = [random.choice(40, 4, replace=False) for _ in range(5)]
    shuffle = random.permutation(40)
    moved = [np.argsort(shuffle)[items] for items in own]
    pairs = [
        (metric(scores, relevance, **options), metric(scores[:, shuffle], relevance[:, shuffle], **options))
        for metric, options in [
            (ndcg, {"k": 7}),
            (ncs, {"k": 7}),
            (asp, {}),
            (coherent_score, {"k": 7}),
            (semantic_recall, {"k": 5, "m": 9}),
        ]
    ]
    for metric in (map_at_r, r_precision, first_rank):
        lists = Positives.from_lists(own), Positives.from_lists(moved)
        pairs.append((metric(scores, lists[0]), metric(scores[:, shuffle], lists[1])))
    for before, after in pairs:
        np.testing.assert_allclose(after, before, atol=1e-12)


def test_reference_order_is_numpys_reversed_stable_argsort():
    """The parity mode: among ties the later index first, as argsort()[::-1] of the reference codes."""
    random = np.random.default_rng(0)
    scores = random.integers(0, 3, (20, 30)).astype(np.float32)
    relevance = random.random((20, 30))
    own = [random.choice(30, 3, replace=False) for _ in range(20)]
    positives = Positives.from_lists(own)
    for query, items in enumerate(own):
        order = tuple(np.argsort(scores[query], kind="stable")[::-1])
        one = slice(query, query + 1)
        close(recall(scores, positives, k=3, ties="reference")[query], slow.recall(order, items, 3))
        close(first_rank(scores, positives, ties="reference")[query], slow.first(order, items))
        close(map_at_r(scores, positives, ties="reference")[query], slow.average_precision(order, items))
        value = ndcg(scores[one], relevance[one], k=8, ties="reference")[0]
        close(value, slow.ndcg(order, relevance[query], 8))
