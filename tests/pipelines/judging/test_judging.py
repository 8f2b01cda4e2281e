"""A judge at an endpoint: what it is asked, faults, limits, restarts, and what the token never shows up in."""

import base64
import csv
import io
import json
import math
import re
import signal
import subprocess
import time
import traceback
from datetime import date, datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from PIL import Image

from capgrade.pipelines.judging import endpoint as at_endpoint
from capgrade.pipelines.judging import round as at_round
from capgrade.pipelines.judging.endpoint import Endpoint, LostError, seconds_of
from capgrade.pipelines.judging.question import CAPTIONS_PROMPT, PICTURES_PROMPT, Prompt, load_prompt, read_pairs
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from tests.conftest import call, caption_table, printed, refusal, write_captions_folder
from tests.pipelines.judging.stand_in import Chat, Fault, cut, part, says, served, status
from tests.tools.commands import CAPGRADE
from tests.tools.served import Handler

SETS = [["a dog runs", "the dog is fast"], ["a cat sits", "a lazy cat"], ["a dog runs", "the dog is fast"]]
N = 18  # all pairs; two images are alike, so that some questions come twice or more
ASKED = 10
TOKEN = "sk-very-secret-0123456789"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Captions, and a cache of their own."""
    write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(at_endpoint.TOKEN, TOKEN)
    monkeypatch.setattr(at_round, "FIRST_WAIT", 0.01)
    return tmp_path


def text_of(body: dict[str, Any]) -> str:
    content = next(said["content"] for said in body["messages"] if said["role"] == "user")
    return content if isinstance(content, str) else content[0]["text"]


def rated(body: dict[str, Any]) -> str:
    """5 where the animal of the caption is that of the others, else 1."""
    shown, caption = text_of(body).split("How well")
    return "5" if ("dog" in shown) == ("dog" in caption) else "1"


def line(here: Path, chat: Chat, *more: str, **sets: object) -> list[str]:
    """The command, whose options stand as below where `more` has none of that name."""
    given = {"--captions": here / "captions", "--pairs": "all", "--endpoint": chat.address, "--model": "m"}
    given["--out"] = here / "out.csv"
    own = [word for name, value in given.items() if name not in more for word in (name, str(value))]
    judge = [word for key, value in sets.items() for word in ("--set", f"judge.{key}={value}")]
    return ["judge", *own, *judge, *more]


def run(here: Path, chat: Chat, *more: str, **sets: object) -> dict[str, Any]:
    return printed(*line(here, chat, *more, **sets))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_question_is_asked_once_and_kept(here: Path) -> None:
    with served(Chat(rated)) as chat:
        found = run(here, chat, price_in=1, price_out=10)
        assert (found["pairs"], found["answered"], found["left"], found["requests"]) == (N, N, 0, ASKED)
        assert found["tokens"] == {"sent": 100 * ASKED, "answered": 10 * ASKED}
        assert found["cost"] == pytest.approx(ASKED * (100 * 1 + 10 * 10) / 1e6)
        first = (here / "out.csv").read_bytes()
        again = run(here, chat, parallel=1)
        assert (again["requests"], again["answered"]) == (0, N)
        assert (here / "out.csv").read_bytes() == first
        assert len(chat.asked) == ASKED
    table = rows(here / "out.csv")
    order = [(i, f"i{j}#{k}") for i in ("i0", "i1", "i2") for j in range(3) for k in range(2)]
    assert [(row["image_id"], row["caption_id"]) for row in table] == order
    for row in table:
        alike = (row["image_id"] == "i1") == row["caption_id"].startswith("i1")
        assert (row["score"], row["rater"]) == ("5" if alike else "1", "m")
    asked = map(text_of, chat.asked)
    own = next(text for text in asked if "that image?\na lazy cat\n" in text and "sits" in text)
    assert own.count("a lazy cat") == 1, "a caption is not held against itself"
    assert all(b["model"] == "m" and b["temperature"] == 0 for b in chat.asked)


def test_another_model_or_prompt_is_another_judge(here: Path) -> None:
    yes = here / "yes.yaml"
    yes.write_text("answer: yes or no\nuser: 'Captions: {captions} How well: {caption}'\n")
    with served(Chat(lambda body: "Yes." if "cat" in text_of(body) else '```json\n{"answer": "no"}\n```')) as chat:
        found = run(here, chat, prompt=yes)
        assert found["requests"] == ASKED and {row["score"] for row in rows(here / "out.csv")} == {"0", "1"}
        chat.score = rated
        assert run(here, chat)["requests"] == ASKED
        other = ["--set", f"judge.prompt={yes}", "--model", "m2", "--set", "judge.tries=1"]
        assert "is no table of capgrade judge by m2" in refusal(*line(here, chat, *other))
        assert run(here, chat, *other, "--out", str(here / "m2.csv"))["unanswered"] == N
        named = ["--model", "@cf/meta/llama", "--out", str(here / "m3.csv")]  # as a formula begins
        assert [run(here, chat, *named)["requests"] for _ in range(2)] == [ASKED, 0]
        assert {row["rater"] for row in rows(here / "m3.csv")} == {"'@cf/meta/llama"}, "text in a spreadsheet"


def test_faults_are_tried_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_round, "FIRST_WAIT", 0.1)
    faults = [status(429, wait="1"), status(500), cut, says("12"), says("four"), says(""), says("5 \ud83d")]
    with served(Chat(rated, faults=list(faults))) as chat:
        found = run(here, chat, parallel=1, tries=12)
        assert found["answered"] == N and found["requests"] == ASKED + len(faults)
        assert chat.at[1] - chat.at[0] >= 0.95, "Retry-After is kept to"
        assert chat.at[2] - chat.at[1] >= 0.2 and chat.at[3] - chat.at[2] >= 0.4, "longer each time"
    reminded = [body for body in chat.asked if len(body["messages"]) > 2]
    assert "12" in [m["content"] for b in reminded for m in b["messages"]]
    assert {b["messages"][-1]["content"] for b in reminded} == {"Answer with one number from 0 to 5 and nothing else."}


def test_what_does_not_validate_is_listed_and_asked_again(here: Path) -> None:
    def unsure(body: dict[str, Any]) -> str:
        return "about 4, I think" if "that image?\na cat sits" in text_of(body) else rated(body)

    with served(Chat(unsure)) as chat:
        found = run(here, chat, tries=2)
        assert (found["answered"], found["unanswered"], found["left"]) == (N - 3, 3, 0)
        listed = rows(here / "out-unanswered.csv")
        assert {row["caption_id"] for row in listed} == {"i1#0"}
        assert listed[0]["reason"] == "answered 'about 4, I think'"
        assert "i1#0" not in {row["caption_id"] for row in rows(here / "out.csv")}
        chat.score = rated
        found = run(here, chat)
        assert (found["answered"], found["unanswered"], found["requests"]) == (N, 0, 2)
        assert rows(here / "out-unanswered.csv") == []


def test_a_killed_run_goes_on(here: Path) -> None:
    """Killed while the sixth question is under way: five answers stay, seven questions are asked again or first."""
    held = here / "held"
    held.touch()

    def slow(body: dict[str, Any]) -> str:
        while len(chat.asked) > 5 and held.exists():
            time.sleep(0.01)
        return rated(body)

    with served(Chat(slow)) as chat:
        command = [*CAPGRADE, *line(here, chat, "--set", "judge.parallel=1")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            until = time.monotonic() + 60
            while len(chat.asked) < 6 and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        held.unlink()
        kept = next((here / "cache" / "judge").glob("*.jsonl"))
        assert kept.read_bytes().count(b"\n") == 5 and not (here / "out.csv").exists()
        with kept.open("ab") as file:
            file.write(b'{"key": "cut')  # as a crash leaves it
        assert run(here, chat)["requests"] == ASKED - 5
        first = (here / "out.csv").read_bytes()
        kept.unlink()
        run(here, chat)
        assert (here / "out.csv").read_bytes() == first
        kept.write_text("5\n")
        assert "row 1: not an answer" in refusal(*line(here, chat))


def test_what_is_paid_for_is_kept_when_another_is_refused_or_the_user_stops(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(handler: Handler) -> None:
        time.sleep(0.5)
        says("3")(handler)

    with served(Chat(rated, faults=[slow, status(401)])) as chat:
        assert call(*line(here, chat, "--set", "judge.parallel=2")) == 2 and len(chat.asked) == 2
        with monkeypatch.context() as patch:
            patch.setattr(at_round, "as_completed", Mock(side_effect=KeyboardInterrupt))
            assert call(*line(here, chat, "--set", "judge.parallel=1")) == 130
        assert 2 <= (asked := len(chat.asked)) < 5
        assert run(here, chat)["requests"] == ASKED + 1 - asked


@pytest.mark.parametrize(("limit", "faults", "requests", "answered"), [
    ("0.0009", [], 4, 4),
    ("0.0003", [], 1, 1),  # the first goes alone
    ("0.0009", [None, cut], 4, 3),  # may have cost as much as the dearest
    ("0.0009", [None, status(500)], 5, 4),
])  # fmt: skip
def test_the_limit_of_cost_is_not_passed(
    limit: str, faults: list, requests: int, answered: int, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each request costs 0.0002."""
    prices = ["--set", "judge.price_in=1", "--set", "judge.price_out=10", "--max-cost", limit]
    with served(Chat(rated, faults=faults)) as chat:
        found = run(here, chat, *prices)
        assert len(chat.asked) == found["requests"] == requests and found["tokens"]["sent"] == 100 * answered
        assert found["left"] == N - found["answered"] > 0 and "limit of cost" in found["stopped"]
        assert found["cost"] <= float(limit)
        assert call(*line(here, chat, "--set", "judge.price_in=1", "--max-cost", "0.00001")) == 0
        assert "pairs are left: the limit of cost" in capsys.readouterr().err
        assert run(here, chat)["left"] == 0 and len(chat.asked) == ASKED + requests - answered
        chat.usage = {}
        assert "how many tokens" in refusal(*line(here, chat, *prices, "--model", "m2", "--out", str(here / "m2.csv")))


