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
    collapse,
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
from capgrade.metrics.mined import mined_precision
from capgrade.metrics.semantic_recall import extension_images
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
        (lambda: ncs(S, S, query_group=np.arange(3), candidate_group=np.arange(8)), "one per row and column"),
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
        (lambda: paired_test(np.full(3, np.nan), np.full(3, np.nan)), "no query has a value"),
        (lambda: paired_test(S[0], S[0, :7]), "same queries"),
        (lambda: paired_test(S[0], S[1], method="t"), "permutation, bootstrap"),
        (lambda: human_lists("mine", [], []), "eccv, cxc, original"),
        (lambda: mined_precision(S, Positives.from_lists([[]] * 4), np.arange(8) % 4), "no human positives"),
        (lambda: mined_precision(holed(2, 5), OWN, np.arange(8) % 4), "NaN or infinity"),
        (lambda: mined_precision(holed(2, 0), OWN, np.arange(8) % 4), "scores holds NaN"),
    ],
)
def test_one_clear_error(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_ids_that_are_not_coco_are_named():
    pytest.importorskip("eccv_caption")
    with pytest.raises(InputError, match="of the human positives is not in the captions table"):
        human_lists("eccv", ["flickr_1"], ["flickr_1#0"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "no list of annotations"),
        (b'{"annotations": 3}', "no list of annotations"),
        (b"caf\xe9", "not JSON"),
        (b'{"annotations": [{"image_id": 1, "category_id": 91}]}', r"annotations\[0\]: image_id 1, category_id 91"),
        (b'{"annotations": [{"image_id": 1, "category_id": "dog"}]}', r"annotations\[0\]: .*category_id 'dog'"),
        (
            b'{"annotations": [{"image_id": 1, "category_id": 3}, {"image_id": 1}]}',
            r"annotations\[1\]: image_id 1, category_id None",
        ),
        (b'{"annotations": [{"category_id": 3}]}', r"annotations\[0\]: image_id None, category_id 3"),
        (b'{"annotations": [7]}', r"annotations\[0\]: .*category_id None"),
        (b'{"annotations": [{"image_id": 7, "category_id": 3}]}', "annotates none of the images"),
    ],
)
def test_instances_that_are_none(content: bytes, message: str, tmp_path) -> None:
    with pytest.raises(InputError, match="no such file"):
        coco_codes(tmp_path / "instances.json", [1])
    (tmp_path / "instances.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        coco_codes(tmp_path / "instances.json", [1])


def test_instances_are_classes_of_images(tmp_path) -> None:
    rows = [{"image_id": 7, "category_id": category} for category in (1, 90, 90)]
    (tmp_path / "instances.json").write_text(json.dumps({"annotations": rows}))
    codes = coco_codes(tmp_path / "instances.json", ["6", "7"])
    assert codes.sum(axis=1).tolist() == [0, 2] and codes[1, [0, 89]].tolist() == [1, 1]


INF = np.inf


def asp_of_mean(matrix: np.ndarray) -> dict[str, np.ndarray]:
    return score_all(Queries(S, relevance={"a": S, "b": matrix}), [metric("asp_a", names=["a", "b"], weights=[1, 1])])


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
        call(holed(2, 5, value))


def test_labels_whose_sums_overflow() -> None:
    with pytest.raises(InputError, match="sums overflow -> scale it"):
        ncs(S, S * 1e308, k=3)
    with pytest.raises(InputError, match="use the linear gain"):
        ndcg(S, S * 2000, k=3, gain="exponential")
    with pytest.raises(InputError, match="one scale"):
        asp_of_mean(S * 1e300)
    assert np.isfinite(ndcg(S, S * 900, k=3, gain="exponential")).all()
