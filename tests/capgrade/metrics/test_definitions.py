"""Every metric is its definition, and under ties the mean over all orders of tied candidates, found here by listing
them; infinities are levels like any other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade import evaluate
from capgrade.metrics import (
    Positives,
    asp,
    base,
    coherent_score,
    collapse,
    first_rank,
    kendall_tau,
    map_at_r,
    ncs,
    ndcg,
    pmrp,
    r_precision,
    ranking,
    recall,
    recall_share,
    semantic_map,
    semantic_recall,
)
from capgrade.metrics.catalogue import CATALOGUE, metric

from . import slow

N = 5
LEVELS = [-np.inf, -1.0, 0.0, -0.0, 1.0, np.inf]
ROWS = st.lists(st.sampled_from(LEVELS), min_size=N, max_size=N)
LABELS = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=N, max_size=N)
OWN = st.sets(st.integers(0, N - 1), min_size=1, max_size=N - 2).map(sorted)
DTYPES = st.sampled_from([np.float32, np.float64])


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


@given(ROWS, LABELS, OWN, st.integers(1, N), st.integers(1, N), st.booleans())
@settings(max_examples=15, deadline=None)
def test_two_rankings(row: list[float], labels: list[float], own: list[int], k: int, m: int, removes: bool) -> None:
    scores, relevance = np.array([row]), np.array([labels])
    exactly(asp(scores, relevance), slow.expected(slow.asp, row, labels))
    exactly(
        ncs(scores, relevance, k=k, form="eq5"), slow.expected(lambda o, r: slow.ncs_eq5(o, r, labels, k), row, labels)
    )
    groups = {"query_group": np.array([7]), "candidate_group": np.where(np.isin(np.arange(N), own), 7, 1)}
    gone = own if removes else []
    for weight in ("hard", "soft"):
        found = semantic_recall(scores, relevance, k=k, m=m, weight=weight, **(groups if removes else {}))
        soft = weight == "soft"
        of = slow.expected(lambda o, r, s=soft: slow.semantic_recall(o, r, labels, k, m, s, gone), row, labels)
        exactly(found, of)


@given(ROWS, st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_classes(row: list[float], seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 2, (N, 3))
    codes[0], codes[1], query = 0, 1, np.ones(3, np.int64)
    of = [slow.expected(lambda o, z=zeta: slow.r_precision_of_classes(o, query, codes, z), row) for zeta in (0, 1, 2)]
    exactly(pmrp(np.array([row]), query[None], codes), sum(of) / 3)


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


def definitions(
    k: int, m: int, order, labelled, mean, scores, relevance, own, lists, code, codes
) -> dict[str, float]:  # fmt: skip
    """Of one query, by name; `labelled` and `mean` are the orders by relevance and by the mean of two, `code` and
    `codes` the classes of the query and of the candidates."""
    places, head = [-order.index(item) for item in range(len(order))], order[:k]
    others = [scores[item] for item in order if item not in own][:k]
    found = [slow.r_precision_of_classes(order, code, codes, zeta) for zeta in (0, 1, 2)] if code.any() else [np.nan]
    cosines = {"pmrp": np.mean(found), f"lambda@{k}": np.mean([scores[item] for item in head])}
    cosines[f"lambda_other@{k}"] = np.mean(others) if others else np.nan
    tau = slow.tau_a([places[item] for item in head], [relevance[item] for item in head])
    whole, gone = slow.tau_a(places, relevance), set(own)
    found = cosines | {
        f"recall@{k}": slow.recall(order, own, k), f"r@{k}": slow.share(order, own, k),
        "medr": slow.first(order, own), "meanr": slow.first(order, own),
        f"ndcg@{k}": slow.ndcg(order, relevance, k), f"ndcg_exp@{k}": slow.ndcg(order, relevance, k, True),
        f"ncs@{k}": slow.ncs(order, relevance, k), f"ncs_other@{k}": slow.ncs(order, relevance, k, gone),
        f"ncs_eq5@{k}": slow.ncs_eq5(order, labelled, relevance, k),
        f"ncs_authors@{k}": slow.ncs_authors(order, relevance, k, gone),
        f"ncs_ordered@{k}": slow.ncs_ordered(order, relevance, k), "asp": slow.asp(order, labelled),
        "asp_a": slow.asp(order, mean), "kendall_tau_a": whole, "kendall_tau_b": whole, f"cs@{k}": tau,
        f"cs_tau_a@{k}": tau, "map@r": slow.average_precision(order, lists),
        "r_precision": slow.share(order, lists, len(lists)),
    }  # fmt: skip
    found |= {f"{name}_recall@{k}": slow.recall(order, lists, k) for name in ("eccv", "cxc", "accepted")}
    for name, soft, removed in (("", False, ()), ("_soft", True, ()), ("_other", False, gone),
                                ("_soft_other", True, gone)):  # fmt: skip
        found[f"sr{name}@{k}(m={m})"] = slow.semantic_recall(order, labelled, relevance, k, m, soft, removed)
    return found


ELSEWHERE = {"sr_authors", "sr_soft_authors"}  # test_parity.py


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), images=st.integers(3, 7), k=st.integers(2, 12), m=st.integers(1, 6))
def test_a_metric_by_name_is_its_definition_in_both_directions(seed, images, k, m):
    """Without ties, in galleries of a few images with one to four captions."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.concatenate([np.arange(images), rng.integers(0, images, rng.integers(3 * images))]))
    shape = images, len(owner)
    scores, relevance = rng.permutation(images * len(owner)).reshape(shape) / 1000, rng.uniform(0, 3, shape)
    other, own = rng.uniform(0, 9, shape), owner == np.arange(images)[:, None]
    mean = relevance / relevance.max() + other / other.max()
    lists = [[rng.choice(n, rng.integers(1, n + 1), replace=False).tolist() for _ in range(q)]
             for q, n in (shape, shape[::-1])]  # fmt: skip
    positives = dict.fromkeys(("eccv", "cxc", "accepted"), tuple(map(Positives.from_lists, lists)))
    expected, codes = [], (rng.random((images, 4)) < 0.4).astype(int)
    sides = codes, codes[owner]
    for turn, of, (mine, theirs) in ((lambda x: x, lists[0], sides), (np.transpose, lists[1], sides[::-1])):
        ways = [np.argsort(-turn(x), axis=1).tolist() for x in (scores, relevance, mean)]
        given = turn(scores).tolist(), turn(relevance).tolist(), map(np.flatnonzero, turn(own)), of, mine
        expected.append([definitions(k, m, *row, theirs) for row in zip(*ways, *given, strict=True)])
    names = list(expected[0][0])
    assert {metric(name).family.function for name in names} | {CATALOGUE[name].function for name in ELSEWHERE} == {
        one.function for one in CATALOGUE.values()
    }
    relevances = {"a": relevance, "b": other}
    given = {"owner": owner, "positives": positives, "classes": codes, "intervals": None}
    found = evaluate(scores, relevances, names, **given)
    for scored, rows in zip((found.i2t, found.t2i), expected, strict=True):
        for name in names:
            np.testing.assert_allclose(scored.values[name], [row[name] for row in rows], atol=1e-7, err_msg=name)


