"""What the running server answers to strangers: other pages, programs, other reviewers."""

import html
import io
import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from capgrade.apps.explorer.app import make_app
from capgrade.apps.explorer.gate import LARGEST_BODY
from capgrade.apps.explorer.ratings import admit
from capgrade.schemas.errors import InputError
from tests.apps.explorer.conftest import World
from tests.tools.browser import running

PICTURE = {"picture": ("x.png", b"no picture")}


def client(world: World, host: str = "127.0.0.1") -> TestClient:
    """A server that stands at any address, and a program that asks it."""
    app = make_app(world.explorer, world.reviews, host)
    return TestClient(app, base_url="http://127.0.0.1:7860", raise_server_exceptions=False)


def of_name(host: str, **more: str) -> dict[str, str]:
    """What a browser sends that has opened the page under this name."""
    return {
        "Host": f"{host}:7860",
        "Origin": f"http://{host}:7860",
        "Sec-Fetch-Site": "same-origin",
        **more,
    }


def test_only_pages_are_served(world: World) -> None:
    ask, before = client(world), sorted(Path().iterdir())
    for path in (
        "/docs",
        "/openapi.json",
        "/redoc",
        "/picture",
        "/style.css/x",
        "/templates/page.html.j2",
        "/app.py",
    ):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            assert ask.request(method, path, content=b"").status_code in (404, 405), (method, path)
    pictures = {"1": 200, "2": 404, "999": 404, "-1": 404, "x": 422, "..%2f1": 404}
    assert {name: ask.get(f"/picture/{name}").status_code for name in pictures} == pictures
    assert "script-src 'self'" in ask.get("/").headers["content-security-policy"]
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(("method", "address", "status", "said"), [
    ("GET", "/?caption=abc", 422, "caption 'abc': not a whole number"),
    ("GET", "/?caption=", 422, "caption: not a whole number"),
    ("GET", "/?caption=1.5&image=<b>", 422, "caption '1.5': not a whole number; image '<b>': not a"),
    ("GET", "/?image=" + "9" * 5000, 422, "999…': a number of too many digits"),
    ("GET", "/?caption=99999999999999999999", 200, "no such item"),
    ("GET", "/?caption=1&voice=nobody", 200, "nobody is named 'nobody'"),
    ("GET", "/disagreements?kind=nothing", 200, "no list 'nothing' -> choose one of those here"),
    ("GET", "/disagreements?high=nobody", 200, "choose two different"),
    ("GET", "/picture/abc", 422, "number 'abc': not a whole number"),
    ("GET", "/nothing", 404, "there is no page /nothing"),
    ("DELETE", "/review", 405, "/review does not take DELETE"),
    ("POST", "/review", 422, "item 'x': not a whole number; score 'y': not a whole number; back 'z'"),
])  # fmt: skip
def test_what_is_refused_is_a_page_of_the_explorer(
    world: World, method: str, address: str, status: int, said: str
) -> None:
    """Every parameter of every route: HTML with the links of the explorer, no JSON."""
    form = {"reviewer": "ann", "item": "x", "score": "y", "back": "z"} if method == "POST" else None
    answer = client(world).request(method, address, data=form)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    problem = html.unescape(answer.text.partition('role="alert">')[2].partition("</p>")[0])
    assert said in problem and len(problem) < 400
    assert '<a href="/disagreements"' in answer.text and "<b>" not in answer.text


def test_an_upload_without_a_picture_is_refused_by_a_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capgrade.apps.explorer.answers.Explorer.looks_at_pictures", True)
    ask = client(world)
    for given, status in (({}, 422), ({"data": {"picture": "words"}}, 200)):
        answer = ask.post("/picture", **given)
        assert answer.status_code == status and 'role="alert">' in answer.text
    assert "picture: nothing was given" in ask.post("/picture").text


def test_the_handlers_of_the_process_stay_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """absl's handler, for one, closes stderr with it."""
    closed = []
    handler = logging.StreamHandler()
    monkeypatch.setattr(handler, "close", lambda: closed.append(handler))
    with running(world.explorer, world.reviews):
        pass
    assert closed == []


