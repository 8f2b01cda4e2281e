"""What users get wrong: one InputError each, that names it and says what to do."""

import json

import numpy as np
import pytest

from capgrade import metrics
from capgrade.metrics import Positives
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.ndcg(S, S.T, k=2), "transpose it"),
        (lambda: metrics.ndcg(S, S[:3], k=2), "score the same queries"),
        (lambda: metrics.ndcg(S[0], S, k=2), "not a matrix"),
        (lambda: metrics.ndcg(np.zeros((0, 4)), np.zeros((0, 4)), k=2), "not a matrix"),
        (lambda: metrics.ndcg(S.astype(str), S, k=2), "dtype"),
        (lambda: metrics.ndcg(S, -S, k=2), "clip it"),
        (lambda: metrics.ncs(S, -S, k=2), "clip it"),
        (lambda: metrics.ndcg(S, S, k=0), "cut-off 0"),
        (lambda: metrics.ndcg(S, S, k=2, gain="log"), "linear, exponential"),
        (lambda: metrics.ndcg(S, S, k=2, ties="last"), "'expected' or 'reference'"),
        (lambda: metrics.ncs(S, S, k=2, form="mine"), "paper, eq5, authors"),
        (lambda: metrics.ncs(S, S, query_group=np.arange(4)), "one of two groups is given"),
        (lambda: metrics.ncs(S, S, query_group=np.arange(3), candidate_group=np.arange(8)), "one per row and column"),
        (lambda: metrics.semantic_recall(S, S, k=2, m=0), "cut-off 0"),
        (lambda: metrics.kendall_tau(S, S, variant="c"), "a, b"),
        (lambda: metrics.coherent_score(S, S, k=1), "at least 2"),
        (lambda: metrics.semantic_map(3 * S, k=1), "normalise"),
        (lambda: metrics.recall(S, Positives.from_lists([[1]]), k=1), "1 lists of positives for 4 queries"),
        (lambda: metrics.recall(S, Positives.from_lists([[1], [8], [2], [3]]), k=1), "outside the gallery"),
        (lambda: metrics.pmrp(S, np.ones((4, 3)), np.ones((7, 3))), "candidate class vectors"),
        (lambda: metrics.pmrp(S, 2 * np.ones((4, 3)), np.ones((8, 3))), "query class vectors"),
        (lambda: metric("precision@5"), "ndcg@K"),
        (lambda: metric("ndcg"), "write ndcg@K"),
        (lambda: metric("sr@5"), r"write sr@K\(m=M\)"),
        (lambda: metric("asp@5"), "write asp"),
        (lambda: paired_test(np.full(3, np.nan), np.full(3, np.nan)), "no query has a value"),
        (lambda: paired_test(S[0], S[0, :7]), "same queries"),
        (lambda: paired_test(S[0], S[1], method="t"), "permutation, bootstrap"),
        (lambda: metrics.human_lists("mine", [], []), "eccv, cxc, original"),
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
        metrics.human_lists("eccv", ["flickr_1"], ["flickr_1#0"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "no list of annotations"),
        (b'{"annotations": 3}', "no list of annotations"),
        (b"caf\xe9", "is not UTF-8"),
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
        metrics.coco_codes(tmp_path / "instances.json", [1])
    (tmp_path / "instances.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        metrics.coco_codes(tmp_path / "instances.json", [1])


def test_instances_are_classes_of_images(tmp_path) -> None:
    rows = [{"image_id": 7, "category_id": category} for category in (1, 90, 90)]
    (tmp_path / "instances.json").write_text(json.dumps({"annotations": rows}))
    codes = metrics.coco_codes(tmp_path / "instances.json", ["6", "7"])
    assert codes.sum(axis=1).tolist() == [0, 2] and codes[1, [0, 89]].tolist() == [1, 1]


def asp_of_mean(matrix: np.ndarray) -> dict[str, np.ndarray]:
    return score_all(Queries(S, relevance={"a": S, "b": matrix}), [metric("asp_a", names=["a", "b"], weights=[1, 1])])


ORDER = [
    lambda bad: metrics.recall(bad, OWN, k=1), lambda bad: metrics.ndcg(bad, S, k=2), lambda bad: metrics.asp(bad, S),
    lambda bad: metrics.kendall_tau(bad, S),
]  # fmt: skip
ADDED_UP = [
    lambda bad: metrics.semantic_map(bad, k=1), metrics.collapse, lambda bad: metrics.ndcg(S, bad, k=2),
    lambda bad: metrics.ncs(S, bad, k=2), lambda bad: metrics.asp(S, bad), asp_of_mean,
    lambda bad: metrics.kendall_tau(S, bad), lambda bad: metrics.coherent_score(S, bad, k=3),
    lambda bad: metrics.semantic_recall(S, bad, k=2, m=2),
    lambda bad: extension_images(bad, np.repeat(np.arange(4), 2), m=2),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("value", "held"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_no_nan_and_where_values_are_added_up_no_infinity(value: float, held: str, dtype: type) -> None:
    """Infinities are ranked: test_definitions.py."""
    for call in [*ADDED_UP, *(ORDER if held == "NaN" else ())]:
        with pytest.raises(InputError, match=rf"holds {held} \((query 2, candidate 5|query 5, candidate 2)\)"):
            call(holed(2, 5, value).astype(dtype))


def test_labels_whose_sums_overflow() -> None:
    with pytest.raises(InputError, match="sums overflow -> scale it"):
        metrics.ncs(S, S * 1e308, k=3)
    with pytest.raises(InputError, match="use the linear gain"):
        metrics.ndcg(S, S * 2000, k=3, gain="exponential")
    with pytest.raises(InputError, match="one scale"):
        asp_of_mean(S * 1e300)
    assert np.isfinite(metrics.ndcg(S, S * 900, k=3, gain="exponential")).all()