def test_requests_keep_to_the_rate(here: Path) -> None:
    """The tenth of 1,200 a minute goes 0.45 seconds after the first, whatever the machine does."""
    start = time.monotonic()
    with served(Chat(rated)) as chat:
        run(here, chat, per_minute=1200, parallel=8)
    assert max(chat.at) - start > 0.45


def test_the_token_is_sent_and_nowhere_else(here: Path) -> None:
    """Not even where the endpoint says it: in an answer, in a refusal, in the traceback of a debugging user."""
    with served(Chat(lambda _: f"your key is {TOKEN}")) as chat, pytest.MonkeyPatch.context() as patch:
        assert run(here, chat, tries=1)["unanswered"] == N
        assert "your key is ***" in (here / "out-unanswered.csv").read_text()
        assert chat.tokens == {f"Bearer {TOKEN}"}
        chat.faults = [status(401, f"wrong key {TOKEN}")] * 8
        said = refusal(*line(here, chat))
        assert "401" in said and "***" in said and at_endpoint.TOKEN in said and TOKEN not in said
        patch.setenv("CAPGRADE_DEBUG", "1")
        chat.faults = [status(403, TOKEN)] * 8
        with pytest.raises(InputError) as told:
            call(*line(here, chat))
        said = "".join(traceback.format_exception(told.value))
        assert "Traceback" in said and "403" in said and TOKEN not in said
        patch.setenv(at_endpoint.TOKEN, TOKEN + "\nx")
        patch.delenv("CAPGRADE_DEBUG")
        said = refusal(*line(here, chat))
        assert at_endpoint.TOKEN in said and TOKEN not in said
    files = [path for path in here.rglob("*") if path.is_file()]
    assert files and all(TOKEN.encode() not in path.read_bytes() for path in files)


