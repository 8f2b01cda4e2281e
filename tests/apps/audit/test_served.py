"""An audit's page that the explorer serves: its pairs are accepted and rejected there, into the
ratings of the explorer's review."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from capgrade.apps.audit import audit
from capgrade.apps.explorer.answers import Explorer
from capgrade.apps.explorer.app import AuditPage
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.apps.explorer.start import ExplorerFolders, open_explorer
from tests.conftest import call, refusal
from tests.tools.browser import listen, opened_file, problems_of, running


@pytest.fixture(scope="module")
def page_file(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("served") / "a.html"
    given: dict[str, Any] = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    audit(world / "captions", out, relevance=world / "relevance", **given)
    return out


@pytest.fixture(scope="module")
def explorer(world: Path) -> Explorer:
    return open_explorer(
        ExplorerFolders(captions=world / "captions", relevance=world / "relevance")
    )


@pytest.fixture
def address(explorer: Explorer, page_file: Path, tmp_path: Path) -> Iterator[str]:
    listed = AuditPage(page_file, page_file.with_name("a-lists") / "likely.csv")
    with running(explorer, tmp_path / "reviews", audit=listed) as address:
        yield address


def begin(page: Page, name: str) -> None:
    form = page.locator("#likely .cg-reviewer")
    form.get_by_label("Your name").fill(name)
    form.get_by_text("Start or go on").click()


def opened(browser: Browser, address: str) -> tuple[Page, list[str]]:
    page = browser.new_page(base_url=address)
    page.set_default_timeout(10_000)
    heard = listen(page)
    page.goto("/audit")
    return page, heard


def test_pairs_are_accepted_and_rejected_on_the_page(
    browser: Browser, address: str, page_file: Path, tmp_path: Path
) -> None:
    """As ratings 5 and 0, which the explorer's review goes on with; another who has no key may not
    rate under the name."""
    page, heard = opened(browser, address)
    cards = page.locator("#likely li[data-p]")
    assert page.locator(".cg-judge:visible").count() == 0
    assert not (tmp_path / "reviews").exists(), "nothing is written before somebody reviews"
    begin(page, "ann")
    expect(cards.first.locator(".cg-judge")).to_be_visible()
    said = page.locator("#likely .cg-reviewer [role=alert]")
    for card, word in ((0, "Accept"), (1, "Reject"), (2, "Reject"), (2, "Accept")):
        cards.nth(card).get_by_text(word, exact=True).click()
        expect(cards.nth(card).locator("[aria-pressed=true]")).to_have_text(word)
    expect(said).to_contain_text("3 of ")
    assert "\n".join(problems_of(page)) == ""
    ratings = ReviewRatings.open(tmp_path / "reviews")
    with page_file.with_name("a-lists").joinpath("likely.csv").open(newline="") as file:
        rows = [(row["image_id"], row["caption_id"]) for row in csv.DictReader(file)]
    assert [(one.image_id, one.caption_id) for one in ratings.plan.items] == rows
    wanted = {
        tuple(cards.nth(k).get_attribute(f"data-{side}") for side in ("image", "caption")): score
        for k, score in enumerate((5, 0, 5))
    }
    rated = {rows[item]: score for item, score in ratings.ratings_of("ann").items()}
    assert rated == wanted and len(rated) == 3

    page.reload()
    begin(page, "ann")  # its browser has the key
    expect(cards.nth(1).locator("[aria-pressed=true]")).to_have_text("Reject")
    expect(page.locator("#likely .cg-judge [aria-pressed=true]")).to_have_count(3)
    page.goto("/review")
    page.get_by_text("Start or go on").click()
    expect(page.locator("#cg-review")).to_contain_text(f"3 of {len(rows)} rated")
    page.get_by_role("link", name="Audit").click()
    expect(page).to_have_title("Audit")
    assert heard == []
    page.context.close()

    other, _ = opened(browser, address)
    begin(other, "ann")
    expect(other.locator("#likely .cg-reviewer [role=alert]")).to_contain_text("'ann' is taken")
    assert other.locator(".cg-judge:visible").count() == 0
    other.context.close()
    assert call("explore", "export", tmp_path / "reviews", "--out", tmp_path / "people.csv") == 0
    assert len((tmp_path / "people.csv").read_text().splitlines()) == 4


def test_what_was_not_saved_is_said(
    browser: Browser, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page, _ = opened(browser, address)
    begin(page, "bo")
    accept = page.locator("#likely li[data-p]").first.get_by_text("Accept", exact=True)
    expect(accept).to_be_visible()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    accept.click()
    said = page.locator("#likely .cg-reviewer [role=alert]")
    expect(said).to_have_text(re.compile("NOT SAVED.*No space left on device"))
    assert page.locator("[aria-pressed=true]").count() == 0
    page.close()


def test_a_page_that_is_a_file_asks_nobody(browser: Browser, page_file: Path) -> None:
    page, heard = opened_file(browser, page_file)
    assert page.locator(":is(.cg-reviewer, .cg-judge):visible").count() == 0 and heard == []
    page.close()


def test_a_page_without_its_lists(world: Path, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>")
    explore = ("explore", "--captions", world / "captions", "--relevance", world / "relevance")
    assert "a-lists" in refusal(*explore, "--audit", tmp_path / "a.html")
    assert "does not end in .html" in refusal(*explore, "--audit", tmp_path / "a.txt")
