"""Every metric is its definition, and under ties the mean over all orders of tied candidates, found
here by listing them; infinities are levels like any other. docs/metrics.md describes each."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade import evaluate, metrics
from capgrade.metrics import Positives, base, ranking
from capgrade.metrics.catalogue import CATALOGUE, find_metric

from . import slow

DTYPES = st.sampled_from([np.float32, np.float64])
LEVELS = [-np.inf, -1.0, 0.0, -0.0, 1.0, np.inf]
# under ties: test_parity.py; no infinities
NOT_MEANS = {
    "kendall_tau_b",
    "cs",
    "lambda",
    "lambda_other",
}
# In test_parity.py, and in test_evaluation.py those of pairs whose relevance is over a limit.
ELSEWHERE = {"sr_authors", "sr_soft_authors"}
ELSEWHERE |= {"relevant_recall", "relevant_r", "relevant_map@r"}


def definitions(
    k: int, m: int, order, labelled, scores, relevance, own, lists, code, codes
) -> dict[str, float]:
    """Of one query, by name; `order` and `labelled` by scores and by relevance, `code` and `codes`
    the classes of the query and of the candidates."""
    places, head, gone = [-order.index(item) for item in range(len(order))], order[:k], set(own)
    others = [scores[item] for item in order if item not in own][:k]
    pmrp = (
        [slow.r_precision_of_classes(order, code, codes, zeta) for zeta in (0, 1, 2)]
        if code.any()
        else [np.nan]
    )
    whole = slow.tau_a(places, relevance) if len(order) > 1 else 0.0
    found = {
        "pmrp": np.mean(pmrp),
        f"lambda@{k}": np.mean([scores[item] for item in head]),
        f"lambda_other@{k}": np.mean(others) if others else np.nan,
        f"recall@{k}": slow.recall(order, own, k),
        f"r@{k}": slow.share(order, own, k),
        "medr": slow.first(order, own),
        "meanr": slow.first(order, own),
        f"ndcg@{k}": slow.ndcg(order, relevance, k),
        f"ndcg_exp@{k}": slow.ndcg(order, relevance, k, True),
        f"ncs@{k}": slow.ncs(order, relevance, k),
        f"ncs_other@{k}": slow.ncs(order, relevance, k, gone),
        f"ncs_eq5@{k}": slow.ncs_eq5(order, labelled, relevance, k),
        f"ncs_authors@{k}": slow.ncs_authors(order, relevance, k, gone),
        f"ncs_ordered@{k}": slow.ncs_ordered(order, relevance, k),
        "asp": slow.asp(order, labelled),
        "kendall_tau_a": whole,
        "kendall_tau_b": whole,
        "map@r": slow.average_precision(order, lists),
        "r_precision": slow.share(order, lists, len(lists)),
    }
    if k > 1:
        top = [[of[item] for item in head] for of in (places, relevance)]
        found |= dict.fromkeys(
            (f"cs@{k}", f"cs_tau_a@{k}"), slow.tau_a(*top) if len(head) > 1 else 0.0
        )
    found |= {
        f"{name}_recall@{k}": slow.recall(order, lists, k) for name in ("eccv", "cxc", "accepted")
    }
    for name, soft, removed in (("", False, ()), ("_soft", True, ()), ("_other", False, gone),
                                ("_soft_other", True, gone)):  # fmt: skip
        found[f"sr{name}@{k}(m={m})"] = slow.semantic_recall(
            order, labelled, relevance, k, m, soft, removed
        )
    return found


def expected(k: int, m: int, scores, relevance, mean, *labels) -> dict[str, float]:
    """Of one query the mean of its definitions over all orders of ties in both rankings."""
    both = itertools.product(slow.orders(scores), slow.orders(relevance))
    rows = [definitions(k, m, *orders, scores, relevance, *labels) for orders in both]
    asp_a = [
        slow.asp(*orders) for orders in itertools.product(slow.orders(scores), slow.orders(mean))
    ]
    return {"asp_a": np.mean(asp_a)} | {
        name: np.mean([row[name] for row in rows]) for name in rows[0]
    }


@pytest.mark.parametrize("ties", [True, False])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 12), m=st.integers(1, 6), dtype=DTYPES)
def test_a_metric_by_name_is_its_definition_in_both_directions(ties, seed, k, m, dtype):
    """In galleries of up to four images and captions, where scores and labels have few levels; and
    of up to seven images with one to four captions, without ties."""
    rng = np.random.default_rng(seed)
    images = rng.integers(1, 4) if ties else rng.integers(3, 8)
    more = rng.integers(0, images, rng.integers(5 - images) if ties else rng.integers(3 * images))
    owner = rng.permutation(np.concatenate([np.arange(images), more]))
    shape = images, len(owner)
    if ties:
        scores, relevance, other = (
            rng.choice(some, shape) for some in (LEVELS, [0.0, 0.25, 1.0, 4.0], [0.0, 1.0, 2.0])
        )
    else:
        scores = rng.permutation(images * len(owner)).reshape(shape) / 1000
        relevance = rng.uniform(0, 3, shape)
        other = rng.uniform(0, 9, shape)
    own = owner == np.arange(images)[:, None]
    mean = sum(one / max(one.max(), 1e-12) for one in (relevance, other))
    # -1: what the gallery lacks
    lists = [
        [
            rng.choice(np.arange(-1, n), rng.integers(1, n + 2), replace=False).tolist()
            for _ in range(q)
        ]
        for q, n in (shape, shape[::-1])
    ]
    positives = dict.fromkeys(("eccv", "cxc", "accepted"), tuple(map(Positives.from_lists, lists)))
    codes = (rng.random((images, 4)) < 0.4).astype(int)
    sides, wanted = (codes, codes[owner]), []
    for turn, of, (mine, theirs) in (
        (lambda x: x, lists[0], sides),
        (np.transpose, lists[1], sides[::-1]),
    ):
        given = (
            *(turn(x).tolist() for x in (scores, relevance, mean)),
            map(np.flatnonzero, turn(own)),
            of,
            mine,
        )
        with np.errstate(
            invalid="ignore"
        ):  # means of scores that are infinite, which are not compared
            wanted.append([expected(k, m, *row, theirs) for row in zip(*given, strict=True)])
    names = [name for name in wanted[0][0] if not ties or name.partition("@")[0] not in NOT_MEANS]
    if not ties and k > 1:
        assert {find_metric(name).family.function for name in names} | {
            CATALOGUE[name].function for name in ELSEWHERE
        } == {one.function for one in CATALOGUE.values()}
    options = {"owner": owner, "positives": positives, "classes": codes, "intervals": None}
    found = evaluate(
        scores.astype(dtype), {"a": relevance.astype(dtype), "b": other}, names, **options
    )
    for scored, rows in zip((found.i2t, found.t2i), wanted, strict=True):
        for name in names:
            np.testing.assert_allclose(
                scored.values[name], [row[name] for row in rows], atol=1e-6, err_msg=name
            )


def test_options_of_functions_are_names_of_the_catalogue():
    """Beside those of the worked example."""
    rng, owner = np.random.default_rng(0), np.array([0, 2, 1, 1, 2, 0, 2])
    scores, relevance = rng.uniform(-1, 1, (3, 7)), rng.integers(0, 3, (3, 7)) / 2
    groups = {"query_group": np.arange(3), "candidate_group": owner}
    calls = {
        "sr_other@2(m=3)": metrics.semantic_recall(scores, relevance, k=2, m=3, **groups),
        "sr_soft_other@2(m=3)": metrics.semantic_recall(
            scores, relevance, k=2, m=3, weight="soft", **groups
        ),
        "cs_tau_a@4": metrics.coherent_score(scores, relevance, k=4, variant="a"),
        "lambda_other@3": metrics.semantic_map(scores, k=3, **groups),
    }
    found = evaluate(scores, relevance, list(calls), owner=owner, intervals=None).i2t.values
    for name, values in calls.items():
        np.testing.assert_array_equal(values, found[name], err_msg=name)


def test_reference_order_is_numpys_reversed_stable_argsort():
    """The parity mode: among ties the later index first, as argsort()[::-1] of the reference codes.
    Values are those of scores without ties in this order."""
    random = np.random.default_rng(0)
    scores, relevance = random.integers(0, 3, (20, 30)).astype(np.float32), random.random((20, 30))
    strict = np.argsort(np.argsort(scores, axis=1, kind="stable"), axis=1).astype(float)
    positives = Positives.from_lists([random.choice(30, 3, replace=False) for _ in range(20)])
    for of, labels in (
        (metrics.recall, positives), (metrics.first_rank, positives), (metrics.map_at_r, positives),
        (metrics.ndcg, relevance), (metrics.asp, relevance),
    ):  # fmt: skip
        np.testing.assert_array_equal(
            of(scores, labels, ties="reference"), of(strict, labels), err_msg=of.__name__
        )


def test_only_what_is_read_of_a_ranking_is_ranked(monkeypatch):
    """Recall and the first rank are counted; relevance is ranked for metrics that want its best
    order."""
    ranked = []
    monkeypatch.setattr(
        base, "rank", lambda scores, *rest: ranked.append(1) or ranking.rank(scores, *rest)
    )
    scores, relevance = np.random.default_rng(0).random((2, 4, 9))
    names = ["recall@1", "medr", "r@3", "cs@3", "ndcg@5", "asp"]
    for count, chosen in ((0, names[:3]), (2, names)):
        ranked.clear()
        queries = base.Queries(
            scores, positives={"own": Positives.from_lists([[0]] * 4)}, relevance={"": relevance}
        )
        block = base.QueryBlock(queries, 0, 4)
        for name in chosen:
            find_metric(name).score(block)
        assert len(ranked) == count


@settings(max_examples=40, deadline=None)
@given(data=st.data(), dtype=DTYPES, ties=st.sampled_from(["expected", "reference"]))
def test_places_of_listed_candidates_are_those_of_sorting(data, dtype, ties):
    """A matrix in parts, by rows and by columns, with ties, infinities and outliers."""
    levels = [*LEVELS, 1e-30, 0.5, 3e38, -3e38]
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 9)))
    cells = st.lists(st.sampled_from(levels), min_size=shape[1], max_size=shape[1])
    scores = np.array([data.draw(cells) for _ in range(shape[0])], dtype)
    listed = [
        data.draw(st.lists(st.integers(0, shape[1] - 1), unique=True)) for _ in range(shape[0])
    ]
    lists = Positives.from_lists(listed)
    for matrix in (scores, np.asfortranarray(scores)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "_READ", 2 * shape[1])
            patch.setattr(base, "_TURNED", 2)
            whole = base.QueryBlock(base.Queries(matrix, ties=ties), 0, len(matrix))
            found = np.stack(whole.counts_above(lists))
            if ties == "expected":
                assert np.array_equal(base.place_pairs(matrix, lists), found)
    expected = []
    for row, items in zip(scores.tolist(), listed, strict=True):
        for item in items:
            above, same = (
                [k for k, score in enumerate(row) if compare(score, row[item])]
                for compare in (float.__gt__, float.__eq__)
            )
            later = [k for k in same if k > item]
            expected.append(
                (len(above), len(same)) if ties == "expected" else (len(above + later), 1)
            )
    assert found.T.tolist() == [list(places) for places in expected]


def test_a_cut_off_beyond_the_gallery_is_its_size():
    """And takes no memory of its own."""
    scores, relevance = np.random.default_rng(0).random((2, 4, 9))
    own, far = relevance > 0.5, 10**11
    for of, labels, options in (
        (metrics.recall, own, {}), (metrics.recall_share, own, {}), (metrics.ndcg, relevance, {}),
        (metrics.ncs, relevance, {}), (metrics.ncs, relevance, {"form": "eq5"}),
        (metrics.coherent_score, relevance, {}), (metrics.semantic_recall, relevance, {"m": 3}),
    ):  # fmt: skip
        np.testing.assert_array_equal(
            of(scores, labels, far, **options), of(scores, labels, 9, **options)
        )
    np.testing.assert_array_equal(
        metrics.semantic_map(scores, far), metrics.semantic_map(scores, 9)
    )
    ordered = evaluate(scores, relevance, f"ncs_ordered@{far}", intervals=None).i2t.values[
        f"ncs_ordered@{far}"
    ]
    # all places weigh nearly the same, and all are taken
    np.testing.assert_allclose(ordered, 1, atol=1e-9)


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")

# One image query and five captions, c1 and c2 its own. The model puts c3 first and ties c1 with c4.
WORKED = {
    "S": np.array([[0.5, 0.3, 0.8, 0.5, 0.1]]),  # similarity to c1 .. c5
    "N": np.array([[1.0, 0.9, 0.2, 0.6, 0.0]]),  # relevance
    "own": Positives.from_lists([[0, 1]]),
    "groups": {"query_group": np.array([0]), "candidate_group": np.array([0, 0, 1, 2, 3])},
    "classes": np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 1]]),
}
# By hand, with the reason.
BY_HAND = [
    ("recall(S, own, k=1)", 0.0),  # c3 is on top
    ("recall(S, own, k=2)", 0.5),  # c1 takes the second place in one of two orders
    ("recall_share(S, own, k=2)", 0.25),  # half a hit of two own captions
    ("recall_share(S, own, k=3)", 0.5),  # c1 is found for certain, c2 is fourth
    ("first_rank(S, own)", 2.5),  # c1 is second or third
    ("ncs(S, N, k=2)", 0.5263),  # (0.2 + (1.0 + 0.6) / 2) / (1.0 + 0.9)
    ('ncs(S, N, k=2, form="eq5")', 0.2632),  # c3, c4 are not among the two best: 0.5 / 1.9
    ("ncs(S, N, k=2, **groups)", 1.0),  # ncs_other: c3 and c4 are the best others
    ("semantic_recall(S, N, k=2, m=2)", 0.25),  # G~ = {c1, c2}, c1 half the time
    ('semantic_recall(S, N, k=2, m=2, weight="soft")', 0.2632),  # 0.5 of 1.9
    ("ndcg(S, N, k=3)", 0.5915),  # gains 0.2, 0.8, 0.8 against 1.0, 0.9, 0.6
    ('ndcg(S, N, k=3, gain="exponential")', 0.5574),  # the same with 2^N - 1
    ("asp(S, N)", 0.6),  # ranks by S: 2.5, 4, 1, 2.5, 5; by N: 1, 2, 4, 3, 5
    ("kendall_tau(S, N)", 0.1),  # 5 pairs agree, 4 do not, 1 ties: 1 / 10
    ('kendall_tau(S, N, variant="b")', 0.1054),  # 1 / sqrt(9 * 10)
    ("coherent_score(S, N, k=3)", -0.8165),  # of c3, c1, c4 the least relevant comes first
    ("semantic_map(S, k=2)", 0.65),  # mean of 0.8 and 0.5: no relevance in it
    ("map_at_r(S, own)", 0.125),  # (0 + 1/2 * 1/2) / 2
    ("r_precision(S, own)", 0.25),  # half a hit in the first two
    ("pmrp(S, classes[:1], classes)", 0.75),  # zeta 0: 0.25; zeta 1 and 2: 1
]


@pytest.mark.parametrize(("call", "value"), BY_HAND)
def test_worked_example(call, value):
    names = {name: getattr(metrics, name) for name in metrics.__all__} | WORKED
    assert eval(call, names)[0] == pytest.approx(value, abs=6e-5), call


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_metric_is_described(name):
    assert re.search(rf"[`*]{re.escape(name)}(@\w+)?(\(m=M\))?[`*]", PAGE), name
