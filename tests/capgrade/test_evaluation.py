"""`evaluate` against plain loops and against eccv_caption's own code: both directions, rsum, folds,
lists of people."""

import inspect
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import capgrade
from capgrade import Draws, Labels, evaluate, evaluate_lists, metrics
from capgrade.metrics import Positives
from capgrade.metrics.eccv import read_lists
from capgrade.schemas.errors import InputError

KS = (1, 5, 10)


def world(seed: int, images: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores without ties, relevance, and one to four captions an image in any order."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(
        np.concatenate([np.arange(images), rng.integers(0, images, rng.integers(0, 3 * images))])
    )
    scores = rng.permutation(images * len(owner)).reshape(images, -1) / 1000
    return scores, rng.uniform(0, 1, scores.shape), owner


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), images=st.integers(2, 9))
def test_rsum_and_nsum_are_sums_of_both_directions(seed, images):
    scores, relevance, owner = world(seed, images)
    found = evaluate(
        scores,
        relevance,
        [f"{m}@{k}" for m in ("recall", "ncs") for k in KS],
        owner=owner,
        intervals=None,
    )
    for name, total in (("recall", found.rsum), ("ncs", found.sums["nsum"])):
        assert total == pytest.approx(
            100 * sum(way.mean[f"{name}@{k}"] for way in found.scored.values() for k in KS)
        )
    own = owner[None, :] == np.arange(images)[:, None]
    assert evaluate(scores, owner=own).rsum == pytest.approx(found.rsum)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 4), folds=st.integers(1, 3))
def test_folds_are_the_mean_over_blocks_of_images(seed, size, folds):
    scores, relevance, owner = world(seed, size * folds)
    names = ("recall@1", "ncs@5", "medr")
    found, parts = evaluate(scores, relevance, names, owner=owner, fold=size, intervals=None), []
    for first in range(0, size * folds, size):
        cut = np.ix_(range(first, first + size), (owner >= first) & (owner < first + size))
        parts.append(
            evaluate(
                scores[cut], relevance[cut], names, owner=owner[cut[1][0]] - first, intervals=None
            )
        )
    assert found.protocol == f"folds of {size}"
    for way, scored in found.scored.items():
        for name in names:
            assert scored.mean[name] == pytest.approx(
                np.mean([part.scored[way].mean[name] for part in parts])
            )


def test_a_name_is_a_text_and_recall_needs_no_relevance(dataset: Path):
    scores, relevance, owner = world(0, 6)
    assert list(evaluate(scores, owner=owner).i2t.mean) == ["recall@1", "recall@5", "recall@10"]
    assert list(evaluate(scores, relevance, "ndcg@25").t2i.mean) == ["ndcg@25"]
    assert list(evaluate_lists({"q": {"a": 1.0}}, {"q": {"a": 1}}, "ndcg@25").mean) == ["ndcg@25"]
    labels = Labels.load(dataset)  # sampled: not every pair is known, and recall needs none
    found = evaluate(np.random.default_rng(0).random((12, 60)), labels, "recall@1")
    assert 0 <= found.t2i.mean["recall@1"] < 0.5


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), queries=st.integers(6, 30)
)  # of few queries the means are a few numbers
def test_intervals_are_percentiles_of_means_over_drawn_queries(seed, queries):
    """Against draws one by one; of several folds the draws' means are averaged."""
    scores, relevance, owner = world(seed, 2 * queries)
    found = evaluate(
        scores,
        relevance,
        ["ndcg@3"],
        owner=owner,
        fold=queries,
        intervals=Draws(0.9, 2000, seed % 7),
    )
    values = np.split(found.i2t.values["ndcg@3"], 2)
    rng = np.random.default_rng(seed)
    means = [np.mean([rng.choice(part, queries).mean() for part in values]) for _ in range(2000)]
    spread = 6 * np.std(means) / np.sqrt(2000) + 1e-9
    assert found.i2t.intervals["ndcg@3"] == pytest.approx(
        tuple(np.quantile(means, [0.05, 0.95])), abs=3 * spread
    )


