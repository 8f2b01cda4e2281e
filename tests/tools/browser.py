"""Headless Chromium, as Debian packages it, for tests and pictures of pages: it opens files and
reaches no network."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Browser, Page, sync_playwright

if TYPE_CHECKING:
    from capgrade.apps.explorer.answers import Explorer
    from capgrade.apps.explorer.app import AuditPage

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


def executable() -> str | None:
    """The browser of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with an empty profile of its own, which goes when the block ends."""
    path = executable()
    if path is None:
        raise FileNotFoundError("no chromium on this machine: apt-get install chromium")
    as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # the sandbox refuses root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*QUIET, *as_root])
        try:
            yield browser
        finally:
            browser.close()


def listen(page: Page) -> list[str]:
    """Fills, while the page lives, with its console errors, uncaught exceptions and requests for
    anything but files."""
    heard: list[str] = []
    page.on(
        "console",
        lambda message: (
            heard.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: heard.append(str(error)))
    local = ("file:", "data:", "blob:", "http://127.0.0.1", "http://localhost")
    page.on(
        "request",
        lambda request: None if request.url.startswith(local) else heard.append(request.url),
    )
    return heard


@contextmanager
def running(
    explorer: Explorer,
    reviews: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    audit: AuditPage | None = None,
) -> Iterator[str]:
    """The explorer in a thread of this process: yields its address, stops when the block ends."""
    from capgrade.apps.explorer.app import open_server

    server, bound, address = open_server(explorer, reviews, host, port, audit)
    with bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join(timeout=10)


def opened_file(browser: Browser, path: Path, **view: Any) -> tuple[Page, list[str]]:
    """A report or an audit, its open charts drawn; and what `listen` hears."""
    page = browser.new_page(offline=True, **view)
    heard = listen(page)
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=30_000)
    return page, heard


def problems_of(page: Page) -> list[str]:
    """What of a page sticks out of it, which texts, or labels of a chart, overlap or are cut off,
    which are hard to read (contrast below 4.5 to 1)."""
    return list(page.evaluate(Path(__file__).with_name("problems.js").read_text(encoding="utf-8")))
