"""What users get wrong: one InputError each, that names it and says what to do."""

import json

import numpy as np
import pytest

from capgrade import Draws, Qrels, Run, evaluate, evaluate_lists, metrics
from capgrade.metrics import Positives
from capgrade.metrics.base import Queries, own_positives
from capgrade.metrics.catalogue import find_metric, score_all
from capgrade.metrics.mined import mined_precision
from capgrade.metrics.semantic_recall import extension_images
from capgrade.schemas.errors import InputError
from tests.capgrade.test_evaluation import world

S = np.random.default_rng(0).random((4, 8))
OWN = own_positives(np.arange(4), np.repeat(np.arange(4), 2))
SCORES, RELEVANCE, OWNER = world(5, 6)
LISTS = {"eccv": (Positives.from_lists([[0]] * 6), Positives.from_lists([[0]] * len(OWNER)))}
ONE = {"q": {"a": 1.0}}, {"q": {"a": 1}}


def holed(row, column, value=np.nan):
    out = S.copy()
    out[row, column] = value
    return out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.ndcg(S, S.T, k=2), "transpose it"),
        (lambda: metrics.ndcg(S, S[:3], k=2), "score the same queries"),
        (lambda: metrics.recall(S[0], S[0] > 0.5), "similarity is .8,., not a matrix"),
        (
            lambda: metrics.pmrp(S[0], np.ones((4, 3)), np.ones((8, 3))),
            "similarity is .8,., not a matrix",
        ),
        (lambda: metrics.ndcg(np.ma.masked_array(S), S, k=2), "a masked array -> fill it"),
        (lambda: metrics.ndcg(np.zeros((0, 4)), np.zeros((0, 4)), k=2), "not a matrix"),
        (lambda: metrics.ndcg(S.astype(str), S, k=2), "dtype"),
        (lambda: metrics.ndcg(S, -S, k=2), "clip it"),
        (lambda: metrics.ncs(S, -S, k=2), "clip it"),
        (lambda: metrics.ndcg(S, S, k=0), "cut-off 0"),
        (lambda: metrics.ndcg(S, S, k=2, gain="log"), "linear, exponential"),
        (lambda: metrics.ndcg(S, S, k=2, ties="last"), "'expected' or 'reference'"),
        (lambda: metrics.ncs(S, S, k=2, form="mine"), "paper, eq5, authors"),
        (lambda: metrics.ncs(S, S, query_group=np.arange(4)), "one of two groups is given"),
        (
            lambda: metrics.ncs(S, S, query_group=np.arange(3), candidate_group=np.arange(8)),
            "one per row and column",
        ),
        (lambda: metrics.semantic_recall(S, S, k=2, m=0), "cut-off 0"),
        (lambda: metrics.kendall_tau(S, S, variant="c"), "a, b"),
        (lambda: metrics.coherent_score(S, S, k=1), "at least 2"),
        (lambda: metrics.semantic_map(3 * S, k=1), "normalise"),
        (
            lambda: metrics.recall(S, Positives.from_lists([[1]]), k=1),
            "1 lists of positives for 4 queries",
        ),
        (
            lambda: metrics.recall(S, Positives.from_lists([[1], [8], [2], [3]]), k=1),
            "outside the gallery",
        ),
        (lambda: metrics.pmrp(S, np.ones((4, 3)), np.ones((7, 3))), "candidate class vectors"),
        (lambda: metrics.pmrp(S, 2 * np.ones((4, 3)), np.ones((8, 3))), "query class vectors"),
        (lambda: find_metric("precision@5"), "near it: r_precision"),
        (lambda: find_metric("ndcg"), "write ndcg@K"),
        (lambda: find_metric("sr@5"), r"write sr@K\(m=M\)"),
        (lambda: find_metric("asp@5"), "write asp"),
        (lambda: metrics.human_lists("mine", [], []), "eccv, cxc, original"),
        (
            lambda: mined_precision(S, Positives.from_lists([[]] * 4), np.arange(8) % 4),
            "no human positives",
        ),
        (lambda: mined_precision(holed(2, 5), OWN, np.arange(8) % 4), "NaN or infinity"),
        (lambda: mined_precision(holed(2, 0), OWN, np.arange(8) % 4), "scores holds NaN"),
        (lambda: evaluate(SCORES), "nothing to score against -> give owner, relevance"),
        (lambda: evaluate(SCORES, owner=OWNER, metrics=[]), "no metrics -> name some"),
        (
            lambda: evaluate(SCORES * 99, None, "lambda@1"),
            r"needs cosines, these leave \[-1, 1\] -> normalise",
        ),
        (
            lambda: evaluate(np.zeros((9, 4)), owner=np.zeros(9, int)),
            "give the row of each column; give scores.T",
        ),
        (lambda: evaluate(SCORES, owner=OWNER * 2), "captions name images 0 to 10 of 6"),
        (
            lambda: evaluate(SCORES, owner=np.zeros(len(OWNER), int)),
            "query 1 .image 1. has no own candidate",
        ),
        (lambda: evaluate(SCORES, owner=OWNER, fold=4), "folds of 4 do not divide 6 images"),
        (
            lambda: evaluate(SCORES, RELEVANCE, "ndcg@5", fold=3),
            "folds need the image of each caption",
        ),
        (
            lambda: evaluate(SCORES, None, "map@r", owner=OWNER, positives=LISTS, fold=3),
            "of the whole gallery",
        ),
        (
            lambda: evaluate(SCORES, None, "map@r", owner=OWNER),
            r"needs ECCV Caption's positives -> give positives\['eccv'\], of metrics.human_lists",
        ),
        (
            lambda: evaluate(SCORES, positives={"mine": LISTS["eccv"]}),
            "list of positives 'mine' is not known",
        ),
        (
            lambda: evaluate(SCORES, positives={"eccv": LISTS["eccv"][0]}),
            "positives of 'eccv' are no pair",
        ),
        (
            lambda: evaluate(SCORES, None, "pmrp", owner=OWNER),
            "needs class vectors -> give classes",
        ),
        (
            lambda: evaluate(SCORES, classes=np.full((6, 2), 2), owner=OWNER),
            "one row of 0 and 1 for each image",
        ),
        (lambda: evaluate(SCORES, owner=OWNER, direction="rows"), "direction 'rows' is not known"),
        (
            lambda: evaluate(SCORES, owner=OWNER, intervals=Draws(95)),
            "level 95 is not between 0 and 1 -> use 0.95",
        ),
        (lambda: Draws(samples=-1), "-1 samples -> give 0 for no intervals"),
        (
            lambda: evaluate(SCORES, RELEVANCE, "asp_a", owner=OWNER),
            "'asp_a' needs several relevances",
        ),
        (
            lambda: evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}),
            "ranked lists, no matrix -> .* capgrade.evaluate_lists",
        ),
        (lambda: metrics.recall(SCORES, SCORES.astype(int)), r"own is int64 .* -> give bool"),
        (
            lambda: Positives.from_ids({"a": [1]}, ["b"], [1]),
            "no query has a list of positives, such as 'b'",
        ),
        (lambda: Positives.from_ids({"a": [1]}, ["a"], [1, "1"]), "a candidate is given twice"),
        (
            lambda: Positives.from_ids({"a": [1, "1"]}, ["a"], [1]),
            "query 'a' names a positive twice",
        ),
        (
            lambda: evaluate(SCORES, RELEVANCE, ["recall@5"]),
            "metric 'recall@5' needs the own items -> give owner",
        ),
        (
            lambda: evaluate(SCORES, RELEVANCE, "ncs_other@5"),
            "metric 'ncs_other@5' needs the image of each caption",
        ),
        (lambda: evaluate(SCORES, RELEVANCE, measure="cider"), "measure 'cider' of a matrix"),
        (lambda: Run.from_lists(["q"], [["a", "b"]], [[0.1, 0.2]]), "scores of query 'q' rise"),
        (lambda: Run.from_lists(["q"], [["a", "a"]]), "query 'q' has a document twice"),
        (lambda: Run.from_lists(["q", "q"], [["a"], ["b"]]), "a query comes twice"),
        (lambda: Run.from_lists(["q", "r"], [["a"]]), "2 queries, 1 lists"),
        (
            lambda: Run.from_lists(["q"], [[1, 3]], names=["a", "b"]),
            "query 'q', place 2: 3 is no row of 2 names",
        ),
        (
            lambda: Run.from_lists(["q"], [["a"]], names=["a", "b"]),
            "query 'q', place 1: 'a' is no row of 2 names",
        ),
        (
            lambda: Run.from_dict({"p": {"a": 1}, "q": {"a": 1, "b": np.nan}}),
            "a score of query 'q' is not finite",
        ),
        (lambda: Qrels.from_dict({"q": {"a": -1}}), "relevance -1 is below 0 -> clip it: max"),
        (lambda: evaluate_lists(*ONE, ["asp"]), "metric 'asp' is not one of ranked lists"),
        (lambda: evaluate_lists(*ONE, ["ndcg"]), "metric 'ndcg' is not one of ranked lists"),
        (lambda: evaluate_lists(*ONE, above=-0.5), "above -0.5 of judgements"),
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
        (
            b'{"annotations": [{"image_id": 1, "category_id": 91}]}',
            r"annotations\[0\]: image_id 1, category_id 91",
        ),
        (
            b'{"annotations": [{"image_id": 1, "category_id": "dog"}]}',
            r"annotations\[0\]: .*category_id 'dog'",
        ),
        (
            b'{"annotations": [{"image_id": 1, "category_id": 3}, {"image_id": 1}]}',
            r"annotations\[1\]: image_id 1, category_id None",
        ),
        (
            b'{"annotations": [{"category_id": 3}]}',
            r"annotations\[0\]: image_id None, category_id 3",
        ),
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
    return score_all(
        Queries(S, relevance={"a": S, "b": matrix}),
        [find_metric("asp_a", names=["a", "b"], weights=[1, 1])],
    )