def test_the_token_is_not_sent_in_the_clear(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without encryption it goes to this machine alone."""
    for place in ("://example.org", "://192.168.1.5:8000", "://localhost.example.org"):
        with pytest.raises(InputError, match="the token would be sent unencrypted -> give an https address, or unset"):
            Endpoint(f"http{place}/v1", "m", 1)
    for place in ("s://example.org", "://127.0.0.1:8000", "://localhost", "://[::1]:8000"):
        assert Endpoint(f"http{place}/v1", "m", 1).client.headers["Authorization"] == f"Bearer {TOKEN}"
    monkeypatch.delenv(at_endpoint.TOKEN)
    assert "Authorization" not in Endpoint("http://192.168.1.5:8000/v1", "m", 1).client.headers


def test_pictures_go_along(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pictures").mkdir()
    for i, colour in enumerate([(250, 0, 0), (0, 250, 0)]):
        Image.new("RGB", (1000, 500), colour).save(here / "pictures" / f"i{i}.png")

    def seen(body: dict[str, Any]) -> str:
        url = body["messages"][1]["content"][1]["image_url"]["url"]
        data = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))
        picture = Image.open(io.BytesIO(data))
        assert picture.size == (512, 256)
        red, green, _ = picture.getpixel((9, 9))  # type: ignore[misc]
        return "4" if ("dog" in text_of(body)) == (red > green) else "0"

    with served(Chat(seen)) as chat:
        found = run(here, chat, "--images", str(here / "pictures"))
    assert (found["answered"], found["unanswered"], found["requests"]) == (12, 6, 8)
    assert {row["reason"] for row in rows(here / "out-unanswered.csv")} == {"no picture of the image"}
    assert all((row["image_id"] == "i1") == (row["caption_id"][:2] == "i1") or row["score"] == "0"
               for row in rows(here / "out.csv"))  # fmt: skip
    assert max(sum(text in text_of(body) for text in SETS[0] + SETS[1]) for body in chat.asked) == 1
    capsys.readouterr()
    (here / "pictures" / "i2.png").write_text("no picture")
    assert call(*line(here, chat, "--images", str(here / "pictures"))) == 0
    assert "no picture of 1 of the 3 images that were asked for; the first is 'i2' (no picture by content)" in (
        capsys.readouterr().err
    )
    assert {row["reason"] for row in rows(here / "out-unanswered.csv")} == {"no picture of the image"}
    (here / "pictures" / "i2.png").write_bytes((here / "pictures" / "i1.png").read_bytes()[:40])
    assert run(here, chat, "--images", str(here / "pictures"))["requests"] == 0
    assert {row["reason"] for row in rows(here / "out-unanswered.csv")} == {"no readable picture of image i2"}


def test_an_image_needs_another_caption(here: Path) -> None:
    write_captions_folder(here / "captions", [caption_table([["a dog"], ["a cat", "a cow"]])])
    with served(Chat(lambda _: "3")) as chat:
        assert run(here, chat)["answered"] == 5
    reason = "the image has no other caption"
    assert rows(here / "out-unanswered.csv") == [{"image_id": "i0", "caption_id": "i0#0", "reason": reason}]


def test_a_dead_endpoint_is_not_asked_for_ever(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_round, "UNANSWERED_QUESTIONS", 3)
    found = run(here, Chat(rated, address="http://127.0.0.1:9/v1"), parallel=1, tries=1)
    assert found["stopped"].startswith("3 questions in a row") and "cannot be reached" in found["stopped"]
    assert found["requests"] == 3 and found["unanswered"] + found["left"] == N
    with served(Chat(rated, faults=[status(429, wait="86400")] * 9)) as chat:
        assert "asks to wait 86,400 seconds" in run(here, chat)["stopped"]


def test_what_is_wrong_is_one_line(here: Path) -> None:
    (here / "bad.yaml").write_text("answer: 5 to 1\nuser: '{caption} {captions}'\n")
    (here / "pairs.jsonl").write_text('\ufeff{"image_id": "i0", "caption_id": "nobody"}\n')
    (here / "mine.csv").write_text("my table\n")
    people = "image_id,caption_id,score,rater\ni0,i0#0,4,ann\n"
    (here / "people.csv").write_text(people)  # the same columns as ours
    with served(Chat(rated)) as chat:
        for more, said in {
            f"--set judge.prompt={here}/bad.yaml": "bad.yaml: answer: 5 to 1",
            f"--pairs {here}/pairs.jsonl": "pairs.jsonl row 1: not a pair of these captions ('nobody')",
            f"--pairs {here}/none.jsonl": "no such file",
            "--endpoint ftp://x": "not an address",
            "--endpoint http://[": "not an address",
            "--model \udcff": "the model's name is no text",
            "--endpoint http://api..example.org/v1": "not an address",
            "--endpoint http://münchen..de/v1": "not an address",
            "--endpoint http://xn--/v1": "not an address",
            "--endpoint http://127.0.0.1:port/v1": "not an address",
            "--endpoint http://user:pass@127.0.0.1/v1": "more than a place",
            "--endpoint http://pass@127.0.0.1/v1": "more than a place",
            "--endpoint http://127.0.0.1/v1?key=pass@": "more than a place",
            "--max-cost 1": "without prices",
            f"--out {here}/out.arrow": "call it .csv",
            f"--out {here}/mine.csv": "is no table of capgrade judge",
            f"--out {here}/people.csv": "is no table of capgrade judge by",
            f"--endpoint {chat.address}/elsewhere": "404",
        }.items():
            error = refusal(*line(here, chat, *more.split()))
            assert said in error and "pass@" not in error, error
    assert chat.asked == [] and (here / "mine.csv").read_text() == "my table\n"
    assert (here / "people.csv").read_text() == people


def test_answers_that_count() -> None:
    prompt, seen = load_prompt(CAPTIONS_PROMPT, False), load_prompt(PICTURES_PROMPT, True)
    assert (prompt.scale, prompt.reads_captions, seen.reads_captions) == ((0, 5), True, False)
    for text, score in {
        "3": 3, " 4.5\n": 4.5, '{"score": 2}': 2, '```json\n{"score": 2}\n```': 2, "0": 0, "6": None, "-1": None,
        "nan": None, "3/5": None, "Score: 3": None, "": None, "yes": None, "[3]": None, '{"score": true}': None,
        "1e0": None, '{"a": 1, "b": 2}': None, "[" * 9999: None, "٣": None,
    }.items():  # fmt: skip
        assert prompt.score(text) == score, text


PROMPT = {"answer": "0 to 5", "user": "{caption} {captions}"}


@pytest.mark.parametrize(("change", "said"), [
    ({"answer": "5 to 5"}, "answer: 5 to 5, where `0 to 5` or `yes or no` could be"),
    ({"answer": "high"}, "answer: high, where"),
    ({"user": "{captions}"}, "no {caption} in user"),
    ({"user": "{caption}"}, "it shows nothing of the image -> put {captions} into user, or give --images"),
    ({"request": {"stream": True}}, "request: stream is not for a prompt to say"),
    ({"request": {"seed": math.nan}}, "what JSON cannot say (Out of range"),
    ({"request": {"stop": date(2024, 1, 1)}}, "what JSON cannot say (Object of type date"),
])  # fmt: skip
def test_prompts_that_are_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(PROMPT | change))
    with pytest.raises(InputError, match=re.escape(said)):
        load_prompt(tmp_path / "p.yaml", False)


def test_whatever_a_prompt_says_makes_another_judge() -> None:
    changes = {"answer": "0 to 4", "user": "{caption}: {captions}", "system": "Be kind.", "request": {"seed": 1}}
    each = [Prompt(**PROMPT | {key: value}).digest for key, value in changes.items()]
    assert len({Prompt(**PROMPT).digest, Prompt(**PROMPT | {"answer": "1 to 5"}).digest, *each}) == 6
    yes = [Prompt(**PROMPT | {"answer": answer}) for answer in ("yes or no", "0 to 1")]
    assert yes[0].digest != yes[1].digest and yes[0].score("1") is None


def test_pairs_are_asked_once_in_their_order(here: Path) -> None:
    given = [("i1", "i0#0"), ("i0", "i2#1"), ("i1", "i0#0"), ("i0", "i0#1")]
    lines = [json.dumps({"image_id": i, "caption_id": c}) for i, c in given]
    (here / "pairs.jsonl").write_text("\n".join([*lines, "", lines[1]]))
    captions = read_captions(here / "captions")
    image, caption = read_pairs(str(here / "pairs.jsonl"), captions)
    assert [(captions.image_ids[i], captions.caption_ids[c]) for i, c in zip(image, caption, strict=True)] == [
        given[0], given[1], given[3]
    ]  # fmt: skip
    write_captions_folder(here / "numbers", [caption_table(SETS, prefix="")])
    (here / "pairs.jsonl").write_text('{"image_id": 1, "caption_id": "0#1"}')
    assert read_pairs(str(here / "pairs.jsonl"), read_captions(here / "numbers")) == ([1], [1]), "ids may be numbers"
    (here / "pairs.jsonl").write_text("\n")
    with pytest.raises(InputError, match="pairs.jsonl: no pairs"):
        read_pairs(str(here / "pairs.jsonl"), captions)


@pytest.mark.parametrize(("fault", "said", "again", "charged", "after"), [
    (status(400, "so bad"), "400 Bad Request: so bad", False, False, None),
    (status(408), "408", True, False, None),
    (status(429, wait="7"), "429", True, False, 7),
    (status(500, "x" * 999), "^500.{197}$", True, False, None),
    (cut, "RemoteProtocolError", True, True, None),
    (part(b" ", 0.6), "ReadTimeout", True, True, None),
    (part(b" " * 8, 0.1), "an answer without end", True, True, None),
    (says("x" * 30_000), "an answer without end", True, True, None),
    (status(200, "<html>"), "no chat completion: <html>", True, True, None),
    (status(200, "[" * 9999), "no chat completion", True, True, None),
    (status(200, '{"choices": []}'), "no chat completion", True, True, None),
    (says(5), "content or usage of another kind", True, True, None),
    (says("5", prompt_tokens=-1), "content or usage of another kind", True, True, None),
    (says("5", prompt_tokens=10**400), "content or usage of another kind", True, True, None),
    (says("5", completion_tokens=True), "content or usage of another kind", True, True, None),
])  # fmt: skip
def test_what_is_no_answer(fault: Fault, said: str, again: bool, charged: bool, after: float | None) -> None:
    with served(Chat(rated, faults=[fault])) as chat, pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_endpoint, "LARGEST_ANSWER", 20_000)
        with pytest.raises(LostError, match=said) as lost:
            Endpoint(chat.address, "m", 0.3).ask([], {})
    assert (lost.value.again, lost.value.charged, lost.value.after) == (again, charged, after)


@pytest.mark.parametrize("code", [302, 401, 403, 404, 405])
def test_who_is_refused_asks_nothing_more(code: int) -> None:
    with served(Chat(rated, faults=[status(code)])) as chat, pytest.raises(InputError, match=f"answers {code}"):
        Endpoint(f"{chat.address}/chat/completions/", "m", 1).ask([], {})


def test_captions_cannot_write_the_prompt() -> None:
    prompt = load_prompt(CAPTIONS_PROMPT, False)
    said = prompt.messages("{captions} {caption}", ["{caption}"], None)[1]["content"]
    assert "describe that image?\n{captions} {caption}\n" in said and "- {caption}\n" in said


def test_retry_after_is_seconds_or_a_date() -> None:
    assert (seconds_of("7"), seconds_of(""), seconds_of("soon")) == (7, None, None)
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 +99999999999") is None
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0 == seconds_of("Wed, 21 Oct 2015 07:28:00 -0000")
    there = datetime.now(timezone(timedelta(hours=5))) + timedelta(hours=1)
    assert 3500 < seconds_of(format_datetime(there)) < 3601  # type: ignore[operator]
