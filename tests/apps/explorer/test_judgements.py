"""Export to `capgrade agree`, Krippendorff's alpha, R@10 judged again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capgrade.agreement.judgement_files import read_judgements
from capgrade.apps.explorer.judgements import (
    agreement_rows,
    alpha,
    export_judgements,
    judged_recall,
    measure_agreement,
    rating_matrix,
    read_judge_tables,
)
from capgrade.apps.explorer.plans import write_plan
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.measures.pair_files import read_pairs
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.judges import YES_OR_NO, ZERO_TO_FIVE
from capgrade.schemas.reviews import INFORMATION, POOL, SEMANTIC_MAP, Item, ReviewPlan
from tests.conftest import caption_table, make_captions

CAPTIONS = make_captions([[f"image {i}", f"picture {i}"] for i in range(5)])


def _review(folder: Path, plan: ReviewPlan, given: dict[str, dict[int, int]]) -> ReviewRatings:
    write_plan(folder, plan)
    ratings = ReviewRatings.open(folder)
    for name, scores in given.items():
        for item, score in scores.items():
            ratings.rate(name, item, score)
    return ratings


def _plan() -> ReviewPlan:
    return ReviewPlan(
        INFORMATION, "corpus", 0, tuple(Item(f"i{k}", f"i{(k + 1) % 5}#1") for k in range(5))
    )


def test_agree_reads_what_is_exported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing has been rated"):
        export_judgements(_review(tmp_path / "review", _plan(), {}), tmp_path / "judgements.csv")
    ratings = _review(tmp_path / "review", _plan(), {"ann": {0: 5, 1: 0, 3: 2}, "bo": {0: 4, 1: 1}})
    with pytest.raises(
        InputError, match="answers of 0..1 in a review of 0..5 -> judge on one scale"
    ):
        measure_agreement(ratings, {"m": {0: 1}}, YES_OR_NO)
    of_one = {"images": 1, "strata": {"random": {"pairs": 2, "chosen": 2}}}
    pool = ReviewPlan(
        POOL, "corpus", 0, tuple(Item("i0", f"i{k}#1", stratum="random") for k in (1, 2)), of_one
    )
    for scale, scores in ((YES_OR_NO, {0: 1, 1: 0}), (ZERO_TO_FIVE, {0: 4, 1: 3})):
        accepted = measure_agreement(_review(tmp_path / "pool", pool, {}), {"m": scores}, scale)[
            "accepted"
        ]
        assert accepted == {"m": {"accepted": 1, "low": 1, "high": 1}}
    assert export_judgements(ratings, tmp_path / "judgements.csv") == 3
    found = read_judgements(tmp_path / "judgements.csv", CAPTIONS)
    assert found.image.tolist() == [0, 1, 3]
    assert [CAPTIONS.caption_ids[c] for c in found.caption] == ["i1#1", "i2#1", "i4#1"]
    np.testing.assert_allclose(found.score, [4.5, 0.5, 2])
    assert found.scale == (0, 5)


def test_pairs_of_a_pool_say_whether_they_were_drawn_at_random(tmp_path: Path) -> None:
    strata = {name: {"pairs": 2, "chosen": 1} for name in ("pool", "uncertain", "random")}
    items = tuple(Item("i0", f"i{k}#1", stratum=name) for k, name in enumerate(strata, 1))
    pool = ReviewPlan(POOL, "corpus", 0, items, {"images": 1, "strata": strata})
    ratings = _review(tmp_path / "pool", pool, {"ann": {0: 5, 1: 4, 2: 0}})
    export_judgements(ratings, tmp_path / "judgements.csv")
    for source in (tmp_path / "pool", tmp_path / "judgements.csv"):
        assert read_judgements(source, CAPTIONS).random.tolist() == [False, False, True]  # type: ignore[union-attr]


def test_ids_with_commas_and_ids_that_begin_as_a_formula_are_read_back(tmp_path: Path) -> None:
    """A spreadsheet takes what begins with = + - @ as a formula: it gets a mark, which our readers
    take off."""
    ids = ["=1+1", "@a", "'-b", 'a,"b"\nc']
    table = caption_table([["a dog", "a cat", "a cow", "a hen"]])
    table = table.set_column(table.schema.get_field_index("caption_id"), "caption_id", [ids])
    captions = Captions(table, "test", "lower_split", "digest")
    plan = ReviewPlan(INFORMATION, "corpus", 0, tuple(Item("i0", name) for name in ids))
    export_judgements(
        _review(tmp_path / "review", plan, {"ann": {0: 5, 1: 0, 2: 2, 3: 1}}),
        tmp_path / "judgements.csv",
    )
    written = (tmp_path / "judgements.csv").read_text()
    assert all(f",'{id}," in written for id in ids[:3])
    found = read_judgements(tmp_path / "judgements.csv", captions)
    assert [captions.caption_ids[c] for c in found.caption] == ids
    assert found.score.tolist() == [5, 0, 2, 1]
    (tmp_path / "judged.csv").write_text(
        written.replace("reviewers", "rater").replace(",1,0..5", ",'@cf/model,0..5")
    )
    assert read_pairs(tmp_path / "judged.csv", captions)[1].tolist() == [5, 0, 2, 1]
    assert read_judge_tables([tmp_path / "judged.csv"], plan) == (
        {"@cf/model": {0: 5, 1: 0, 2: 2, 3: 1}},
        (0, 5),
    )


def test_a_pair_that_stands_twice_has_each_reviewer_once(tmp_path: Path) -> None:
    """The file says what the folder does: a reviewer's two ratings of a pair are one, their
    mean."""
    plan = ReviewPlan(
        SEMANTIC_MAP, "corpus", 0, tuple(Item("i0", "i1#1", query) for query in ("q0", "q1"))
    )
    export_judgements(
        _review(tmp_path / "review", plan, {"ann": {0: 5, 1: 0}, "bo": {0: 4}}),
        tmp_path / "out.csv",
    )
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["i0,i1#1,3.25,2,0..5"]
    assert read_judgements(tmp_path / "review", CAPTIONS).score.tolist() == [3.25]


@pytest.mark.parametrize(("lines", "said"), [
    (["i0,i1#1,1,,0..5"], "row 2: no rater"),
    (["i4,i4#0,1,m,0..5"], "none of the review's pairs"),
    (["i0,i1#1,1,n,0..1"], "judge.csv: another scale than the file before -> judge on one scale"),
    (["i0,i1#1,2,n,0..5", "i1,i2#1,2,robot,0..5"], "judge.csv: 'robot' is in another file too -> give each model once"),
])  # fmt: skip
def test_what_a_model_judged_is_a_table_like_any_other(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    first, path = tmp_path / "first.csv", tmp_path / "judge.csv"
    for file, given in ((first, ["i0,i1#1,3,robot,0..5"]), (path, lines)):
        file.write_text("\n".join(["image_id,caption_id,score,rater,scale", *given]) + "\n")
    with pytest.raises(InputError, match=said):
        read_judge_tables([first, path], _plan())


def test_alpha_knows_perfect_agreement_and_what_is_not_defined() -> None:
    assert alpha(np.array([[1.0, 3, 5], [2, 3, np.nan]]), "interval") == pytest.approx(8 / 11), (
        "by hand"
    )
    same = np.array([[0.0, 1, 5], [0, 1, 5]])
    assert alpha(same, "ordinal") == pytest.approx(1)
    assert alpha(same[:1], "ordinal") is None, "one reviewer"
    assert alpha(np.array([[3.0, 3], [3, 3]]), "ordinal") is None, "one score"
    assert alpha(np.array([[1.0, np.nan], [np.nan, 2]]), "ordinal") is None, "no pair in common"
    assert alpha(rating_matrix({}, 4), "ordinal") is None


def test_recall_judged_again_by_hand() -> None:
    """10 captions searched, 6 hits, 4 misses of which 2 are judged, of three images each."""
    items = tuple(Item(f"i{k}", query, query) for query in ("q0", "q1") for k in range(3))
    plan = ReviewPlan(
        SEMANTIC_MAP, "corpus", 0, items, {"model": "m", "k": 10, "queries": 10, "hits": 6}
    )
    given = {
        "ann": {0: 1, 1: 4, 2: 0, 3: 0, 4: 1, 5: 3},  # q0 found at its second image, q1 not
        "bo": {0: 0, 1: 0, 2: 3},  # q0 not found; q1 not begun, so it does not count
        "cy": {
            0: 5,
            1: 0,
            2: 0,
            3: 5,
            4: 0,
        },  # q0 found; q1 is not rated whole, so it does not count though found
        "di": {0: 5},  # nothing rated whole
    }
    found = judged_recall(plan, given)
    assert found["labels"] == 60
    assert found["reviewers"] == pytest.approx({"ann": 80, "bo": 60, "cy": 100})
    assert found["mean"] == pytest.approx(80)
    assert found["misses"] == 2 and found["misses_judged"] == {"ann": 2, "bo": 1, "cy": 1, "di": 0}
    assert judged_recall(plan, {})["mean"] is None
    rows = agreement_rows(
        {"items": 6, "reviewers": {}, "rated_twice": 0, "alpha": {}, "recall": found}
    )
    assert (
        "R@10 of the labels, text to image",
        "60.0",
    ) in rows, "plans of before had this direction alone"
    assert ("R@10 by cy, from 1 of 2 misses, rated whole", "100.0") in rows
    assert ("R@10 by di, from 0 of 2 misses, rated whole", "–") in rows
    now = judged_recall(
        replace(plan, facts={**plan.facts, "direction": "i2t", "images": 1000}), given
    )
    rows = agreement_rows(
        {"items": 6, "reviewers": {}, "rated_twice": 0, "alpha": {}, "recall": now}
    )
    assert ("R@10, mean of reviewers, image to text, 1,000 images", "80.0") in rows
