"""What the running server answers to strangers: other pages, programs, other reviewers."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, expect

from capgrade.explorer.gate import LARGEST_QUESTION, LARGEST_UPLOAD
from capgrade.explorer.ratings import MOST, admitted
from capgrade.explorer.server import make_app
from capgrade.schemas.errors import InputError
from tests.explorer.test_app import World, world  # noqa: F401  # the same explorer
from tests.tools.browser import running

FILE = {"files": ("x.sh", b"#!/bin/sh\n")}


@pytest.fixture
def client(world: World) -> httpx.Client:  # noqa: F811
    return httpx.Client(base_url=world.address)


def endpoints(client: httpx.Client) -> list[dict]:
    return client.get("/config").json()["dependencies"]


def ask(client: httpx.Client, name: str, data: list, **headers: str) -> httpx.Response:
    number = next(one["id"] for one in endpoints(client) if one["api_name"] == name)
    body = {"data": data, "fn_index": number, "session_hash": "somebody"}
    return client.post(f"/gradio_api/run/{name}", json=body, headers=headers)


def test_every_endpoint_is_named_and_private(client: httpx.Client) -> None:
    found = [one for one in endpoints(client) if one["backend_fn"]]
    assert len(found) >= 15
    assert {one["api_visibility"] for one in found} == {"private"}
    assert [one["api_name"] for one in found if "lambda" in str(one["api_name"])] == []


@pytest.mark.parametrize("path", [
    "info", "openapi.json", "call/search_text", "api/search_text", "file=/etc/passwd", "proxy=http://a.org", "runs",
    "component_server", "process_recording", "vibe-code", "deep_link", "stream/1", "upload", "login", "app_id", "user",
])  # fmt: skip
def test_what_the_page_does_not_use_is_closed(path: str, client: httpx.Client) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        assert client.request(method, f"/gradio_api/{path}").status_code == 404, method
    assert client.get("/monitoring").status_code == client.get("/docs").status_code == 404


def test_nothing_can_be_uploaded_where_nothing_looks_at_pictures(client: httpx.Client, tmp_path: Path) -> None:
    assert client.post("/gradio_api/upload", files=FILE).status_code == 404


def test_the_handlers_of_the_process_stay_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """absl's handler, for one, closes stderr with it."""
    closed = []
    handler = logging.StreamHandler()
    monkeypatch.setattr(handler, "close", lambda: closed.append(handler))
    with running(world.explorer, world.review):
        pass
    assert closed == []


@pytest.fixture
def looking(world: World, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    """A server with a model and a detector, which is never asked."""
    monkeypatch.setattr("capgrade.explorer.answers.Explorer.looks_at_pictures", True)
    with running(world.explorer, world.review) as address:
        yield httpx.Client(base_url=address)


def test_an_uploaded_picture_is_gone_when_it_has_been_answered(looking: httpx.Client) -> None:
    sent = looking.post("/gradio_api/upload", files={"files": ("x.png", b"no picture")})
    assert sent.status_code == 200
    path = Path(sent.json()[0])
    assert path.is_file()
    file = {"path": str(path), "orig_name": "x.png", "meta": {"_type": "gradio.FileData"}}
    answer = ask(looking, "search_picture", [file])
    assert "cg-problem" in answer.text and not path.exists()
    other = {**file, "path": str(Path(__file__))}
    assert ask(looking, "search_picture", [other]).status_code == 500 and Path(__file__).exists()


def test_bodies_are_bounded(client: httpx.Client, looking: httpx.Client) -> None:
    def status(at: httpx.Client, path: str, length: str | None) -> int:
        """By hand: no client sends a length that it does not keep, nor none."""
        place = urlsplit(str(at.base_url))
        said = f"Content-Length: {length}\r\n" if length else "Transfer-Encoding: chunked\r\n"
        with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\n{said}\r\n".encode())
            return int(connection.recv(64).split()[1])

    assert status(client, "/gradio_api/run/search_text", str(LARGEST_QUESTION + 1)) == 413
    assert status(client, "/gradio_api/queue/join", None) == 411
    assert status(looking, "/gradio_api/upload", str(LARGEST_UPLOAD + 1)) == 413


@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"}, {"Origin": "http://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
], ids=str)  # fmt: skip
def test_a_page_of_another_origin_is_refused(headers: dict[str, str], client: httpx.Client) -> None:
    assert ask(client, "search_text", ["a dog"]).status_code == 200
    assert ask(client, "search_text", ["a dog"], **headers).status_code == 403
    if "Origin" in headers:
        assert client.get("/judgements.csv", headers=headers).status_code == 403
    own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert ask(client, "search_text", ["a dog"], **own).status_code == 200


def asked_by(app: FastAPI, **headers: str) -> int:
    """The status of a question to a server that stands at any address."""

    async def status() -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7860") as client:
            config = (await client.get("/config")).json()["dependencies"]
            number = next(one["id"] for one in config if one["api_name"] == "search_text")
            body = {"data": ["a dog"], "fn_index": number, "session_hash": "somebody"}
            return (await client.post("/gradio_api/run/search_text", json=body, headers=headers)).status_code

    with ThreadPoolExecutor(1) as thread:  # a browser of other tests has a loop in this one
        return thread.submit(asyncio.run, status()).result()


def of_name(host: str, **more: str) -> dict[str, str]:
    """What a browser sends that has opened the page under this name."""
    return {"Host": f"{host}:7860", "Origin": f"http://{host}:7860", "Sec-Fetch-Site": "same-origin", **more}


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.1.5", "0.0.0.0", "::", "box.lan"])
def test_a_name_that_points_here_is_not_a_name_of_the_server(host: str, world: World) -> None:  # noqa: F811
    """DNS rebinding: a page elsewhere has its own name point at this machine, and then is of one origin with it."""
    app = make_app(world.explorer, world.review, host)
    assert asked_by(app, **of_name("evil.example")) == 400
    forwarded = {"Host": "127.0.0.1:7860", "Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"}
    assert asked_by(app, **forwarded) == 403
    for name in ("localhost", "127.0.0.1", "[::1]"):
        assert asked_by(app, **of_name(name)) == 200


