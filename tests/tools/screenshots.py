"""Pictures of the report and of the explorer as a reader sees them: light, dark and on a phone. `make screenshots`.

python -m tests.tools.screenshots --report report.html --dataset data/dataset --out docs/screenshots
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page

from tests.tools.browser import chromium

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
VIEWS = {"light": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}
QUERY = "two dogs play with a red ball"
LONGEST = 900  # pixels of a section that are shown
SECTIONS = ("regions", "distributions", "agreement", "runs", "map", "examples", "alignments")


@contextmanager
def opened(browser: Browser, address: str, view: str, ready: str) -> Iterator[Page]:
    """A page in a view, when the element `ready` is there."""
    size, scheme = VIEWS[view]
    page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector(ready, state="attached", timeout=60_000)
    yield page
    page.close()


def of_report(browser: Browser, report: Path, out: Path) -> Iterator[Path]:
    """The head of the page in every view, and sections of it."""
    for view in VIEWS:
        with opened(browser, report.resolve().as_uri(), view, "html[data-drawn]") as page:
            page.screenshot(path=out / f"report-{view}.png")
            yield out / f"report-{view}.png"
            for name in SECTIONS if view == "light" else ():
                if page.locator(f"#{name}").count():
                    yield _section(page, name, out / f"report-{name}.png")


def of_coco(browser: Browser, report: Path, out: Path) -> Iterator[Path]:
    """Agreement with people, of a report on MS-COCO's 5K test captions."""
    with opened(browser, report.resolve().as_uri(), "light", "html[data-drawn]") as page:
        yield _section(page, "agreement", out / "report-coco-agreement.png")


def _section(page: Page, name: str, path: Path) -> Path:
    section = page.locator(f"#{name}")
    section.evaluate("(one) => { one.open = true; }")  # its charts are drawn then
    page.wait_for_function(
        "(one) => one.querySelectorAll('.vega:not(:has(svg))').length === 0", arg=section.element_handle()
    )
    box: Any = section.bounding_box()
    page.screenshot(path=path, full_page=True, clip={**box, "height": min(box["height"], LONGEST)})
    return path


def of_explorer(browser: Browser, dataset: Path, out: Path) -> Iterator[Path]:
    """The explorer's pages: a caption typed and answered, disagreements, a pair to rate."""
    from capgrade.explorer.start import ExplorerFolders, open_explorer
    from tests.tools.browser import running

    explorer = open_explorer(ExplorerFolders(dataset=dataset))
    with TemporaryDirectory() as reviews, running(explorer, Path(reviews)) as address:
        pages = {"explorer": (f"/?q={QUERY}", VIEWS), "disagreements": ("/disagreements", ("light",)),
                 "review": ("/review", ("light", "phone"))}  # fmt: skip
        for name, (path, views) in pages.items():
            for view in views:
                with opened(browser, address + path, view, "main") as page:
                    if name == "review":
                        page.get_by_label("Your name").fill(view)
                        page.get_by_role("button", name="Start").click()
                        page.locator("#cg-rated").wait_for()
                    page.screenshot(path=out / f"{name}-{view}.png")
                    yield out / f"{name}-{view}.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, help="what capgrade report wrote")
    parser.add_argument("--coco", type=Path, help="a report on MS-COCO's 5K test captions and their judgements")
    parser.add_argument("--dataset", type=Path, help="what capgrade publish wrote")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for path in of_report(browser, options.report, options.out) if options.report else ():
            print(path)
        for path in of_coco(browser, options.coco, options.out) if options.coco else ():
            print(path)
        for path in of_explorer(browser, options.dataset, options.out) if options.dataset else ():
            print(path)


if __name__ == "__main__":
    main()
