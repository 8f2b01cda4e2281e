"""Pictures of report, audit and explorer as a reader sees them: light, dark and on a phone. `make
screenshots`.

python -m tests.tools.screenshots --data data --out docs/screenshots
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page

from tests.tools.browser import chromium, running

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
VIEWS = {"light": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}
QUERY = "two dogs play with a red ball"
LONGEST = 900  # pixels of a section that are shown
DRAWN = "html[data-drawn]"


@contextmanager
def opened(browser: Browser, address: str, view: str, ready: str) -> Iterator[Page]:
    """A page in a view, when the element `ready` is there."""
    size, scheme = VIEWS[view]
    page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector(ready, state="attached", timeout=60_000)
    yield page
    page.close()


def of_page(browser: Browser, file: Path, name: str, out: Path) -> None:
    """The head of a report or an audit in every view."""
    for view in VIEWS:
        with opened(browser, file.resolve().as_uri(), view, DRAWN) as page:
            page.screenshot(path=out / f"{name}-{view}.png")


def of_section(browser: Browser, report: Path, name: str, path: Path) -> None:
    """A section of a report, opened."""
    with opened(browser, report.resolve().as_uri(), "light", DRAWN) as page:
        section = page.locator(f"#{name}")
        section.evaluate("(one) => { one.open = true; }")  # its charts are drawn then
        page.wait_for_function(
            "(one) => one.querySelectorAll('.vega:not(:has(svg))').length === 0",
            arg=section.element_handle(),
        )
        box: Any = section.bounding_box()
        page.screenshot(
            path=path, full_page=True, clip={**box, "height": min(box["height"], LONGEST)}
        )


def of_explorer(browser: Browser, data: Path, out: Path) -> None:
    """The explorer's pages: a caption typed and answered, disagreements, a pair to rate."""
    from capgrade.apps.explorer.start import ExplorerFolders, open_explorer

    runs, indexes = ([data / folder / "scenes_sam"] for folder in ("runs", "embeddings"))
    captions = {"captions": data / "captions", "split": "test", "relevance": data / "relevance"}
    explorer = open_explorer(ExplorerFolders(**captions, runs=runs, indexes=indexes))  # type: ignore[arg-type]
    with TemporaryDirectory() as reviews, running(explorer, Path(reviews)) as address:
        pages = {
            "explorer": (f"/?q={QUERY}", VIEWS),
            "disagreements": ("/disagreements", ("light",)),
            "review": ("/review", ("light", "phone")),
        }
        for name, (path, views) in pages.items():
            for view in views:
                with opened(browser, address + path, view, "main") as page:
                    if name == "review":
                        page.get_by_label("Your name").fill(view)
                        page.get_by_role("button", name="Start").click()
                        page.locator("#cg-rated").wait_for()
                    page.wait_for_load_state("networkidle")  # pictures
                    page.screenshot(path=out / f"{name}-{view}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="what make repro wrote, and in it audit.html"
    )
    parser.add_argument(
        "--coco", type=Path, help="a report on MS-COCO's 5K test captions and their judgements"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name in ("report", "audit"):
            of_page(browser, options.data / f"{name}.html", name, options.out)
        of_section(browser, options.data / "report.html", "runs", options.out / "report-runs.png")
        if options.coco:
            of_section(
                browser, options.coco, "agreement", options.out / "report-coco-agreement.png"
            )
        of_explorer(browser, options.data, options.out)


if __name__ == "__main__":
    main()