def test_a_picture_is_taken_where_something_looks_at_it_and_bodies_are_bounded(
    world: World, monkeypatch
) -> None:
    assert client(world).post("/picture", files=PICTURE).status_code == 404
    monkeypatch.setattr("capgrade.apps.explorer.answers.Explorer.looks_at_pictures", True)
    ask, found = client(world), world.explorer.answer_image(1)
    assert "a picture needs a trained model" in ask.post("/picture", files=PICTURE).text
    monkeypatch.setattr("capgrade.apps.explorer.answers.Explorer.answer_upload", lambda *_: found)
    assert "uploaded picture: not a readable picture" in ask.post("/picture", files=PICTURE).text
    Image.new("RGB", (9, 9)).save(data := io.BytesIO(), "PNG")
    answer = ask.post("/picture", files={"picture": ("x.png", data.getvalue())}).text
    assert "Captions for your picture" in answer and answer.count("/?caption=") == 8 * len(found)
    for path in ("/picture", "/review"):
        of_a_form = {"content-type": "application/x-www-form-urlencoded"}
        announced = {**of_a_form, "content-length": str(LARGEST_BODY + 1)}
        assert ask.post(path, content=b"", headers=announced).status_code == 413
        chunks = (b"x" * 2**20 for _ in range(LARGEST_BODY // 2**20 + 1))  # of no known length
        assert ask.post(path, content=chunks, headers=of_a_form).status_code == 413
        assert ask.post(path, content=b"reviewer=x", headers=of_a_form).status_code != 413


def test_a_page_of_another_origin_is_refused(world: World) -> None:
    ask, form = client(world), {"reviewer": "eve"}
    for origin in (
        "https://evil.example",
        "null",
        "http://localhost:1",
        "http://127.0.0.1",
        "http://[",
    ):
        assert ask.post("/review", data=form, headers={"Origin": origin}).status_code == 403, origin
        assert ask.get("/judgements.csv", headers={"Origin": origin}).status_code == 403, origin
    assert not any(
        "eve" in path.read_text(encoding="utf-8") for path in world.reviews.glob("reviewer-*")
    )
    assert ask.post("/review", data=form).status_code == 200
    assert ask.get("/", headers=of_name("127.0.0.1")).status_code == 200


@pytest.mark.parametrize(("host", "served", "refused"), [
    ("127.0.0.1", ["localhost", "127.0.0.1", "[::1]"], ["evil.example", "192.168.1.5"]),
    ("192.168.1.5", ["localhost", "192.168.1.5"], ["192.168.1.6", "0.0.0.0"]),
    ("box.lan", ["box.lan", "BOX.lan"], ["192.168.1.5", "lan", "x.box.lan"]),
    ("0.0.0.0", ["192.168.1.5", "[fe80::1]"], ["box.lan", "1.2.3.4.evil.example", "user-space.hf.space"]),
    ("::", ["192.168.1.5", "[fe80::1]"], ["box.lan"]),
])  # fmt: skip
def test_the_names_of_a_server(
    host: str, served: list[str], refused: list[str], world: World
) -> None:
    """DNS rebinding: a page elsewhere has its own name point at this machine, and then is of one
    origin with it."""
    ask = client(world, host)
    for status, names in ((200, served), (400, [*refused, "[", ""])):
        for name in names:
            assert ask.get("/", headers=of_name(name)).status_code == status, name
    forwarded = {"Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"}
    assert ask.get("/", headers=forwarded).status_code == 403


def test_a_space_is_served_under_its_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "user-space.hf.space")
    ask = client(world, "0.0.0.0")
    space = {"Host": "user-space.hf.space", "Origin": "https://user-space.hf.space"}
    assert ask.get("/", headers=space).status_code == 200
    behind = {**space, "Host": "10.0.0.3:7860", "X-Forwarded-Host": "user-space.hf.space"}
    assert ask.get("/", headers=behind).status_code == 200
    assert ask.get("/", headers=of_name("evil.example")).status_code == 400


def test_a_name_is_its_first_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, key = admit(tmp_path, " ann  lee ", "")
    assert (name, len(key)) == ("ann lee", 12)
    assert admit(tmp_path, "ann lee", f" {key} ") == (name, key)
    for wrong in ("", "x", key[:-1]):
        with pytest.raises(InputError, match="the name 'ann lee' is taken -> give its key"):
            admit(tmp_path, "ann lee", wrong)
    (path,) = tmp_path.iterdir()
    assert key not in path.read_text(encoding="utf-8"), "what is kept does not tell the key"
    seen = iter([False])  # another tab takes the name between the look and the taking
    monkeypatch.setattr(Path, "exists", lambda _: next(seen))
    with pytest.raises(InputError, match="is taken"):
        admit(tmp_path, "ann lee", "")
    monkeypatch.undo()
    monkeypatch.setattr("capgrade.apps.explorer.ratings.MOST", 1)
    with pytest.raises(InputError, match="1 names have been taken"):
        admit(tmp_path, "b", "")
    assert admit(tmp_path, "ann lee", key) == ("ann lee", key)


def test_a_program_without_the_key_rates_for_nobody(world: World) -> None:
    ask, rating = client(world), {"reviewer": "flo", "item": "0", "score": "3"}
    _, key = admit(world.ratings.folder, "flo", "")
    for wrong in ("", "x"):
        assert (
            "the name &#39;flo&#39; is taken"
            in ask.post("/review", data={**rating, "key": wrong}).text
        )
    assert world.ratings.ratings_of("flo") == {}
    assert "NOT SAVED" in ask.post("/review", data={**rating, "key": key, "item": "999"}).text
    assert "1 of " in ask.post("/review", data={**rating, "key": key}).text
    assert world.ratings.ratings_of("flo") == {0: 3}


def test_a_reviewer_who_never_stops(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgrade.apps.explorer.ratings.LARGEST", 200)
    with pytest.raises(InputError, match="too many ratings of one reviewer"):
        for _ in range(9):
            world.ratings.rate("never stops", 0, 1)