@pytest.mark.parametrize(("host", "served", "refused"), [
    ("192.168.1.5", ["192.168.1.5"], ["192.168.1.6", "0.0.0.0"]),
    ("box.lan", ["box.lan", "BOX.lan"], ["192.168.1.5", "lan", "x.box.lan"]),
    ("0.0.0.0", ["192.168.1.5", "[fe80::1]"], ["box.lan", "1.2.3.4.evil.example", "user-space.hf.space"]),
    ("::", ["192.168.1.5", "[fe80::1]"], ["box.lan"]),
])  # fmt: skip
def test_the_names_of_a_server(host: str, served: list[str], refused: list[str], world: World) -> None:  # noqa: F811
    app = make_app(world.explorer, world.review, host)
    assert [asked_by(app, **of_name(name)) for name in served] == [200] * len(served)
    assert [asked_by(app, **of_name(name)) for name in refused] == [400] * len(refused)


def test_a_space_is_served_under_its_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("SPACE_HOST", "user-space.hf.space")
    app = make_app(world.explorer, world.review, "0.0.0.0")
    space = {"Host": "user-space.hf.space", "Origin": "https://user-space.hf.space"}
    assert asked_by(app, **space) == 200
    assert asked_by(app, **{**space, "Host": "10.0.0.3:7860", "X-Forwarded-Host": "user-space.hf.space"}) == 200
    assert asked_by(app, **of_name("evil.example")) == 400


def test_another_page_in_the_same_browser_changes_nothing(browser: Browser, world: World) -> None:  # noqa: F811
    """A form and a fetch from a page elsewhere, as a visitor's browser sends them."""
    opened = browser.new_page()
    opened.route("https://evil.example/", lambda route: route.fulfill(body="<h1>hello</h1>", content_type="text/html"))
    opened.goto("https://evil.example/")
    body = json.dumps({"data": ["mallory", "", {}], "fn_index": 8, "session_hash": "x"})
    opened.evaluate(
        """([address, body]) => fetch(address + '/gradio_api/queue/join', {method: 'POST', mode: 'no-cors', body,
        headers: {'Content-Type': 'text/plain'}}).catch(error => String(error))""",
        [world.address, body],
    )
    assert not any("mallory" in path.read_text(encoding="utf-8") for path in world.review.folder.glob("reviewer-*"))
    opened.close()


def test_a_name_is_its_first_owners(tmp_path: Path) -> None:
    name, key = admitted(tmp_path, " ann  lee ", "")
    assert (name, len(key)) == ("ann lee", 12)
    assert admitted(tmp_path, "ann lee", f" {key} ") == (name, key)
    for wrong in ("", "x", key[:-1]):
        with pytest.raises(InputError, match="the name 'ann lee' is taken -> give its key"):
            admitted(tmp_path, "ann lee", wrong)
    assert key not in next(tmp_path.iterdir()).read_text(encoding="utf-8"), "what is kept does not tell the key"


def test_names_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST == 1000
    monkeypatch.setattr("capgrade.explorer.ratings.MOST", 2)
    _, key = admitted(tmp_path, "a", "")
    admitted(tmp_path, "b", "")
    with pytest.raises(InputError, match="2 names have been taken"):
        admitted(tmp_path, "c", "")
    assert admitted(tmp_path, "a", key) == ("a", key)


def test_a_reviewer_who_never_stops(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("capgrade.explorer.ratings.LARGEST", 200)
    with pytest.raises(InputError, match="too many ratings of one reviewer"):
        for _ in range(9):
            world.review.ratings.rate("never stops", 0, 1)
    next(p for p in world.review.folder.glob("ratings-*") if "never stops" in p.read_text(encoding="utf-8")).unlink()


def test_somebody_elses_name_is_refused_in_another_browser(browser: Browser, world: World) -> None:  # noqa: F811
    def begin(page, key: str = "") -> None:
        page.goto(world.address)
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        page.get_by_role("tab", name="Review").click()
        page.locator("#cg-reviewer input, #cg-reviewer textarea").fill("cy")
        page.locator("#cg-key input, #cg-key textarea").fill(key)
        page.locator("#cg-start").click()

    first, second = browser.new_context().new_page(), browser.new_context().new_page()
    begin(first)
    expect(first.locator("#cg-pair")).to_contain_text("cy's key, to go on in another browser: ")
    key = first.locator("#cg-pair .cg-note").first.inner_text().split()[-1]
    first.locator("#cg-rate-3").click()
    expect(first.locator("#cg-pair")).to_contain_text("1 of ")
    begin(second)
    expect(second.locator("#cg-pair .cg-problem")).to_contain_text("the name 'cy' is taken")
    expect(second.locator("#cg-rate-3")).to_be_hidden()
    begin(second, key)
    expect(second.locator("#cg-pair")).to_contain_text("1 of ")
    begin(first)  # its browser has kept the key
    expect(first.locator("#cg-pair")).to_contain_text("1 of ")
    for page in (first, second):
        page.context.close()


def test_a_program_rates_for_nobody(client: httpx.Client, world: World) -> None:  # noqa: F811
    """The pair that is rated is the server's own memory of what a session was shown, not what is sent."""
    answer = ask(client, "review_rate_3", [["ann", 0]])
    assert "give your name first" in answer.text
    assert "ann" not in replace(world.review.ratings).all()
