"""The pages in a real browser: typed and answered, clicked, rated by keys, exported; hostile
captions stay text."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from capgrade.agreement.judgement_files import read_judgements
from tests.apps.explorer.conftest import HOSTILE, NAMES, World
from tests.tools.browser import listen, problems_of

TYPED_NOTE = "the red dog sits on a bike"


@pytest.fixture
def page(browser: Browser, world: World) -> Iterator[Page]:
    """A page at the explorer; at the end nothing may have gone wrong in it, nor been asked of
    another machine."""
    opened = browser.new_page(base_url=world.address)
    opened.set_default_timeout(10_000)
    heard = listen(opened)
    opened.goto("/")
    yield opened
    opened.wait_for_timeout(100)
    assert heard == []
    assert opened.evaluate("window.hacked") is None
    opened.close()


def test_a_first_page_answers_a_caption_of_the_corpus_and_shuffle_another(
    page: Page, world: World
) -> None:
    seen = set()
    for _ in range(8):
        caption = world.captions.caption_ids.index(
            page.locator("#cg-answers header h2 code").inner_text()
        )
        expect(page.locator("#cg-query")).to_have_value(
            " ".join(world.captions.texts[caption].split())
        )
        owner = world.captions.image_ids[world.captions.owner[caption]]
        expect(page.locator("#cg-answers .cg-written")).to_contain_text(owner)
        seen.add(caption)
        page.get_by_text("Shuffle").click()
    assert len(seen) > 2


def test_a_caption_is_answered_by_every_measure_while_it_is_typed(page: Page, world: World) -> None:
    page.locator("#cg-query").press_sequentially(TYPED_NOTE)
    page.locator("#cg-query").fill(TYPED_NOTE)
    expect(page.locator("#cg-answers header")).to_contain_text(f"“{TYPED_NOTE}”")
    for name, answer in zip(
        NAMES, world.explorer.answer_text(TYPED_NOTE, names=NAMES), strict=True
    ):
        hits = page.locator(f'#cg-answers [data-voice="{name}"] ol > li')
        expect(hits).to_have_count(8)
        assert hits.locator(".cg-score").all_inner_texts() == [
            f"{hit.score:.3f}" for hit in answer.hits
        ]
        assert hits.locator("code").all_inner_texts() == [
            world.captions.image_ids[hit.number] for hit in answer.hits
        ]
        ties = ["=" in place for place in hits.locator(".cg-place").all_inner_texts()]
        assert ties == [hit.tied for hit in answer.hits]
        links = [link.get_attribute("href") for link in hits.locator("a").all()]
        assert links == [f"/?image={hit.number}" for hit in answer.hits]
        widths = [float(bar.get_attribute("width") or "") for bar in hits.locator("rect").all()]
        highest = answer.hits[0].score
        assert widths == pytest.approx([100 * h.score / highest for h in answer.hits], abs=0.06)
    page.locator("#cg-answers ol > li a").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Captions for image")
    page.locator("#cg-answers ol > li a").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Images for")
    page.go_back()
    expect(page.locator("#cg-answers header")).to_contain_text("Captions for image")


def test_two_that_are_chosen_stand_side_by_side(page: Page, world: World) -> None:
    """And stay chosen for the next question; a phone has them side by side too."""
    page.goto("/?caption=3")
    expect(page.locator(".cg-column")).to_have_count(3)
    page.get_by_label("rouge_l").uncheck()
    page.get_by_role("button", name="Show these").click()
    expect(page.locator(".cg-column h3")).to_have_text(
        [re.compile("^cider"), re.compile("^another")]
    )
    page.set_viewport_size({"width": 390, "height": 844})
    one, other = (column.bounding_box() for column in page.locator(".cg-column").all())
    assert one["y"] == other["y"] and one["x"] < other["x"]  # type: ignore[index]
    hits = world.explorer.answer_caption(3, names=["cider", "another"])[0].hits
    said = page.locator('[data-voice="cider"] li small').all_inner_texts()
    assert said == [f"rank {hit.other_rank} by another" for hit in hits]
    page.locator("#cg-answers ol > li a").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Captions for image")
    expect(page.locator(".cg-column")).to_have_count(2)
    page.locator("#cg-query").fill(TYPED_NOTE)
    expect(page.locator("#cg-answers header")).to_contain_text(f"“{TYPED_NOTE}”")
    expect(page.locator(".cg-column")).to_have_count(2)
    page.get_by_text("Shuffle").click()
    expect(page.locator(".cg-column")).to_have_count(2)
    page.goto("/?caption=3&voice=nobody")
    expect(page.locator(".cg-problem")).to_contain_text("nobody is named 'nobody'")


def test_cards_show_both_images_with_their_ids(page: Page, world: World) -> None:
    """Of a caption the image that it was written for, beside each image that is found; the same of
    captions found for an image, and of disagreements."""
    ids, captions = world.captions.image_ids, world.captions
    page.goto(f"/?caption={captions.rows_of(3)[0]}")
    expect(page.locator(".cg-written")).to_contain_text(f"written for image {ids[3]}")
    expect(page.locator('header .cg-written img[alt="image i3"]')).to_be_visible()
    page.goto("/?image=3")
    answer = world.explorer.answer_image(3)[0]
    cards = page.locator(f'[data-voice="{answer.voice}"] ol > li').all()
    for hit, card in zip(answer.hits, cards, strict=True):
        whose = f"written for {ids[captions.owner[hit.number]]}"
        assert ([] if hit.own else [whose]) == card.locator(".cg-named").all_inner_texts()
    page.goto("/disagreements")
    for pair, card in zip(
        world.explorer.disagreements("measures", "cider", "rouge_l", 12),
        page.locator("#cg-pairs article").all(),
        strict=True,
    ):
        named = [f"for image {ids[pair.image]}"]
        if not pair.original:
            named.append(f"written for {ids[captions.owner[pair.caption]]}")
        assert card.locator(".cg-named").all_inner_texts() == named


def test_an_id_is_answered_with_the_picture_of_the_image(page: Page) -> None:
    page.get_by_label("A caption, or the id of a caption or an image").fill("i1")
    page.get_by_role("button", name="Search").click()
    picture = page.locator("#cg-answers header img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") == 40
    for address in ("/?image=999", "/?caption=-1"):
        page.goto(address)
        expect(page.locator(".cg-problem")).to_have_text("no such item")
    page.goto("/?q=" + "a" * 2001)
    expect(page.locator(".cg-problem")).to_contain_text("a caption of 2001 characters")


@pytest.mark.parametrize("row", range(len(HOSTILE)))
def test_hostile_captions_are_text(page: Page, row: int) -> None:
    for address in (f"/?caption={row}", "/?image=0", "/disagreements"):
        page.goto(address)
        found = page.locator("main :is(script, style, b, [onerror], [onmouseover], [onclick])")
        assert found.count() == 0, address
    page.goto(f"/?q=i0%23{row}")
    header = page.locator("#cg-answers header")
    expect(header).to_contain_text(HOSTILE[row])
    page.locator("#cg-query").fill(HOSTILE[row] + " ")
    expect(header.locator("code")).to_have_count(0)
    expect(header).to_contain_text(HOSTILE[row])


def test_the_form_for_a_picture_is_within_the_page_of_a_phone(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capgrade.apps.explorer.answers.Explorer.looks_at_pictures", True)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/?caption=3")
    main = page.locator("main").bounding_box()
    for one in page.locator(".cg-ask :is(input:not([type=hidden]), .cg-button)").all():
        box = one.bounding_box()
        assert box["x"] + box["width"] <= main["x"] + main["width"]  # type: ignore[index]


def test_disagreements_say_what_they_are(page: Page, world: World) -> None:
    page.get_by_text("Disagreements").click()
    first = world.explorer.disagreements("measures", "cider", "rouge_l", 12)[0]
    card = page.locator("#cg-pairs article").first
    expect(card.locator("> h3:first-child span")).to_have_text(list(first.statements))
    expect(card.locator("dd").first).to_have_text(f"{first.values['cider']:.3f}")
    page.get_by_label("Ranks it high").select_option("rouge_l")
    page.get_by_label("Ranks it low").select_option("rouge_l")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".cg-problem")).to_contain_text("choose two different")
    page.get_by_text("Labels and people disagree").click()
    expect(card.locator("h3")).to_contain_text("judgements: among the highest")
    card.locator(".cg-image").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Captions for image")


def press(page: Page, key: str) -> None:
    """A key that sends a form. The answer has the same address, and its first words may be there
    before its buttons: it is whole once it has loaded."""
    with page.expect_event("load"):
        page.keyboard.press(key)


def begin(page: Page, name: str, key: str = "") -> None:
    page.goto("/review")
    page.keyboard.type(name)  # no mouse
    page.keyboard.press("Tab")
    page.keyboard.type(key)
    press(page, "Enter")


def test_a_review_by_keys_is_saved_resumed_and_exported(
    page: Page, browser: Browser, world: World, tmp_path: Path
) -> None:
    """Another browser needs the key."""
    begin(page, " ann ")
    expect(page.locator("#cg-review")).to_contain_text("0 of ")
    items, order = world.ratings.plan.items, world.ratings.plan.order("ann")
    for k, score in enumerate((4, 0, 2)):
        expect(page.locator("#cg-review")).to_contain_text(f"{k} of {len(items)} rated")
        caption = world.captions.texts[world.captions.caption_ids.index(items[order[k]].caption_id)]
        expect(page.locator("#cg-rated")).to_have_text(" ".join(caption.split()))
        assert page.locator("main :is(.cg-score, .cg-own, .cg-table)").count() == 0, "blind"
        press(page, str(score))
        expect(page.locator("#cg-review")).to_contain_text(f"{k + 1} of ")
        assert world.ratings.ratings_of("ann")[order[k]] == score, "on the disk at every key"
    key = page.locator("#cg-key").inner_text()
    other = browser.new_context(base_url=world.address).new_page()
    begin(other, "ann")
    expect(other.locator(".cg-problem")).to_contain_text("the name 'ann' is taken")
    assert other.locator("#cg-review").count() == 0
    begin(other, "ann", key)
    expect(other.locator("#cg-review")).to_contain_text("3 of ")
    other.context.close()
    begin(page, "ann")  # its browser has kept the key
    expect(page.locator("#cg-review")).to_contain_text("3 of ")
    page.get_by_text("Back").click()
    expect(page.locator("#cg-review")).to_contain_text("this one 2")
    expect(page.locator("[aria-pressed=true]")).to_contain_text("some of it")
    page.get_by_text("exactly").click()
    expect(page.locator("#cg-review")).to_contain_text("3 of ")
    page.get_by_text("Agreement and export").click()
    expect(page.locator("#cg-agreement")).to_contain_text("Krippendorff")
    with page.expect_download() as download:
        page.locator("#cg-export").click()
    download.value.save_as(tmp_path / "judgements.csv")
    assert sorted(read_judgements(tmp_path / "judgements.csv", world.captions).score.tolist()) == [
        0,
        4,
        5,
    ]


def test_the_end_of_a_review_and_a_full_disk_are_said(
    page: Page, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    *most, last = world.ratings.plan.order("di")
    for item in most:
        world.ratings.rate("di", item, 1)
    begin(page, "di")
    before = page.locator("#cg-rated").inner_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    press(page, "3")
    expect(page.locator(".cg-problem")).to_contain_text("No space left on device")
    expect(page.locator("#cg-rated")).to_have_text(before)
    monkeypatch.undo()
    press(page, "3")
    expect(page.locator("main")).to_contain_text("That was the last one: thank you, di.")
    assert world.ratings.ratings_of("di")[last] == 3
    page.get_by_text("Back").click()
    expect(page.locator("#cg-rated")).to_have_text(before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_pages_fit_and_can_be_read(
    size: tuple[int, int], scheme: str, browser: Browser, world: World
) -> None:
    page = browser.new_page(
        base_url=world.address,
        color_scheme=scheme,
        viewport={"width": size[0], "height": size[1]},  # type: ignore[arg-type]
    )
    two = "/?caption=3&voice=cider&voice=another"
    for address in (
        "/?q=a+dog",
        two,
        "/?image=1",
        "/disagreements",
        "/review",
        "/agreement",
        "rate",
    ):
        if address == "rate":
            begin(page, f"{size[0]} {scheme}")
            press(page, "2")
            while not page.locator(".cg-shown img").count():  # every second image has a picture
                press(page, "2")
            *buttons, back = [box.bounding_box() for box in page.locator("#cg-review button").all()]
            assert (
                len({(round(box["width"]), round(box["height"])) for box in buttons}) == 1
                and len(buttons) == 6
            )
            assert back["y"] + back["height"] <= size[1], "all above the fold"
            picture = page.locator(".cg-shown").bounding_box()
            done = page.locator("progress").bounding_box()
            beside = (
                picture["x"] + picture["width"] <= buttons[0]["x"]
                and picture["y"] < buttons[0]["y"]
            )
            assert beside == (size[0] > 640) and done["y"] < picture["y"] < back["y"]
        else:
            page.goto(address)
        assert "\n".join(problems_of(page)) == "", address
    page.close()
