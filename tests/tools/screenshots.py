"""The pictures of docs/gallery.md: report, audit, regrade, explorer and review of what `make repro`
wrote, each below 150 kB. `make screenshots`.

python -m tests.tools.screenshots --data data --out docs/screenshots
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page

from tests.tools.browser import chromium, running

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
QUERY = "two dogs play with a red ball"
LONGEST = 900  # pixels of a section that are shown
DRAWN = "html[data-drawn]"


@contextmanager
def opened(
    browser: Browser, address: str, ready: str, size: dict[str, int] = DESKTOP
) -> Iterator[Page]:
    """A page, when the element `ready` is there."""
    page = browser.new_page(viewport=size)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector(ready, state="attached", timeout=60_000)
    yield page
    page.close()


def save(png: bytes, path: Path) -> None:
    """In 256 colours, which takes a third of the room."""
    picture = Image.open(BytesIO(png)).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def of_page(browser: Browser, file: Path, path: Path) -> None:
    """The head of a page that opens from disk."""
    with opened(browser, file.resolve().as_uri(), DRAWN) as page:
        save(page.screenshot(), path)


def of_section(browser: Browser, report: Path, name: str, path: Path) -> None:
    """A section of a report, opened."""
    with opened(browser, report.resolve().as_uri(), DRAWN) as page:
        section = page.locator(f"#{name}")
        section.evaluate("(one) => { one.open = true; }")  # its charts are drawn then
        page.wait_for_function(
            "(one) => one.querySelectorAll('.vega:not(:has(svg))').length === 0",
            arg=section.element_handle(),
        )
        box: Any = section.bounding_box()
        clip: Any = {**box, "height": min(box["height"], LONGEST)}
        save(page.screenshot(full_page=True, clip=clip), path)


def of_regrade(browser: Browser, data: Path, path: Path) -> None:
    """What two runs' numbers are worth, where the judge answers with the scenes' truth."""
    from capgrade.apps.audit.regrade import regrade
    from capgrade.schemas.captions import read_captions
    from capgrade.schemas.relevance import read_relevance
    from tests.apps.judging.stand_in import Chat, served

    captions = read_captions(data / "captions", "test")
    truth = read_relevance(data / "captions" / "truth-test.arrow").rows(
        np.arange(captions.n_images)
    )
    rows = {text: row for row, text in enumerate(captions.texts)}

    def answer(body: dict[str, Any]) -> str:
        """By the lines of the prompt `captions`: the image's captions, then the one to judge."""
        said = body["messages"][-1]["content"]
        lines = [line.removeprefix("- ") for line in said.splitlines()]
        found = [rows[line] for line in lines if line in rows]
        return str(round(5 * float(truth[captions.owner[found[0]], found[-1]])))

    runs = {run: data / "embeddings" / run for run in ("scenes_sam", "scenes_bcls")}
    with TemporaryDirectory() as out, served(Chat(answer)) as chat:
        regrade(
            data / "captions",
            {run: folder / "similarity.npy" for run, folder in runs.items()},
            Path(out),
            split="test",
            model="the truth",
            endpoint=chat.address,
            budget=2000,
        )
        of_page(browser, Path(out) / "regraded.html", path)


def of_explorer(browser: Browser, data: Path, out: Path) -> None:
    """The explorer's pages: a caption typed and answered, and on a phone a pair to rate."""
    from capgrade.apps.explorer.start import ExplorerFolders, open_explorer

    runs, indexes = ([data / folder / "scenes_sam"] for folder in ("runs", "embeddings"))
    captions = {"captions": data / "captions", "split": "test", "relevance": data / "relevance"}
    explorer = open_explorer(ExplorerFolders(**captions, runs=runs, indexes=indexes))  # type: ignore[arg-type]
    with TemporaryDirectory() as reviews, running(explorer, Path(reviews)) as address:
        with opened(browser, f"{address}/?q={QUERY}", "main") as page:
            page.wait_for_load_state("networkidle")  # pictures
            save(page.screenshot(), out / "explorer.png")
        with opened(browser, f"{address}/review", "main", PHONE) as page:
            page.get_by_label("Your name").fill("ann")
            page.get_by_role("button", name="Start").click()
            page.locator("#cg-rated").wait_for()
            page.wait_for_load_state("networkidle")
            save(page.screenshot(), out / "review.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="what make repro wrote, and in it audit.html"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name in ("report", "audit"):
            of_page(browser, options.data / f"{name}.html", options.out / f"{name}.png")
        of_section(browser, options.data / "report.html", "runs", options.out / "report-runs.png")
        of_regrade(browser, options.data, options.out / "regrade.png")
        of_explorer(browser, options.data, options.out)


if __name__ == "__main__":
    main()
