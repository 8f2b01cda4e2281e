"""Metrics and `evaluate` on what people have: tensors of any dtype, own items as a matrix, labels."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

from capgrade import Labels, evaluate, metrics
from capgrade.schemas.errors import InputError

OF_OTHERS = {"Collapse", "Positives", "coco_codes", "collapse", "human_lists", "pmrp", "semantic_map"}  # no labels
FUNCTIONS = {name: getattr(metrics, name) for name in metrics.__all__ if name not in OF_OTHERS}


def task(queries: int = 6, candidates: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    own = np.zeros((queries, candidates), bool)
    own[np.arange(queries), rng.integers(0, candidates, queries)] = True
    return rng.random((queries, candidates)), rng.random((queries, candidates)), own


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_metric_of_tensors_is_that_of_arrays(name):
    scores, relevance, own = task()
    labels = own if "own" in inspect.signature(FUNCTIONS[name]).parameters else relevance
    found = FUNCTIONS[name](scores, labels)
    assert isinstance(found, np.ndarray) and found.shape == (6,) and found.dtype == np.float64
    tensor = FUNCTIONS[name](torch.from_numpy(scores).requires_grad_(), torch.from_numpy(labels))
    assert isinstance(tensor, torch.Tensor) and np.array_equal(tensor.numpy(), found)
    coarse = torch.from_numpy(scores).bfloat16()
    assert torch.equal(FUNCTIONS[name](coarse, labels), FUNCTIONS[name](coarse.float(), labels))


def test_what_needs_no_labels_takes_tensors_too():
    scores, _, own = task()
    codes = own[:, :3].astype(int), own[:, :3][np.arange(9) % 6].astype(int)
    for function, others in ((metrics.pmrp, codes), (metrics.semantic_map, (2,))):
        tensors = [torch.from_numpy(one) if isinstance(one, np.ndarray) else one for one in others]
        found = function(torch.from_numpy(scores), *tensors)
        assert isinstance(found, torch.Tensor)
        assert np.array_equal(found.numpy(), function(scores, *others), equal_nan=True)
    assert metrics.collapse(torch.from_numpy(scores)) == metrics.collapse(scores)
    with pytest.raises(InputError, match="one of two groups is given"):
        metrics.semantic_map(scores, query_group=np.arange(6))


def test_positives_may_stand_for_the_matrix_of_own_candidates():
    scores, _, own = task()
    lists = metrics.Positives.from_lists([np.flatnonzero(row) for row in own])
    for name in ("recall", "recall_share", "first_rank", "map_at_r", "r_precision"):
        assert np.array_equal(FUNCTIONS[name](scores, lists), FUNCTIONS[name](scores, own))


def test_ndcg_is_that_of_scikit_learn():
    scores, relevance, _ = task(20, 40)
    expected = [ndcg_score(r[None], s[None], k=25) for s, r in zip(scores, relevance, strict=True)]
    assert metrics.ndcg(scores, relevance) == pytest.approx(expected)


def test_recall_is_a_count():
    scores, _, own = task(50, 30)
    rank = [(s > s[o].max()).sum() for s, o in zip(scores, own, strict=True)]
    assert metrics.recall(scores, own, k=5).tolist() == [r < 5 for r in rank]
    assert metrics.first_rank(scores, own).tolist() == [r + 1 for r in rank]


def test_evaluate_is_the_metrics_by_name():
    scores, relevance, own = task()
    names = ["ndcg@3", "ncs@2", "asp", "kendall_tau_a", "sr@3(m=2)", "recall@2", "r@2", "medr", "meanr"]
    found = evaluate(torch.from_numpy(scores), relevance, names, own=own).i2t
    expected = {
        "ndcg@3": metrics.ndcg(scores, relevance, k=3), "ncs@2": metrics.ncs(scores, relevance, k=2),
        "asp": metrics.asp(scores, relevance), "kendall_tau_a": metrics.kendall_tau(scores, relevance),
        "sr@3(m=2)": metrics.semantic_recall(scores, relevance, k=3, m=2), "recall@2": metrics.recall(scores, own, k=2),
        "r@2": metrics.recall_share(scores, own, k=2), "medr": metrics.first_rank(scores, own),
        "meanr": metrics.first_rank(scores, own),
    }  # fmt: skip
    for name in names:
        assert found.values[name] == pytest.approx(expected[name]), name
    assert found.mean["medr"] == np.floor(np.median(expected["medr"]))
    low, high = found.intervals["ndcg@3"]
    assert low < found.mean["ndcg@3"] < high and str(found).count("\n") == len(names) - 1


def test_labels_bring_relevance_and_own_items(dataset: Path):
    labels = Labels.load(dataset)
    scores = np.random.default_rng(0).random((12, 60))
    with pytest.raises(InputError, match="of the pairs are known -> evaluate by labels.exact"):
        evaluate(scores, labels, measure="rouge_l")
    exact = labels.exact("rouge_l")
    found = evaluate(scores, exact, ["ndcg@25", "recall@5"]).i2t
    own = labels.owner[None, :] == np.arange(12)[:, None]
    assert found.values["ndcg@25"] == pytest.approx(metrics.ndcg(scores, exact.block(range(12), range(60))[0]))
    assert found.values["recall@5"] == pytest.approx(metrics.recall(scores, own, k=5))
    with pytest.raises(InputError, match=r"are \[60, 12\], the labels 12 images x 60 captions -> give scores.T: rows"):
        evaluate(scores.T, exact)


def test_what_does_not_fit_is_refused():
    scores, relevance, own = task()
    for build, message in (
        (lambda: metrics.recall(scores, own.astype(int)), r"own is int64 \[6, 9\], scores are \[6, 9\] -> give bool"),
        (lambda: metrics.recall(scores, own.T), r"own is bool \[9, 6\], scores are \[6, 9\]"),
        (lambda: metrics.ndcg(scores, relevance.T), "transpose it"),
        (lambda: metrics.ndcg(scores * np.nan, relevance), "NaN"),
        (lambda: evaluate(scores, relevance, ["ndgc@5"]), "metric 'ndgc@5' is not known"),
        (lambda: evaluate(scores, relevance, ["recall@5"]), "metric 'recall@5' needs the own items -> give owner"),
        (lambda: evaluate(scores, relevance, "ncs_other@5"), "metric 'ncs_other@5' needs the image of each caption"),
        (lambda: evaluate(scores, relevance, above=0.5), "above of a matrix"),
        (lambda: evaluate(scores, relevance, measure="cider"), "measure 'cider' of a matrix"),
    ):
        with pytest.raises(InputError, match=message):
            build()
