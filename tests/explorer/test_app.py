"""The page in a real browser: typed and answered, clicked, rated, exported; hostile captions stay text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from capgrade.explorer.answers import Explorer
from capgrade.explorer.corpus import LabelledCorpus, sampled
from capgrade.explorer.pictures import Thumbnails
from capgrade.explorer.ratings import ReviewRatings
from capgrade.explorer.reviews import Review
from capgrade.explorer.voices import measure_voices
from capgrade.pipelines.agree import Judgements, read_judgements
from capgrade.pipelines.measures import choose
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets
from tests.tools.browser import listen, running

HOSTILE = [
    "<script>window.hacked = 1</script> a dog",
    '"><img src=x onerror="window.hacked = 1"> a dog',
    "${window.hacked = 1} `${window.hacked = 1}` a dog",
    "{{value}} {{#each value}}x{{/each}} {{{value}}} a dog",
    "</ul></section><style>* { display: none !important }</style> a dog",
    "' onmouseover='window.hacked = 1' a dog &amp; \\u003cb\\u003e",
]
NAMES = ("cider", "rouge_l")


def hostile_captions() -> Captions:
    captions = make_captions([HOSTILE, *random_sets(15, seed=2, least=2)])
    ids = captions.table["image_id"].to_pylist()
    renamed = ["<b onclick=alert(1)>" if i == "i0" else i for i in ids]
    at = captions.table.schema.get_field_index("image_id")
    table = captions.table.set_column(at, captions.table.schema.field("image_id"), [renamed])
    return Captions(table, "test", "lower_split", "digest")


def pictures(folder: Path, captions: Captions) -> Path:
    """A picture of every second image."""
    folder.mkdir()
    for k, image_id in enumerate(captions.image_ids):
        if k % 2:
            Image.new("RGB", (40, 30), (k * 9, 80, 120)).save(folder / f"{image_id}.png")
    return folder


@dataclass
class World:
    explorer: Explorer
    review: Review
    address: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, captions = tmp_path_factory.mktemp("explorer"), hostile_captions()
    scorers = {name: measure.fit(captions).score for name, measure in choose(NAMES, MeasuresParams()).items()}
    corpus = LabelledCorpus(captions, sampled(captions, scorers), MeasuresParams(), folder)
    random = np.random.default_rng(0)
    image, caption = random.integers(captions.n_images, size=30), random.integers(captions.n_captions, size=30)
    people = Judgements(image, caption, random.integers(6, size=30).astype(float))
    voices = measure_voices(captions, NAMES, MeasuresParams())
    explorer = Explorer(corpus, voices, (), Thumbnails(captions, pictures(folder / "pictures", captions)), people)
    review = Review(explorer, folder / "reviews")
    with running(explorer, review) as address:
        yield World(explorer, review, address)


@pytest.fixture
def page(browser: Browser, world: World) -> Iterator[Page]:
    """A page at the explorer; at the end nothing may have gone wrong in it, nor been asked of another machine."""
    opened = browser.new_page()
    heard = listen(opened)
    opened.goto(world.address)
    opened.wait_for_selector("body[data-ready]", timeout=60_000)
    yield opened
    opened.wait_for_timeout(100)
    assert heard == []
    assert opened.evaluate("window.hacked") is None
    opened.close()


def asked(page: Page) -> str:
    return page.locator("#cg-answers header").inner_text()


def type_in(page: Page, text: str) -> None:
    page.locator("#cg-query textarea, #cg-query input").fill(text)
    expect(page.locator("#cg-answers header")).to_contain_text(text, timeout=20_000)


def test_a_typed_caption_is_answered_by_every_measure(page: Page, world: World) -> None:
    type_in(page, "the red dog sits on a bike")
    for k, name in enumerate(NAMES):
        column = page.locator(f'#cg-answers [data-voice="{name}"]')
        expect(column.locator(".cg-hit")).to_have_count(8)
        best = world.explorer.of_text("the red dog sits on a bike")[k].hits[0]
        expect(column.locator(".cg-hit").first.locator(".cg-score")).to_have_text(f"{best.score:.3f}")
        expect(column.locator(".cg-hit button").first).to_have_attribute("data-pick", f"image:{best.number}")


def test_hits_lead_on(page: Page) -> None:
    type_in(page, "the red dog sits on a bike")
    page.locator("#cg-answers [data-pick^=image]").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Captions for image")
    page.locator("#cg-answers [data-pick^=caption]").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Images for")
    expect(page.locator("#cg-answers .cg-own").first).to_be_visible()


def test_pictures_are_shown_where_there_are_some(page: Page) -> None:
    page.locator("#cg-id input, #cg-id textarea").fill("i1")
    page.locator("#cg-id input, #cg-id textarea").press("Enter")
    picture = page.locator("#cg-answers .cg-query img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") == 40
    page.locator("#cg-id input, #cg-id textarea").fill("no such id")
    page.locator("#cg-id input, #cg-id textarea").press("Enter")
    expect(page.locator("#cg-answers .cg-problem")).to_contain_text("no caption or image")


@pytest.mark.parametrize("row", range(len(HOSTILE)))
def test_hostile_captions_are_text(page: Page, row: int) -> None:
    page.locator("#cg-id input, #cg-id textarea").fill(f"i0#{row}")
    page.locator("#cg-id input, #cg-id textarea").press("Enter")
    expect(page.locator("#cg-answers header")).to_contain_text(HOSTILE[row].strip())
    assert (
        page.locator("#cg-answers script, #cg-answers style, #cg-answers [onerror], #cg-answers [onmouseover]").count()
        == 0
    )
    expect(page.locator("#cg-query")).to_be_visible()
    type_in(page, HOSTILE[row])


def test_disagreements(page: Page) -> None:
    page.get_by_role("tab", name="Disagreements").click()
    expect(page.locator("#cg-findings .cg-card").first).to_be_visible()
    first = page.locator("#cg-findings .cg-note").first.inner_text()
    page.get_by_label("Labels and people disagree").check()
    expect(page.locator("#cg-findings .cg-note").first).to_contain_text("people")
    assert page.locator("#cg-findings .cg-note").first.inner_text() != first
    page.locator("#cg-findings [data-pick^=image]").first.click()
    expect(page.locator("#cg-answers header")).to_contain_text("Captions for image")


def test_a_review_is_saved_resumed_and_exported(page: Page, world: World, tmp_path: Path) -> None:
    def begin(name: str) -> None:
        page.get_by_role("tab", name="Review").click()
        page.locator("#cg-reviewer input, #cg-reviewer textarea").fill(name)
        page.locator("#cg-start").click()

    begin("ann")
    order = world.review.ratings.plan.order("ann")
    for k, score in enumerate((4, 0, 2)):
        expect(page.locator("#cg-pair")).to_contain_text(f"{k} of ")
        caption = world.explorer.corpus.captions.texts[world.review.pair(order[k])[1]]
        expect(page.locator("#cg-rated")).to_have_text(" ".join(caption.split()))
        assert page.locator("#cg-pair .cg-score, #cg-pair .cg-own, #cg-pair .cg-table").count() == 0, "blind"
        page.locator(f"#cg-rate-{score}").click()
        expect(page.locator("#cg-pair")).to_contain_text(f"{k + 1} of ")
        assert ReviewRatings.open(world.review.folder).of("ann")[order[k]] == score, "on the disk at every click"
    page.reload()
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    begin("ann")
    expect(page.locator("#cg-pair")).to_contain_text("3 of ")
    page.locator("#cg-back").click()
    expect(page.locator("#cg-pair")).to_contain_text("this one 2")
    page.locator("#cg-rate-5").click()
    expect(page.locator("#cg-pair")).to_contain_text("3 of ")
    begin("bo")
    expect(page.locator("#cg-pair")).to_contain_text("0 of ")
    page.get_by_text("Agreement and export").click()
    page.locator("#cg-refresh").click()
    expect(page.locator("#cg-agreement")).to_contain_text("Krippendorff")
    with page.expect_download() as download:
        page.locator("#cg-export").click()
    download.value.save_as(tmp_path / "judgements.csv")
    found = read_judgements(tmp_path / "judgements.csv", world.explorer.corpus.captions)
    assert sorted(found.score.tolist()) == [0, 4, 5]


def test_other_host_names_and_images_are_refused(world: World) -> None:
    import urllib.error
    import urllib.request

    def status(path: str, **headers: str) -> int:
        try:
            return urllib.request.urlopen(urllib.request.Request(world.address + path, headers=headers)).status
        except urllib.error.HTTPError as error:
            return error.code

    assert status("/") == 200
    assert status("/", Host="evil.example") == 400
    found = [status(f"/picture/{name}") for name in ("1", "2", "999", "..%2f1", "x")]
    assert found[:3] == [200, 404, 404]
    assert all(code in (404, 422) for code in found[3:])
