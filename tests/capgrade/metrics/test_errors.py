"""What users get wrong: one InputError each, that names it and says what to do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from capgrade.metrics import (
    Positives,
    asp,
    coco_codes,
    coherent_score,
    human_lists,
    kendall_tau,
    ncs,
    ndcg,
    pmrp,
    recall,
    semantic_map,
    semantic_recall,
)
from capgrade.metrics.base import Queries, own_positives
from capgrade.metrics.catalogue import metric, score_all
from capgrade.metrics.uncertainty import paired_test
from capgrade.schemas.errors import InputError

S = np.random.default_rng(0).random((4, 8))
OWN = own_positives(np.arange(4), np.repeat(np.arange(4), 2))


def holed(row, column, value=np.nan):
    out = S.copy()
    out[row, column] = value
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "call",
    [
        lambda bad: recall(bad, OWN, k=1),
        lambda bad: ndcg(bad, S, k=2),
        lambda bad: asp(bad, S),
        lambda bad: kendall_tau(bad, S),
        lambda bad: semantic_map(bad, k=1),
    ],
)
def test_nan_in_similarity_names_the_pair(call, dtype):
    with pytest.raises(InputError, match=r"similarity holds NaN \(query 2, candidate 5\)"):
        call(holed(2, 5).astype(dtype))


def test_nan_is_found_by_the_selection_of_few_positions():
    """k far below the gallery takes the other way to rank; NaN among its first values and after them."""
    for column in (0, 900):
        wide = np.random.default_rng(0).random((2, 1000)).astype(np.float32)
        wide[1, column] = np.nan
        with pytest.raises(InputError, match=f"query 1, candidate {column}"):
            ndcg(wide, np.ones((2, 1000)), k=2)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "relevance holds NaN"), (np.inf, "relevance holds infinity")])
def test_relevance_must_be_finite(value, message):
    with pytest.raises(InputError, match=message):
        asp(S, holed(1, 1, value))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ndcg(S, S.T, k=2), "transpose it"),
        (lambda: ndcg(S, S[:3], k=2), "score the same queries"),
        (lambda: ndcg(S[0], S, k=2), "not a matrix"),
        (lambda: ndcg(np.zeros((0, 4)), np.zeros((0, 4)), k=2), "not a matrix"),
        (lambda: ndcg(S.astype(str), S, k=2), "dtype"),
        (lambda: ndcg(S, -S, k=2), "clip it"),
        (lambda: ncs(S, -S, k=2), "clip it"),
        (lambda: ndcg(S, S, k=0), "cut-off 0"),
        (lambda: ndcg(S, S, k=2, gain="log"), "linear, exponential"),
        (lambda: ndcg(S, S, k=2, ties="last"), "'expected' or 'reference'"),
        (lambda: ncs(S, S, k=2, form="mine"), "paper, eq5, authors"),
        (lambda: ncs(S, S, query_group=np.arange(4)), "one of two groups is given"),
        (lambda: score_all(Queries(S, relevance={"": S}), [metric("ncs_other@2")]), "image index of each caption"),
        (lambda: semantic_recall(S, S, k=2, m=0), "cut-off 0"),
        (lambda: kendall_tau(S, S, variant="c"), "a, b"),
        (lambda: coherent_score(S, S, k=1), "at least 2"),
        (lambda: semantic_map(3 * S, k=1), "normalise"),
        (lambda: recall(S, Positives.from_lists([[1]]), k=1), "1 lists of positives for 4 queries"),
        (lambda: recall(S, Positives.from_lists([[1], [8], [2], [3]]), k=1), "outside the gallery"),
        (lambda: pmrp(S, np.ones((4, 3)), np.ones((7, 3))), "candidate class vectors"),
        (lambda: pmrp(S, 2 * np.ones((4, 3)), np.ones((8, 3))), "query class vectors"),
        (lambda: metric("precision@5"), "ndcg@K"),
        (lambda: metric("ndcg"), "write ndcg@K"),
        (lambda: metric("sr@5"), r"write sr@K\(m=M\)"),
        (lambda: metric("asp@5"), "write asp"),
        (lambda: score_all(Queries(S), [metric("ndcg@2", "cider")]), "no relevance 'cider'"),
        (lambda: score_all(Queries(S), [metric("recall@1")]), "image index of each caption"),
        (lambda: score_all(Queries(S), [metric("map@r")]), "no list of positives 'eccv'"),
        (lambda: score_all(Queries(S), [metric("pmrp")]), "class vectors"),
        (lambda: paired_test(np.full(3, np.nan), np.full(3, np.nan)), "no query has a value"),
        (lambda: paired_test(S[0], S[0, :7]), "same queries"),
        (lambda: paired_test(S[0], S[1], method="t"), "permutation, bootstrap"),
        (lambda: human_lists("mine", [], []), "eccv, cxc, original"),
    ],
)
def test_one_clear_error(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_image_without_captions_is_named():
    with pytest.raises(InputError, match="query 3 .image 3. has no own candidate"):
        Queries(S, np.arange(4), np.array([0, 0, 1, 1, 2, 2, 2, 2]))


def test_groups_of_other_sizes_are_refused():
    with pytest.raises(InputError, match="one per row and column"):
        Queries(S, np.arange(3), np.arange(8))


def test_ids_that_are_not_coco_are_named():
    pytest.importorskip("eccv_caption")
    with pytest.raises(InputError, match="of the human positives is not in the captions table"):
        human_lists("eccv", ["flickr_1"], ["flickr_1#0"])


def test_instances_json(tmp_path):
    path = tmp_path / "instances.json"
    with pytest.raises(InputError, match="no such instances json"):
        coco_codes(path, [1])
    path.write_text("[]")
    with pytest.raises(InputError, match="not COCO instances"):
        coco_codes(path, [1])
    path.write_text(json.dumps({"annotations": [{"image_id": 1, "category_id": 91}]}))
    with pytest.raises(InputError, match=r"annotations\[0\]: category_id 91"):
        coco_codes(path, [1])
    path.write_text(json.dumps({"annotations": [{"image_id": 7, "category_id": 3}]}))
    with pytest.raises(InputError, match="annotates none of the images"):
        coco_codes(path, [1])
    path.write_text(json.dumps({"annotations": [{"image_id": 7, "category_id": c} for c in (1, 90, 90)]}))
    codes = coco_codes(path, ["6", "7"])
    assert codes.sum(axis=1).tolist() == [0, 2] and codes[1, [0, 89]].tolist() == [1, 1]