ORDER = [
    lambda bad: metrics.recall(bad, OWN, k=1),
    lambda bad: metrics.ndcg(bad, S, k=2),
    lambda bad: metrics.asp(bad, S),
    lambda bad: metrics.kendall_tau(bad, S),
]
ADDED_UP = [
    lambda bad: metrics.semantic_map(bad, k=1),
    metrics.collapse,
    lambda bad: metrics.ndcg(S, bad, k=2),
    lambda bad: metrics.ncs(S, bad, k=2),
    lambda bad: metrics.asp(S, bad),
    asp_of_mean,
    lambda bad: metrics.kendall_tau(S, bad),
    lambda bad: metrics.coherent_score(S, bad, k=3),
    lambda bad: metrics.semantic_recall(S, bad, k=2, m=2),
    lambda bad: extension_images(bad, np.repeat(np.arange(4), 2), m=2),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "held"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_no_nan_and_where_values_are_added_up_no_infinity(
    value: float, held: str, dtype: type
) -> None:
    """Infinities are ranked: test_definitions.py."""
    for call in [*ADDED_UP, *(ORDER if held == "NaN" else ())]:
        with pytest.raises(
            InputError, match=rf"holds {held} \((query 2, candidate 5|query 5, candidate 2)\)"
        ):
            call(holed(2, 5, value).astype(dtype))


def test_labels_whose_sums_overflow() -> None:
    with pytest.raises(InputError, match="sums overflow -> scale it"):
        metrics.ncs(S, S * 1e308, k=3)
    with pytest.raises(InputError, match="use the linear gain"):
        metrics.ndcg(S, S * 2000, k=3, gain="exponential")
    with pytest.raises(InputError, match="one scale"):
        asp_of_mean(S * 1e300)
    assert np.isfinite(metrics.ndcg(S, S * 900, k=3, gain="exponential")).all()
