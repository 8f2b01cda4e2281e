"""Ratings survive whatever happens after the click; export to `capgrade agree`, Krippendorff's alpha, R@10 judged
again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from capgrade.agreement.judgement_files import read_judgements
from capgrade.explorer.judgements import (
    agreement,
    agreement_rows,
    alpha,
    export,
    judged_recall,
    rating_matrix,
    read_judged,
)
from capgrade.explorer.plans import write_plan
from capgrade.explorer.ratings import ReviewRatings
from capgrade.measures.imported import fit_judged
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.judges import GRADES, SHARES
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
    return ReviewPlan(INFORMATION, "corpus", 0, tuple(Item(f"i{k}", f"i{(k + 1) % 5}#1") for k in range(5)))


def test_agree_reads_what_is_exported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing has been rated"):
        export(_review(tmp_path / "review", _plan(), {}), tmp_path / "judgements.csv")
    ratings = _review(tmp_path / "review", _plan(), {"ann": {0: 5, 1: 0, 3: 2}, "bo": {0: 4, 1: 1}})
    with pytest.raises(InputError, match="answers of 0..1 in a review of 0..5 -> judge on one scale"):
        agreement(ratings, {"m": {0: 1}}, SHARES)
    of_one = {"images": 1, "strata": {"random": {"pairs": 2, "chosen": 2}}}
    pool = ReviewPlan(POOL, "corpus", 0, tuple(Item("i0", f"i{k}#1", stratum="random") for k in (1, 2)), of_one)
    for scale, scores in ((SHARES, {0: 1, 1: 0}), (GRADES, {0: 4, 1: 3})):
        accepted = agreement(_review(tmp_path / "pool", pool, {}), {"m": scores}, scale)["accepted"]
        assert accepted == {"m": {"accepted": 1, "low": 1, "high": 1}}
    assert export(ratings, tmp_path / "judgements.csv") == 3
    found = read_judgements(tmp_path / "judgements.csv", CAPTIONS)
    assert found.image.tolist() == [0, 1, 3]
    assert [CAPTIONS.caption_ids[c] for c in found.caption] == ["i1#1", "i2#1", "i4#1"]
    np.testing.assert_allclose(found.score, [4.5, 0.5, 2])
    assert found.scale == (0, 5)


def test_ids_with_commas_and_ids_that_begin_as_a_formula_are_read_back(tmp_path: Path) -> None:
    """A spreadsheet takes what begins with = + - @ as a formula: it gets a mark, which our readers take off."""
    ids = ["=1+1", "@a", "'-b", 'a,"b"\nc']
    table = caption_table([["a dog", "a cat", "a cow", "a hen"]])
    table = table.set_column(table.schema.get_field_index("caption_id"), "caption_id", [ids])
    captions = Captions(table, "test", "lower_split", "digest")
    plan = ReviewPlan(INFORMATION, "corpus", 0, tuple(Item("i0", name) for name in ids))
    export(_review(tmp_path / "review", plan, {"ann": {0: 5, 1: 0, 2: 2, 3: 1}}), tmp_path / "judgements.csv")
    written = (tmp_path / "judgements.csv").read_text()
    assert all(f",'{id}," in written for id in ids[:3])
    found = read_judgements(tmp_path / "judgements.csv", captions)
    assert [captions.caption_ids[c] for c in found.caption] == ids
    assert found.score.tolist() == [5, 0, 2, 1]
    (tmp_path / "judged.csv").write_text(written.replace("reviewers", "rater").replace(",1,0..5", ",'@cf/model,0..5"))
    assert fit_judged(tmp_path / "judged.csv", captions).values.tolist() == [5, 0, 2, 1]
    assert read_judged([tmp_path / "judged.csv"], plan) == ({"@cf/model": {0: 5, 1: 0, 2: 2, 3: 1}}, (0, 5))


def test_a_pair_that_stands_twice_has_each_reviewer_once(tmp_path: Path) -> None:
    """The file says what the folder does: a reviewer's two ratings of a pair are one, their mean."""
    plan = ReviewPlan(SEMANTIC_MAP, "corpus", 0, tuple(Item("i0", "i1#1", query) for query in ("q0", "q1")))
    export(_review(tmp_path / "review", plan, {"ann": {0: 5, 1: 0}, "bo": {0: 4}}), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["i0,i1#1,3.25,2,0..5"]
    assert read_judgements(tmp_path / "review", CAPTIONS).score.tolist() == [3.25]


@pytest.mark.parametrize(("lines", "said"), [
    (["i0,i1#1,1,,0..5"], "row 2: no rater"),
    (["i4,i4#0,1,m,0..5"], "none of the review's pairs"),
    (["i0,i1#1,1,n,0..1"], "judge.csv: another scale than the file before -> judge on one scale"),
    (["i0,i1#1,2,n,0..5", "i1,i2#1,2,robot,0..5"], "judge.csv: 'robot' is in another file too -> give each model once"),
])  # fmt: skip
def test_what_a_model_judged_is_a_table_like_any_other(tmp_path: Path, lines: list[str], said: str) -> None:
    first, path = tmp_path / "first.csv", tmp_path / "judge.csv"
    for file, given in ((first, ["i0,i1#1,3,robot,0..5"]), (path, lines)):
        file.write_text("\n".join(["image_id,caption_id,score,rater,scale", *given]) + "\n")
    with pytest.raises(InputError, match=said):
        read_judged([first, path], _plan())


def test_alpha_knows_perfect_agreement_and_what_is_not_defined() -> None:
    assert alpha(np.array([[1.0, 3, 5], [2, 3, np.nan]]), "interval") == pytest.approx(8 / 11), "by hand"
    same = np.array([[0.0, 1, 5], [0, 1, 5]])
    assert alpha(same, "ordinal") == pytest.approx(1)
    assert alpha(same[:1], "ordinal") is None, "one reviewer"
    assert alpha(np.array([[3.0, 3], [3, 3]]), "ordinal") is None, "one score"
    assert alpha(np.array([[1.0, np.nan], [np.nan, 2]]), "ordinal") is None, "no pair in common"
    assert alpha(rating_matrix({}, 4), "ordinal") is None


def test_recall_judged_again_by_hand() -> None:
    """10 captions searched, 6 hits, 4 misses of which 2 are judged, of three images each."""
    items = tuple(Item(f"i{k}", query, query) for query in ("q0", "q1") for k in range(3))
    plan = ReviewPlan(SEMANTIC_MAP, "corpus", 0, items, {"model": "m", "k": 10, "queries": 10, "hits": 6})
    given = {
        "ann": {0: 1, 1: 4, 2: 0, 3: 0, 4: 1, 5: 3},  # q0 found at its second image, q1 not
        "bo": {0: 0, 1: 0, 2: 3},  # q0 not found; q1 not begun, so it does not count
        "cy": {0: 5, 1: 0, 2: 0, 3: 5, 4: 0},  # q0 found; q1 is not rated whole, so it does not count though found
        "di": {0: 5},  # nothing rated whole
    }
    found = judged_recall(plan, given)
    assert found["labels"] == 60
    assert found["reviewers"] == pytest.approx({"ann": 80, "bo": 60, "cy": 100})
    assert found["mean"] == pytest.approx(80)
    assert found["misses"] == 2 and found["misses_judged"] == {"ann": 2, "bo": 1, "cy": 1, "di": 0}
    assert judged_recall(plan, {})["mean"] is None
    rows = agreement_rows({"items": 6, "reviewers": {}, "rated_twice": 0, "alpha": {}, "recall": found})
    assert ("R@10 by cy, from 1 of 2 misses, rated whole", "100.0") in rows
    assert ("R@10 by di, from 0 of 2 misses, rated whole", "–") in rows


PLAN = ReviewPlan(INFORMATION, "corpus", 3, tuple(Item(f"i{k}", f"i{k + 1}#0") for k in range(20)))


@pytest.fixture
def ratings(tmp_path: Path) -> ReviewRatings:
    write_plan(tmp_path, PLAN)
    return ReviewRatings.open(tmp_path)


def test_a_review_goes_on_where_it_stopped(ratings: ReviewRatings) -> None:
    order = PLAN.order("ann")
    for score, item in enumerate(order[:3]):
        ratings.rate("ann", item, score)
    again = ReviewRatings.open(ratings.folder)
    assert again.of("ann") == {order[0]: 0, order[1]: 1, order[2]: 2} and again.following("ann") == order[3]
    assert again.following("bo") == PLAN.order("bo")[0], "another reviewer has rated nothing"
    for item in order:
        again.rate("ann", item, 5)
    assert again.following("ann") is None and set(again.of("ann").values()) == {5}, "a later rating replaces one"
    for item, score in ((0, 6), (0, -1), (20, 3), (-1, 3)):
        with pytest.raises(InputError, match=f"rating {score} of item {item} -> rate 0 to 5, one of 20"):
            again.rate("di", item, score)
    assert set(again.all()) == {"ann"}


def test_two_tabs_write_at_once(ratings: ReviewRatings) -> None:
    tabs = [ReviewRatings.open(ratings.folder) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda k: tabs[k % 8].rate("ann", k % 20, k % 6), range(160)))
    assert sorted(ratings.of("ann")) == list(range(20))
    lines = next(ratings.folder.glob("ratings-*.jsonl")).read_bytes().splitlines()
    assert len(lines) == 160 and all(line.startswith(b"{") and line.endswith(b"}") for line in lines)