def test_one_direction_alone():
    scores, _, owner = world(1, 6)
    both, one = evaluate(scores, owner=owner), evaluate(scores, owner=owner, direction="t2i")
    assert one.t2i.mean == both.t2i.mean and one.t2i.intervals == both.t2i.intervals
    assert one.sums == {} and list(one.scored) == ["t2i"]
    with pytest.raises(InputError, match="direction i2t was not evaluated"):
        one.i2t  # noqa: B018
    with pytest.raises(
        InputError, match="rsum was not evaluated -> ask for recall@1, recall@5, recall@10"
    ):
        one.rsum  # noqa: B018


def test_what_is_printed_is_both_directions_and_the_sums():
    scores, relevance, owner = world(2, 8)
    lines = str(evaluate(scores, relevance, owner=owner)).splitlines()
    assert lines[0].split() == ["i2t", "t2i"] and lines[-1].startswith("rsum ")
    assert all(line.count("[") == 2 for line in lines[1:-1]) and len(lines) == 9


def test_several_relevances_are_told_apart():
    scores, relevance, owner = world(3, 6)
    found = evaluate(
        scores,
        {"one": relevance, "two": relevance**2},
        ["ndcg@3", "recall@1", "asp_a"],
        owner=owner,
    )
    assert list(found.i2t.mean) == ["ndcg@3", "recall@1", "ndcg@3[two]", "asp_a"]
    alone = evaluate(scores, relevance**2, "ndcg@3")
    assert found.t2i.mean["ndcg@3[two]"] == alone.t2i.mean["ndcg@3"]


def test_asp_a_of_folds_divides_each_matrix_by_its_maximum_over_all_folds():
    scores, relevance, owner = world(3, 6)
    both = {
        "one": relevance,
        "two": np.random.default_rng(0).random(relevance.shape) * np.arange(1, 7)[:, None],
    }
    mean = sum(matrix / matrix.max() for matrix in both.values()) / 2
    found, plain = (
        evaluate(scores, r, name, owner=owner, fold=2)
        for r, name in ((both, "asp_a"), (mean, "asp"))
    )
    for way in ("i2t", "t2i"):
        assert found.scored[way].mean["asp_a"] == pytest.approx(
            plain.scored[way].mean["asp"], abs=1e-9
        )


@pytest.mark.parametrize(
    "given_", [set(), {"owner"}, {"relevance"}, {"owner", "relevance"}, {"owner", "eccv"}]
)
def test_the_error_of_an_unknown_name_lists_what_works_and_nothing_else(given_):
    scores, relevance, owner = world(4, 6)
    lists = Positives.from_lists([[0]] * 6), Positives.from_lists([[0]] * len(owner))
    have = {"owner": owner, "relevance": relevance, "positives": {"eccv": lists}}
    some = {
        name: value
        for name, value in have.items()
        if {"positives": "eccv"}.get(name, name) in given_
    }
    with pytest.raises(InputError, match="metric 'xyz@5' is not known") as caught:
        evaluate(scores / 10, metrics="xyz@5", **some)  # nothing is near it, so all are listed
    listed = str(caught.value).split("choose from: ")[1].split(", ")
    with pytest.raises(InputError) as scaled:
        evaluate(scores * 99, metrics="xyz@5", **some)
    assert {name for name in listed if name not in str(scaled.value)} == {
        u for u in listed if u.startswith("lambda")
    }
    assert ("recall@K" in listed) == ("owner" in given_) and ("ndcg@K" in listed) == (
        "relevance" in given_
    )
    assert ("ncs_other@K" in listed) == ({"owner", "relevance"} <= given_) and (
        "map@r" in listed
    ) == ("eccv" in given_)
    with pytest.raises(InputError) as mistyped:
        evaluate(scores / 10, metrics="ndgc@5", **some)
    assert ("near it: ndcg@K" in str(mistyped.value)) == ("relevance" in given_)
    for usage in listed:
        name = usage.replace("K", "2").replace("M", "2")
        assert name in evaluate(scores / 10, metrics=name, **some, intervals=None).i2t.mean