def test_only_what_is_read_of_a_ranking_is_ranked(monkeypatch):
    """Recall and the first rank are counted; relevance is ranked for metrics that want its best order."""
    ranked = []
    monkeypatch.setattr(base, "rank", lambda scores, *rest: ranked.append(1) or ranking.rank(scores, *rest))
    scores, relevance = np.random.default_rng(0).random((2, 4, 9))
    names = ["recall@1", "medr", "cs@3", "ndcg@5", "asp"]
    for count, chosen in ((0, names[:2]), (1, names[:3]), (2, names)):
        ranked.clear()
        queries = base.Queries(scores, positives={"own": Positives.from_lists([[0]] * 4)}, relevance={"": relevance})
        block = base.QueryBlock(queries, 0, 4)
        for name in chosen:
            metric(name).score(block)
        assert len(ranked) == count


def test_a_cut_off_beyond_the_gallery_is_its_size():
    """And takes no memory of its own."""
    scores, relevance = np.random.default_rng(0).random((2, 4, 9))
    own, far = relevance > 0.5, 10**11
    for of in (
        lambda k: recall(scores, own, k), lambda k: recall_share(scores, own, k), lambda k: ndcg(scores, relevance, k),
        lambda k: ncs(scores, relevance, k), lambda k: ncs(scores, relevance, k, form="eq5"),
        lambda k: coherent_score(scores, relevance, k), lambda k: semantic_recall(scores, relevance, k, m=3),
        lambda k: semantic_map(scores, k),
    ):  # fmt: skip
        np.testing.assert_array_equal(of(far), of(9))
    ordered = evaluate(scores, relevance, f"ncs_ordered@{far}", intervals=None).i2t.values[f"ncs_ordered@{far}"]
    np.testing.assert_allclose(ordered, 1, atol=1e-9)  # all places weigh nearly the same, and all are taken


def test_semantic_map_rewards_collapse_and_says_so():
    constant = np.full((60, 300), 0.99, np.float32)
    assert semantic_map(constant, k=5) == pytest.approx(0.99)
    spread = np.where(np.arange(60)[:, None] == np.repeat(np.arange(60), 5), 1.0, -0.5)
    assert "COLLAPSED" in str(collapse(constant)) and not collapse(spread).collapsed
    assert collapse(spread).contrast == pytest.approx(1 - (5 - 0.5 * 295) / 300)
