"""The tie rule: every metric is the mean over all orders of tied candidates, found here by listing them."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.metrics import (
    Positives,
    asp,
    coherent_score,
    first_rank,
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

N = 6
CASES = [(levels, seed) for levels in (1, 2, 3, 5) for seed in range(4)]


def task(levels, seed, dtype=np.float32):
    """One query, six candidates: similarity and relevance of few levels, one to four positives."""
    random = np.random.default_rng(100 * levels + seed)
    scores = random.integers(0, levels, (1, N)).astype(dtype)
    relevance = random.integers(0, 4, (1, N)).astype(dtype)
    return scores, relevance, random.choice(N, random.integers(1, 5), replace=False)


def close(value, reference):
    assert value == pytest.approx(reference, abs=1e-12), f"{value} against {reference}"


@pytest.mark.parametrize(("levels", "seed"), CASES)
@pytest.mark.parametrize("k", [1, 2, 4, 6, 9])
def test_list_metrics_are_expectations(levels, seed, k):
    scores, _, own = task(levels, seed)
    positives = Positives.from_lists([own])
    row = scores[0]
    close(recall(scores, positives, k=k)[0], slow.expected(lambda o: slow.recall(o, own, k), row))
    close(recall_share(scores, positives, k=k)[0], slow.expected(lambda o: slow.share(o, own, k), row))


@pytest.mark.parametrize(("levels", "seed"), CASES)
def test_whole_list_metrics_are_expectations(levels, seed):
    scores, _, own = task(levels, seed)
    positives, row = Positives.from_lists([own]), scores[0]
    close(first_rank(scores, positives)[0], slow.expected(lambda o: slow.first(o, own), row))
    close(map_at_r(scores, positives)[0], slow.expected(lambda o: slow.average_precision(o, own), row))
    close(r_precision(scores, positives)[0], slow.expected(lambda o: slow.share(o, own, len(own)), row))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("levels", "seed"), CASES)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_gain_metrics_are_expectations(levels, seed, k, dtype):
    scores, relevance, own = task(levels, seed, dtype)
    row, labels = scores[0], relevance[0].tolist()
    groups = {"query_group": np.array([7]), "candidate_group": np.where(np.isin(np.arange(N), own), 7, 1)}
    close(ndcg(scores, relevance, k=k)[0], slow.expected(lambda o: slow.ndcg(o, labels, k), row))
    exponential = ndcg(scores, relevance, k=k, gain="exponential")[0]
    close(exponential, slow.expected(lambda o: slow.ndcg(o, labels, k, True), row))
    close(ncs(scores, relevance, k=k)[0], slow.expected(lambda o: slow.ncs(o, labels, k), row))
    close(
        ncs(scores, relevance, k=k, **groups)[0],
        slow.expected(lambda o: slow.ncs(o, labels, k, own), row),
    )


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


@pytest.mark.parametrize(("levels", "seed"), CASES[:8])
def test_asp_and_eq5_are_expectations_over_both_rankings(levels, seed):
    scores, relevance, _ = task(levels, seed)
    close(asp(scores, relevance)[0], slow.expected(slow.asp, scores[0], relevance[0]))
    close(
        ncs(scores, relevance, k=2, form="eq5")[0],
        slow.expected(lambda o, r: slow.ncs_eq5(o, r, relevance[0].tolist(), 2), scores[0], relevance[0]),
    )


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


@pytest.mark.parametrize(("levels", "seed"), CASES)
@pytest.mark.parametrize("k", [2, 4, 6])
def test_coherent_score_a_is_an_expectation(levels, seed, k):
    scores, relevance, _ = task(levels, seed)
    value = coherent_score(scores, relevance, k=k, variant="a")[0]
    close(
        value,
        slow.expected(lambda o: slow.coherent_a(o, scores[0].tolist(), relevance[0].tolist(), k), scores[0]),
    )


@pytest.mark.parametrize(("levels", "seed"), CASES)
def test_pmrp_is_an_expectation(levels, seed):
    scores, _, _ = task(levels, seed)
    codes = np.random.default_rng(seed).integers(0, 2, (N, 3))
    codes[0], codes[1], query = 0, 1, np.ones(3, np.int64)
    parts = [
        slow.expected(lambda o, z=zeta: slow.r_precision_of_classes(o, query, codes, z), scores[0])
        for zeta in (0, 1, 2)
    ]
    close(pmrp(scores, query[None], codes)[0], sum(parts) / 3)


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