def best(
    matrix: np.ndarray, queries: list[str], items: list[str], wanted: set[str]
) -> dict[int, list[int]]:
    """As eccv_caption takes it: the ids of the first 60 candidates of the wanted queries, best
    first."""
    rows = [row for row, query in enumerate(queries) if query in wanted]
    top = {row: np.argpartition(-matrix[row], 60)[:60] for row in rows}
    return {
        int(queries[row]): [int(items[c]) for c in some[np.argsort(-matrix[row, some])]]
        for row, some in top.items()
    }


def test_lists_of_people_on_coco_score_as_in_the_package():
    """All 5,000 images and 25,000 captions by the package's own ids; two of its positives are not
    among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eccv_caption = pytest.importorskip("eccv_caption")
    original = read_lists("original_image_to_caption.json")
    images, captions = (
        list(original),
        [str(caption) for row in original.values() for caption in row],
    )
    owner = np.repeat(np.arange(len(images)), [len(row) for row in original.values()])
    vectors = np.random.default_rng(0).standard_normal((5000, 12)).astype(np.float32)
    noisy = vectors[owner] + np.random.default_rng(1).normal(0, 0.3, (25000, 12)).astype(np.float32)
    scores, lists = (
        vectors @ noisy.T,
        {name: metrics.human_lists(name, images, captions) for name in ("eccv", "cxc")},
    )
    eccv = {"map@r": "eccv_map_at_r", "r_precision": "eccv_rprecision", "eccv_recall@1": "eccv_r1"}
    found = evaluate(
        scores,
        None,
        [*eccv, "cxc_recall@5", "recall@5"],
        owner=owner,
        positives=lists,
        intervals=None,
    )
    wanted = set(read_lists("original_caption_to_image.json"))
    ranked = {
        "i2t": best(scores, images, captions, set(images)),
        "t2i": best(scores.T, captions, images, wanted),
    }
    peer = eccv_caption.Metrics()
    theirs = peer.eccv_metrics(ranked, "all")
    for way in ("i2t", "t2i"):
        expected = {name: theirs[key][way] for name, key in eccv.items()}
        expected["cxc_recall@5"] = peer.cxc_recalls(ranked, way, K=5)[way]
        expected["recall@5"] = peer.coco_5k_recalls(ranked, way, K=5)[way]
        assert found.scored[way].mean == pytest.approx(expected, abs=1e-9)
    # what a bool matrix can say
    held = [replace(one, absent=np.zeros_like(one.absent)) for one in lists["eccv"]]
    assert sum(one.absent.sum() for one in lists["eccv"]) > 0
    assert any(
        np.nanmean(metrics.map_at_r(matrix, one)) > found.scored[way].mean["map@r"] + 1e-6
        for way, matrix, one in (("i2t", scores, held[0]), ("t2i", scores.T, held[1]))
    )


# No metrics of queries.
OTHERS = {"Collapse", "Positives", "coco_codes", "collapse", "human_lists"}
OTHERS |= {"Pairs", "change_places", "draw_pool", "estimate"}


@pytest.mark.parametrize("name", sorted(set(metrics.__all__) - OTHERS))
def test_a_metric_of_tensors_is_that_of_arrays(name):
    function, rng = getattr(metrics, name), np.random.default_rng(2)
    scores, relevance, own = rng.random((6, 9)), rng.random((6, 9)), np.zeros((6, 9), bool)
    own[np.arange(6), rng.integers(0, 9, 6)] = True
    labels = [own if "own" in inspect.signature(function).parameters else relevance]
    codes = [own[:, :3].astype(int), own[np.arange(9) % 6, :3].astype(int)]
    others = {"pmrp": codes, "semantic_map": []}.get(name, labels)
    found = function(scores, *others)
    assert isinstance(found, np.ndarray) and found.shape == (6,) and found.dtype == np.float64
    tensor = function(torch.from_numpy(scores).requires_grad_(), *map(torch.from_numpy, others))
    assert isinstance(tensor, torch.Tensor) and np.array_equal(
        tensor.numpy(), found, equal_nan=True
    )
    coarse = torch.from_numpy(scores).bfloat16()
    assert (
        function(coarse, *others).equal(function(coarse.float(), *others)) or np.isnan(found).any()
    )
    assert metrics.collapse(torch.from_numpy(scores)) == metrics.collapse(scores)


def test_a_collapse_is_seen_in_folds_too():
    """Within a fold all cosines are alike; over the whole the folds stand apart, which no fold's
    query sees."""
    scores = np.kron(np.eye(2), np.full((2, 4), 0.99)).astype(np.float32)
    found = evaluate(
        scores, None, ["lambda@1"], owner=[0, 0, 1, 1, 2, 2, 3, 3], fold=2, intervals=None
    )
    assert {way: (one.collapsed, one.contrast) for way, one in found.collapse.items()} == {
        "i2t": (True, pytest.approx(0, abs=1e-6)), "t2i": (True, pytest.approx(0, abs=1e-6)),
    }  # fmt: skip
    assert not metrics.collapse(scores).collapsed


def test_what_is_over_a_limit_is_right():
    """As lists of it; a query without any scores 0."""
    random = np.random.default_rng(4)
    scores, gains = random.random((6, 9)), random.random((6, 9))
    gains[2] = 0
    names = ["relevant_recall@3", "relevant_r@3", "relevant_map@r"]
    both = {"a": gains, "b": 1 - gains}
    found = evaluate(scores, both, names, above={"a": 0.6, "b": 0.7}, intervals=None)
    for matrix, label in ((gains > 0.6, ""), (1 - gains > 0.7, "[b]")):
        for direction, S, right in (("i2t", scores, matrix), ("t2i", scores.T, matrix.T)):
            lists = Positives.from_lists([np.flatnonzero(row) for row in right])
            values = found.scored[direction].values
            for name, one in (
                ("relevant_recall@3", metrics.recall(S, lists, 3)),
                ("relevant_r@3", metrics.recall_share(S, lists, 3)),
                ("relevant_map@r", metrics.map_at_r(S, lists)),
            ):
                assert values[name + label] == pytest.approx(np.nan_to_num(one)), name + label
    with pytest.raises(InputError, match="relevance of above 'c' is not known"):
        evaluate(scores, both, names, above={"c": 0.5})


def test_labels_bring_relevance_and_own_items(dataset: Path):
    labels = Labels.load(dataset)
    scores = np.random.default_rng(0).random((12, 60))
    for ask, message in (
        (
            lambda: evaluate(scores, labels, "asp", measure="rouge_l"),
            "'asp' needs the relevance of every pair, and a sample is given -> use one of: ncs@K",
        ),
        (
            lambda: evaluate(scores, labels, "ndcg@5", measure="rouge_l", fold=6),
            "'ndcg@5' in folds: the sample is of the whole gallery",
        ),
        (
            lambda: evaluate(scores, {"a": scores, "b": labels.sample("cider")}),
            r"relevance of all pairs \(a\) beside samples",
        ),
        (
            lambda: evaluate(scores, labels, "relevant_r@5", measure="rouge_l"),
            "needs a threshold of relevance",
        ),
        (lambda: evaluate(scores.T, labels, "recall@1"), "give scores.T: rows are images"),
        (lambda: evaluate_lists({"q": {"a": 1.0}}, labels), "give Qrels.from_labels"),
    ):
        with pytest.raises(InputError, match=message):
            ask()
    sample = labels.sample("rouge_l")
    found = evaluate(scores, labels, measure="rouge_l", above=0.5)
    assert list(found.t2i.mean) == ["recall@1", "recall@5", "recall@10", "ndcg@25", "ncs@5"]
    right = metrics.estimate(
        scores.T, sample.transposed(), ["ndcg@25", "ncs@5"], groups=labels.owner
    )
    for name, one in right.items():
        assert found.t2i.mean[name] == one.value
        assert found.t2i.intervals[name] == (one.low, one.high)
    assert found.counts["known"] == {"": len(sample) / 720}
    exact = capgrade.exact(labels, "rouge_l")
    found = evaluate(scores, exact, ["ndcg@25", "recall@5"]).i2t
    own = labels.owner[None, :] == np.arange(12)[:, None]
    assert found.values["ndcg@25"] == pytest.approx(
        metrics.ndcg(scores, exact.block(range(12), range(60))[0])
    )
    assert found.values["recall@5"] == pytest.approx(metrics.recall(scores, own, k=5))