def test_a_line_cut_short_by_a_crash_costs_that_click_alone(ratings: ReviewRatings) -> None:
    ratings.rate("ann", 4, 2)
    ratings.rate("ann", 5, 3)
    path = next(ratings.folder.glob("ratings-*.jsonl"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert ratings.of("ann") in ({4: 2}, {4: 2, 5: 3})
        ratings.rate("ann", 6, 1)
        assert {4: 2, 6: 1}.items() <= ratings.of("ann").items()


@pytest.mark.parametrize(
    "line", [b"garbage", b"[1]", b'{"plan": "x", "item": 1, "score": 1, "reviewer": "ann"}', b"{}"]
)
def test_what_is_no_rating_is_named_by_its_row(ratings: ReviewRatings, line: bytes) -> None:
    ratings.rate("ann", 4, 2)
    path = next(ratings.folder.glob("ratings-*.jsonl"))
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InputError, match="row 2"):
        ratings.of("ann")


def test_ratings_that_a_copied_or_joined_file_would_hide_are_refused(ratings: ReviewRatings) -> None:
    ratings.rate("ann", 4, 2)
    path = next(ratings.folder.glob("ratings-*.jsonl"))
    joined = path.read_bytes() + path.read_bytes().replace(b"ann", b"bo")
    for lines, said in ((path.read_bytes(), "'ann', who has another file"), (joined, "row 2: .*another .*reviewer")):
        (ratings.folder / "ratings-copy.jsonl").write_bytes(lines)
        with pytest.raises(InputError, match=said):
            ratings.all()


@pytest.mark.parametrize("name", ["../../etc/passwd", "ünï çødé", "a/b", "<script>", ".", "CON"])
def test_any_visible_name_has_a_file_of_its_own_in_the_folder(ratings: ReviewRatings, name: str) -> None:
    ratings.rate(name, 1, 1)
    ratings.rate(f"  {name} ", 2, 1)
    assert ratings.all() == {name: {1: 1, 2: 1}}
    assert {path.parent for path in ratings.folder.rglob("*")} == {ratings.folder}
    for none in ("", "  ", "x" * 65, "a\x00b", "\u202eevil"):
        with pytest.raises(InputError, match="no such name for a reviewer"):
            ratings.rate(none, 1, 1)
