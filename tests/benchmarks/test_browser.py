"""The browser of the tests: what goes wrong in a page is heard."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from tests.tools.browser import open_file


def opened(browser: Browser, folder: Path, body: str) -> list[str]:
    page = browser.new_page(offline=True)
    path = folder / "page.html"
    path.write_text(f"<!doctype html><title>t</title><meta charset=utf-8>{body}", encoding="utf-8")
    heard = open_file(page, path)
    page.wait_for_timeout(100)
    page.close()
    return heard


def test_errors_and_the_network_are_heard(browser: Browser, tmp_path: Path) -> None:
    assert opened(browser, tmp_path, "<h1>quiet</h1><script>console.log('fine')</script>") == []
    assert "wrong" in opened(browser, tmp_path, "<script>console.error('wrong')</script>")[0]
    assert "thrown" in opened(browser, tmp_path, "<script>throw new Error('thrown')</script>")[0]
    assert "http://192.0.2.1/a.png" in opened(browser, tmp_path, "<img src='http://192.0.2.1/a.png'>")
