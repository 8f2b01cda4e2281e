"""Ratings survive whatever happens after the click."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capgrade.apps.explorer.plans import write_plan
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import INFORMATION, Item, ReviewPlan

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
    assert (
        again.ratings_of("ann") == {order[0]: 0, order[1]: 1, order[2]: 2}
        and again.next_item("ann") == order[3]
    )
    assert again.next_item("bo") == PLAN.order("bo")[0], "another reviewer has rated nothing"
    for item in order:
        again.rate("ann", item, 5)
    assert again.next_item("ann") is None and set(again.ratings_of("ann").values()) == {5}, (
        "a later rating replaces one"
    )
    for item, score in ((0, 6), (0, -1), (20, 3), (-1, 3)):
        with pytest.raises(
            InputError, match=f"rating {score} of item {item} -> rate 0 to 5, one of 20"
        ):
            again.rate("di", item, score)
    assert set(again.read_all()) == {"ann"}


def test_two_tabs_write_at_once(ratings: ReviewRatings) -> None:
    tabs = [ReviewRatings.open(ratings.folder) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda k: tabs[k % 8].rate("ann", k % 20, k % 6), range(160)))
    assert sorted(ratings.ratings_of("ann")) == list(range(20))
    lines = next(ratings.folder.glob("ratings-*.jsonl")).read_bytes().splitlines()
    assert len(lines) == 160 and all(
        line.startswith(b"{") and line.endswith(b"}") for line in lines
    )


def test_a_line_cut_short_by_a_crash_costs_that_click_alone(ratings: ReviewRatings) -> None:
    ratings.rate("ann", 4, 2)
    ratings.rate("ann", 5, 3)
    path = next(ratings.folder.glob("ratings-*.jsonl"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert ratings.ratings_of("ann") in ({4: 2}, {4: 2, 5: 3})
        ratings.rate("ann", 6, 1)
        assert {4: 2, 6: 1}.items() <= ratings.ratings_of("ann").items()


@pytest.mark.parametrize(
    "line", [b"garbage", b"[1]", b'{"plan": "x", "item": 1, "score": 1, "reviewer": "ann"}', b"{}"]
)
def test_what_is_no_rating_is_named_by_its_row(ratings: ReviewRatings, line: bytes) -> None:
    ratings.rate("ann", 4, 2)
    path = next(ratings.folder.glob("ratings-*.jsonl"))
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InputError, match="row 2"):
        ratings.ratings_of("ann")


def test_ratings_that_a_copied_or_joined_file_would_hide_are_refused(
    ratings: ReviewRatings,
) -> None:
    ratings.rate("ann", 4, 2)
    path = next(ratings.folder.glob("ratings-*.jsonl"))
    joined = path.read_bytes() + path.read_bytes().replace(b"ann", b"bo")
    for lines, said in (
        (path.read_bytes(), "'ann', who has another file"),
        (joined, "row 2: .*another .*reviewer"),
    ):
        (ratings.folder / "ratings-copy.jsonl").write_bytes(lines)
        with pytest.raises(InputError, match=said):
            ratings.read_all()


@pytest.mark.parametrize("name", ["../../etc/passwd", "ünï çødé", "a/b", "<script>", ".", "CON"])
def test_any_visible_name_has_a_file_of_its_own_in_the_folder(
    ratings: ReviewRatings, name: str
) -> None:
    ratings.rate(name, 1, 1)
    ratings.rate(f"  {name} ", 2, 1)
    assert ratings.read_all() == {name: {1: 1, 2: 1}}
    assert {path.parent for path in ratings.folder.rglob("*")} == {ratings.folder}
    for none in ("", "  ", "x" * 65, "a\x00b", "\u202eevil"):
        with pytest.raises(InputError, match="no such name for a reviewer"):
            ratings.rate(none, 1, 1)
