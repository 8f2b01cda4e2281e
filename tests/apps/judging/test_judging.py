"""A judge at an endpoint: what it is asked, faults, limits, restarts, and what the token never
shows up in."""

import base64
import csv
import io
import json
import math
import re
import signal
import socket
import subprocess
import threading
import time
import traceback
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from PIL import Image

from capgrade.apps.judging import endpoint as at_endpoint
from capgrade.apps.judging import round as at_round
from capgrade.apps.judging.endpoint import ChatJudge, Endpoint, RerankJudge
from capgrade.apps.judging.question import (
    PROMPTS_FOLDER,
    ChatPrompt,
    RankPrompt,
    load_prompts,
    read_asked_pairs,
)
from capgrade.apps.judging.reply import LostError
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from tests.apps.judging.stand_in import (
    Chat,
    Fault,
    cut,
    endless,
    packed,
    part,
    says,
    served,
    slow_head,
    status,
)
from tests.conftest import call, caption_table, printed, refusal, write_captions_folder
from tests.tools.commands import CAPGRADE
from tests.tools.served import Handler

SETS = [
    ["a dog runs", "the dog is fast"],
    ["a cat sits", "a lazy cat"],
    ["a dog runs", "the dog is fast"],
]
N = 18  # all pairs; two images are alike, so that some questions come twice or more
ASKED = 10
TOKEN = "sk-very-secret-0123456789"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Captions, and a cache of their own."""
    write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(at_endpoint.TOKEN, TOKEN)
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
    given = {
        "--captions": here / "captions",
        "--pairs": "all",
        "--endpoint": chat.address,
        "--judge-model": "m",
    }
    given["--out"] = here / "out.csv"
    own = [word for name, value in given.items() if name not in more for word in (name, str(value))]
    judge = [word for key, value in sets.items() for word in ("--set", f"judge.{key}={value}")]
    return ["judge", *own, "--force", *judge, *more]


def run(here: Path, chat: Chat, *more: str, **sets: object) -> dict[str, Any]:
    return printed(*line(here, chat, *more, **sets))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_question_is_asked_once_and_kept(here: Path) -> None:
    with served(Chat(rated)) as chat:
        found = run(here, chat, price_in=1, price_out=10)
        assert (found["pairs"], found["answered"], found["left"], found["requests"]) == (
            N,
            N,
            0,
            ASKED,
        )
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
    with served(
        Chat(lambda body: "Yes." if "cat" in text_of(body) else '```json\n{"answer": "no"}\n```')
    ) as chat:
        found = run(here, chat, prompt=yes)
        assert found["requests"] == ASKED and {row["score"] for row in rows(here / "out.csv")} == {
            "0",
            "1",
        }
        chat.score = rated
        assert run(here, chat)["requests"] == ASKED
        other = ["--set", f"judge.prompt={yes}", "--judge-model", "m2", "--set", "judge.retries=0"]
        assert run(here, chat, *other, "--out", str(here / "m2.csv"))["unanswered"] == N
        named = [
            "--judge-model",
            "@cf/meta/llama",
            "--out",
            str(here / "m3.csv"),
        ]  # as a formula begins
        assert [run(here, chat, *named)["requests"] for _ in range(2)] == [ASKED, 0]
        assert {row["rater"] for row in rows(here / "m3.csv")} == {"'@cf/meta/llama"}, (
            "text in a spreadsheet"
        )


def test_faults_are_listed_and_asked_by_the_next_run(here: Path) -> None:
    """No question is asked twice in a run; what the endpoint asks to wait goes before the next
    one."""
    faults = [status(429, wait="1"), status(500), cut, says("12"), says("four"), says("")]
    with served(Chat(rated, faults=[*faults, says("5 \ud83d")])) as chat:
        found = run(here, chat, parallel=1)
        assert (found["requests"], found["left"]) == (ASKED, 0) and found["unanswered"] >= len(
            faults
        ) + 1
        assert chat.at[1] - chat.at[0] >= 0.95, "Retry-After is kept to"
        reasons = {row["reason"] for row in rows(here / "out-unanswered.csv")}
        assert {
            "429 Too Many Requests: no",
            "500 Internal Server Error: no",
            "answered '12'",
        } < reasons
        again = run(here, chat, parallel=1)
        assert (again["answered"], again["unanswered"], again["requests"]) == (
            N,
            0,
            len(faults) + 1,
        )
    assert rows(here / "out-unanswered.csv") == []


def test_what_does_not_validate_is_listed_and_asked_again(here: Path) -> None:
    def unsure(body: dict[str, Any]) -> str:
        return "about 4, I think" if "that image?\na cat sits" in text_of(body) else rated(body)

    with served(Chat(unsure)) as chat:
        found = run(here, chat)
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
    """Killed while the sixth question is under way: five answers stay, seven questions are asked
    again or first."""
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
        assert "row 1: cannot be read" in refusal(*line(here, chat))


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
    ("0.0003", [], 1, 1),
    ("0", [], 0, 0),
    ("0.0009", [None, cut], 4, 3),  # may have cost as much as the dearest
    ("0.0009", [None, status(500)], 5, 4),
])  # fmt: skip
def test_the_limit_of_cost_is_not_passed(
    limit: str,
    faults: list,
    requests: int,
    answered: int,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each request costs 0.0002; the prompt is short enough to be expected to cost less."""
    short = {
        "answer": "0 to 5",
        "user": "{captions} How well: {caption}",
        "request": {"max_tokens": 5},
    }
    (here / "short.yaml").write_text(yaml.safe_dump(short))
    prices = [
        "--set",
        "judge.price_in=1",
        "--set",
        "judge.price_out=10",
        "--set",
        f"judge.prompt={here}/short.yaml",
    ]
    with served(Chat(rated, faults=faults)) as chat:
        found = run(here, chat, *prices, "--max-cost", limit)
        assert (
            len(chat.asked) == found["requests"] == requests
            and found["tokens"]["sent"] == 100 * answered
        )
        assert found["left"] == N - found["answered"] - found["unanswered"] > 0
        assert "limit of cost" in found["stopped"] and found["cost"] <= float(limit)
        assert 0 < found["estimate"]["cost"] < 0.0002 * ASKED
        assert call(*line(here, chat, *prices, "--max-cost", "0.00001")) == 0
        assert "scores are left: the limit of cost" in capsys.readouterr().err
        assert run(here, chat, *prices)["left"] == 0
        assert len(chat.asked) == ASKED + requests - answered
        chat.usage = {}
        more = ["--max-cost", "1", "--judge-model", "m2", "--out", str(here / "m2.csv")]
        assert "how many tokens" in refusal(*line(here, chat, *prices, *more))


def test_tokens_and_price_are_told_before_and_after(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(Chat(rated)) as chat:
        assert call(*line(here, chat, price_in=1, price_out=10)) == 0
        said = capsys.readouterr()
        asked = sum(len(m["content"]) for body in chat.asked for m in body["messages"])
        told = (
            r"10 questions in 10 requests: about ([\d,]+) tokens sent and at most 160 answered,"
            r" cost 0"
        )
        before = re.search(told, said.err)
        assert before and int(before[1].replace(",", "")) == pytest.approx(asked / 4, abs=ASKED)
        assert (
            "10 requests, 1,000 tokens sent, 100 answered, cost 0.002, 0 scores from probabilities"
            in said.out
        )
        assert call(*line(here, chat)) == 0
        said = capsys.readouterr()
        assert "questions in" not in said.err and "requests" not in said.out, (
            "nothing is left to ask"
        )


def test_requests_keep_to_the_rate(here: Path) -> None:
    """The tenth of 1,200 a minute goes 0.45 seconds after the first, whatever the machine does."""
    start = time.monotonic()
    with served(Chat(rated)) as chat:
        run(here, chat, per_minute=1200, parallel=8)
    assert max(chat.at) - start > 0.45


def test_the_token_is_sent_and_nowhere_else(here: Path) -> None:
    """Not even where the endpoint says it: in an answer, in a refusal, in the traceback of a
    debugging user."""
    with (
        served(Chat(lambda _: f"your key is {TOKEN}")) as chat,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert run(here, chat)["unanswered"] == N
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
        with pytest.raises(
            InputError,
            match="the token would be sent unencrypted -> give an https address, or unset",
        ):
            Endpoint(f"http{place}/v1", "m", 1)
    for place in ("s://example.org", "://127.0.0.1:8000", "://localhost", "://[::1]:8000"):
        assert (
            Endpoint(f"http{place}/v1", "m", 1).client.headers["Authorization"] == f"Bearer {TOKEN}"
        )
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
    assert {row["reason"] for row in rows(here / "out-unanswered.csv")} == {
        "no picture of the image"
    }
    assert all((row["image_id"] == "i1") == (row["caption_id"][:2] == "i1") or row["score"] == "0"
               for row in rows(here / "out.csv"))  # fmt: skip
    assert max(sum(text in text_of(body) for text in SETS[0] + SETS[1]) for body in chat.asked) == 1
    capsys.readouterr()
    (here / "pictures" / "i2.png").write_text("no picture")
    assert call(*line(here, chat, "--images", str(here / "pictures"))) == 0
    assert (
        "no picture of 1 of the 3 images that were asked for; the first is 'i2' (no picture by"
        " content)" in (capsys.readouterr().err)
    )
    assert {row["reason"] for row in rows(here / "out-unanswered.csv")} == {
        "no picture of the image"
    }
    (here / "pictures" / "i2.png").write_bytes((here / "pictures" / "i1.png").read_bytes()[:40])
    assert run(here, chat, "--images", str(here / "pictures"))["requests"] == 0
    assert {row["reason"] for row in rows(here / "out-unanswered.csv")} == {
        "no readable picture of image i2"
    }


def test_an_image_needs_another_caption(here: Path) -> None:
    write_captions_folder(here / "captions", [caption_table([["a dog"], ["a cat", "a cow"]])])
    with served(Chat(lambda _: "3")) as chat:
        assert run(here, chat)["answered"] == 5
    reason = "the image has no other caption"
    assert rows(here / "out-unanswered.csv") == [
        {"image_id": "i0", "caption_id": "i0#0", "reason": reason}
    ]


def test_a_dead_endpoint_is_not_asked_for_ever(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_round, "UNANSWERED_REQUESTS", 3)
    found = run(here, Chat(rated, address="http://127.0.0.1:9/v1"), parallel=1)
    assert (
        found["stopped"].startswith("3 requests in a row")
        and "cannot be reached" in found["stopped"]
    )
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
            f"--pairs {here}/pairs.jsonl": (
                "pairs.jsonl row 1: not a pair of these captions ('nobody')"
            ),
            f"--pairs {here}/none.jsonl": "no such file",
            "--endpoint ftp://x": "not an address",
            "--endpoint http://[": "not an address",
            "--judge-model \udcff": "the model's name is no text",
            "--endpoint http://api..example.org/v1": "not an address",
            "--endpoint http://münchen..de/v1": "not an address",
            "--endpoint http://xn--/v1": "not an address",
            "--endpoint http://127.0.0.1:port/v1": "not an address",
            "--endpoint http://user:pass@127.0.0.1/v1": "more than a place",
            "--endpoint http://pass@127.0.0.1/v1": "more than a place",
            "--endpoint http://127.0.0.1/v1?key=pass@": "more than a place",
            "--max-cost 1": "without prices",
            f"--out {here}/out.arrow": "call it .csv",
            f"--out {here}/mine.csv": "mine.csv: a file is there -> give --force",
            f"--out {here}/people.csv": "people.csv: a file is there",
            f"--endpoint {chat.address}/elsewhere": "404",
        }.items():
            command = [word for word in line(here, chat, *more.split()) if word != "--force"]
            error = refusal(*command)
            assert said in error and "pass@" not in error, error
    assert chat.asked == [] and (here / "mine.csv").read_text() == "my table\n"
    assert (here / "people.csv").read_text() == people


def test_answers_that_count() -> None:
    prompt, seen = ChatPrompt(**PROMPTS["captions"]), ChatPrompt(**PROMPTS["pictures"])
    assert (prompt.scale, prompt.reads_captions, seen.reads_captions) == ((0, 5), True, False)
    for text, score in {
        "3": 3,
        " 4.5\n": 4.5,
        '{"score": 2}': 2,
        '```json\n{"score": 2}\n```': 2,
        "0": 0,
        "6": None,
        "-1": None,
        "nan": None,
        "3/5": None,
        "Score: 3": None,
        "": None,
        "yes": None,
        "[3]": None,
        '{"score": true}': None,
        "1e0": None,
        '{"a": 1, "b": 2}': None,
        "[" * 9999: None,
        "٣": None,
    }.items():
        assert prompt.score(text) == score, text


PROMPTS = {path.stem: yaml.safe_load(path.read_text()) for path in PROMPTS_FOLDER.glob("*.yaml")}
PROMPT = {"answer": "0 to 5", "user": "{caption} {captions}"}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_prompts_that_come_along_show_all_that_they_are_given(name: str) -> None:
    pictures, rank = "picture" in name, "query" in PROMPTS[name]
    (prompt,) = load_prompts([name], "rank" if rank else "chat", pictures).values()
    asked = prompt.questions("a dog", ["a cat", "a cow"], "i0" if pictures else None)
    shown = " ".join(f"{one.text} {one.document}" for one in asked)
    assert (
        "a dog" in shown
        and ("a cat" in shown and "a cow" in shown) != pictures
        and "{cap" not in shown
    )
    assert {one.image for one in asked} == {"i0" if pictures else None}


@pytest.mark.parametrize(("change", "said"), [
    ({"answer": "5 to 5"}, "answer: 5 to 5, where `0 to 5` or `yes or no` could be"),
    ({"answer": "high"}, "answer: high, where"),
    ({"user": "{captions}"}, "no {caption} in user"),
    ({"user": "{caption}"}, "it shows nothing of the image -> put {captions} into it, or give --images"),
    ({"request": {"stream": True}}, "request: stream is not for a prompt to say"),
    ({"request": {"seed": math.nan}}, "what JSON cannot say (Out of range"),
    ({"request": {"stop": date(2024, 1, 1)}}, "what JSON cannot say (Object of type date"),
])  # fmt: skip
def test_prompts_that_are_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(PROMPT | change))
    with pytest.raises(InputError, match=re.escape(said)):
        load_prompts([str(tmp_path / "p.yaml")], "chat", False)


@pytest.mark.parametrize(("prompt", "pictures", "said"), [
    ({"query": "{reference}", "document": "{captions}"}, False, "{caption} has to stand once"),
    ({"query": "{caption}", "document": "{caption}"}, False, "{caption} has to stand once"),
    ({"query": "like {picture}"}, True, "{picture} with other words"),
    ({"query": "a text"}, False, "neither or both of {reference} and {picture}"),
    ({"query": "{picture}"}, False, "it shows nothing of the image -> put {reference} into it"),
    ({"query": "{reference}"}, True, "it does not show the picture"),
])  # fmt: skip
def test_prompts_of_rerankers_that_are_refused(
    prompt: dict, pictures: bool, said: str, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(prompt))
    with pytest.raises(InputError, match=re.escape(said)):
        load_prompts([str(tmp_path / "p.yaml")], "rank", pictures)


def test_prompts_that_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "captions.yaml").write_text(yaml.safe_dump(PROMPT))
    (tmp_path / "yes.yaml").write_text(yaml.safe_dump(PROMPT | {"answer": "yes or no"}))
    for other, said in {
        "captions": "two prompts are called captions",
        "yes": "another scale than the prompt",
    }.items():
        with pytest.raises(InputError, match=said):
            load_prompts(["captions", str(tmp_path / f"{other}.yaml")], "chat", False)


def test_whatever_a_prompt_says_makes_another_judge() -> None:
    changes = {
        "answer": "0 to 4",
        "user": "{caption}: {captions}",
        "system": "Be kind.",
        "request": {"seed": 1},
    }
    each = [ChatPrompt(**PROMPT | {key: value}).digest for key, value in changes.items()]
    assert (
        len(
            {ChatPrompt(**PROMPT).digest, ChatPrompt(**PROMPT | {"answer": "1 to 5"}).digest, *each}
        )
        == 6
    )
    yes = [ChatPrompt(**PROMPT | {"answer": answer}) for answer in ("yes or no", "0 to 1")]
    assert yes[0].digest != yes[1].digest and yes[0].score("1") is None


def token(said: str, **chances: float) -> dict[str, Any]:
    """A token of an answer, and the probabilities of what could have stood in its place."""
    top = [{"token": name.replace("_", " "), "logprob": math.log(p)} for name, p in chances.items()]
    return {"token": said, "logprob": 0.0, "top_logprobs": top}


def test_the_expected_grade_is_that_of_g_eval() -> None:
    """Liu et al. 2023, section 2: score = sum of p(s_i) s_i over the scores s_i, here of
    probabilities that add up to 1 among the grades' tokens. Worked out by hand."""
    prompt, yes = ChatPrompt(**PROMPT), ChatPrompt(**PROMPT | {"answer": "yes or no"})
    three = {"3": 0.5, "4": 0.2, " 4": 0.1, "7": 0.1, "the": 0.1}  # 7 is no grade
    assert prompt.expected_grade([token("3", **three)], 3) == pytest.approx(
        (3 * 0.5 + 4 * 0.3) / 0.8
    )
    inside = [token('{"score', x=1.0), token('":'), token(" 3", **three), token("}")]
    assert prompt.expected_grade(inside, 3) == pytest.approx(2.7 / 0.8)
    assert (
        prompt.expected_grade([token("4", **three), token("."), token("5", **{"5": 1.0})], 4.5)
        is None
    ), "two tokens"
    assert prompt.expected_grade([], 3) is None
    assert prompt.expected_grade([{"token": "3", "logprob": 0.0, "top_logprobs": None}], 3) is None
    assert yes.expected_grade(
        [token("Yes", **{"Yes": 0.6, " yes": 0.15, "No": 0.05, "NO": 0.2})], 1
    ) == pytest.approx(0.75)
    wide = ChatPrompt(**PROMPT | {"answer": "0 to 100"})
    assert wide.expected_grade([token("1", **{"1": 1.0}), token("0")], 10) is None
    assert wide.expected_grade([token("1", **{"1": 1.0})], 1) is None, "it may have begun a 10"


ODD_LOGPROBS: dict[str, Any] = {
    "beyond every probability": [token("5", x=1.0) | {"top_logprobs": [{"token": "5", "logprob": 1e6}]}],
    "a text": [{"token": "5", "top_logprobs": [{"token": "5", "logprob": "-0.1"}]}],
    "no number": [{"token": "5", "top_logprobs": [{"token": "5", "logprob": math.nan}]}],
    "without tokens": [{"logprob": 0.0}],
    "a number": 7,
    "numbers": [1, 2],
    "tokens that are numbers": [{"token": 5, "top_logprobs": []}],
}  # fmt: skip


@pytest.mark.parametrize("content", ODD_LOGPROBS.values(), ids=ODD_LOGPROBS)
@pytest.mark.parametrize("inside", [True, False])
def test_odd_log_probabilities_leave_the_answer(content: Any, inside: bool) -> None:
    choice = {"message": {"content": "5"}, "logprobs": {"content": content} if inside else content}
    fault = status(200, json.dumps({"choices": [choice]}))
    with served(Chat(rated, faults=[fault])) as chat:
        reply = ChatJudge(Endpoint(chat.address, "m", 5)).ask(
            ChatPrompt(**PROMPT).questions("a", ["b"], None), {}
        )
    assert (reply.scores, reply.expected) == ([5.0], 0)


@pytest.mark.parametrize("usage", [{"completion_tokens": 10**400}, {"prompt_tokens": -5}, [1], 7])
def test_an_answer_is_kept_whatever_it_says_it_took(usage: Any, here: Path) -> None:
    def answers(handler: Handler) -> None:
        content = {"choices": [{"message": {"content": "3"}}], "usage": usage}
        handler.reply(200, json.dumps(content).encode())

    with served(Chat(rated, faults=[answers] * ASKED)) as chat:
        assert run(here, chat, price_in=1, price_out=10)["answered"] == N
        assert run(here, chat)["requests"] == 0, "all are kept"


def test_an_answer_is_kept_before_its_cost_is_computed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> float:
        raise ZeroDivisionError

    with served(Chat(rated)) as chat:
        with monkeypatch.context() as patch:
            ask = ChatJudge.ask

            def ask_then_break(*given: Any) -> Any:
                reply = ask(*given)
                patch.setattr(at_round.JudgingRound, "_price", fail)
                return reply

            patch.setattr(ChatJudge, "ask", ask_then_break)
            with pytest.raises(ZeroDivisionError):
                call(*line(here, chat, "--set", "judge.parallel=1"))
        assert len(chat.asked) == 1
        assert run(here, chat)["requests"] == ASKED - 1


def test_scores_are_expected_grades_where_the_endpoint_tells_probabilities(here: Path) -> None:
    with served(Chat(rated, lambda body: {rated(body): 0.75, "3": 0.25})) as chat:
        found = run(here, chat)
        assert found["from_probabilities"] == ASKED and all(
            body["top_logprobs"] == 20 for body in chat.asked
        )
    for row in rows(here / "out.csv"):
        alike = (row["image_id"] == "i1") == row["caption_id"].startswith("i1")
        assert float(row["score"]) == pytest.approx(0.75 * (5 if alike else 1) + 0.25 * 3)


def test_each_prompt_has_a_row(here: Path) -> None:
    """And only what a new prompt asks is asked."""
    with served(Chat(lambda body: "4" if "Somebody" in text_of(body) else "2")) as chat:
        run(here, chat)
        found = run(here, chat, prompt="[captions,captions_again]")
        assert (found["requests"], found["answered"]) == (ASKED, 2 * N)
        assert found["prompts"] == ["captions", "captions_again"]
    table = rows(here / "out.csv")
    assert [row["prompt"] for row in table] == ["captions", "captions_again"] * N
    assert all(
        row["score"] == {"captions": "2", "captions_again": "4"}[row["prompt"]] for row in table
    )


def words(query: Any, document: str) -> float:
    """The share of words that two texts have in common."""
    one, other = set(query.split()), set(document.split())
    return len(one & other) / len(one | other)


@pytest.mark.parametrize(("prompt", "queries"), [("references", 2 + 2), ("references_again", 4)])
def test_a_reranker_is_asked_once_a_query(prompt: str, queries: int, here: Path) -> None:
    """Four texts are all queries there are; the score of a pair is the mean over the image's other
    captions."""
    with served(Chat(rated, relevance=words)) as chat:
        chat.address += "/rerank"
        found = run(here, chat, prompt=prompt)
        assert (found["answered"], found["requests"], len(chat.asked)) == (N, queries, queries)
        assert found["tokens"] == {"sent": 100 * queries, "answered": 10 * queries}
        assert {frozenset(body) for body in chat.asked} == {
            frozenset({"model", "query", "documents"})
        }
        assert run(here, chat, prompt=prompt)["requests"] == 0
    texts = {
        f"i{i}#{k}": text for i, captions in enumerate(SETS) for k, text in enumerate(captions)
    }
    for row in rows(here / "out.csv"):
        others = [
            text
            for k, text in texts.items()
            if k.startswith(row["image_id"]) and k != row["caption_id"]
        ]
        expected = sum(words(text, texts[row["caption_id"]]) for text in others) / len(others)
        assert float(row["score"]) == pytest.approx(expected, abs=1e-5) and row["scale"] == "0..1"


def test_a_reranker_gets_few_documents_at_once_and_the_picture(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "pictures").mkdir()
    for i, colour in enumerate([(250, 0, 0), (0, 250, 0), (0, 0, 250)]):
        Image.new("RGB", (40, 20), colour).save(here / "pictures" / f"i{i}.png")

    def seen(query: Any, document: str) -> float:
        url = query["content"][0]["image_url"]["url"]
        red = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).getpixel((9, 9))[0]  # type: ignore[index]
        return 0.75 if (red > 100) == ("dog" in document) else 0.25

    monkeypatch.setattr(RerankJudge, "batch_size", 3)
    with served(Chat(rated, relevance=seen)) as chat:
        chat.address += "/rerank"
        found = run(here, chat, "--images", str(here / "pictures"))
    assert (found["answered"], found["requests"]) == (N, 6), "four texts for each of three pictures"
    for row in rows(here / "out.csv"):
        assert row["score"] == (
            "0.75" if (row["image_id"] == "i0") == (row["caption_id"][:2] != "i1") else "0.25"
        )


@pytest.mark.parametrize(("results", "error"), [
    ({"results": [{"index": 0, "relevance_score": 0.5}]}, "not one result for each of 2 documents"),
    ({"results": [{"index": 0, "score": 0.5}, {"index": 1, "score": 0.5}]}, "no results of a reranker"),
    ([{"index": 0, "score": 0.5}], "no results of a reranker"),
    ({"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": -3.2}]}, "-3.2, not 0 to 1"),
    ({"results": [{"index": 0, "relevance_score": 10**400}]}, "no results of a reranker"),
])  # fmt: skip
def test_what_is_no_answer_of_a_reranker(results: object, error: str) -> None:
    prompt = RankPrompt(query="{reference}")
    questions = [prompt.questions(text, ["a cat"], None)[0] for text in ("a dog", "a cow")]
    with served(Chat(rated, faults=[status(200, json.dumps(results))])) as chat:
        judge = RerankJudge(Endpoint(f"{chat.address}/rerank", "m", 1))
        with pytest.raises((LostError, InputError), match=re.escape(error)):
            judge.ask(questions, {})


def test_pairs_are_asked_once_in_their_order(here: Path) -> None:
    given = [("i1", "i0#0"), ("i0", "i2#1"), ("i1", "i0#0"), ("i0", "i0#1")]
    lines = [json.dumps({"image_id": i, "caption_id": c}) for i, c in given]
    (here / "pairs.jsonl").write_text("\n".join([*lines, "", lines[1]]))
    captions = read_captions(here / "captions")
    image, caption = read_asked_pairs(str(here / "pairs.jsonl"), captions)
    assert [
        (captions.image_ids[i], captions.caption_ids[c])
        for i, c in zip(image, caption, strict=True)
    ] == [given[0], given[1], given[3]]
    write_captions_folder(here / "numbers", [caption_table(SETS, prefix="")])
    (here / "pairs.jsonl").write_text('{"image_id": 1, "caption_id": "0#1"}')
    assert read_asked_pairs(str(here / "pairs.jsonl"), read_captions(here / "numbers")) == (
        [1],
        [1],
    ), "ids may be numbers"
    (here / "pairs.jsonl").write_text("\n")
    with pytest.raises(InputError, match="pairs.jsonl: no pairs"):
        read_asked_pairs(str(here / "pairs.jsonl"), captions)


@pytest.mark.parametrize(("fault", "said", "charged", "after"), [
    (status(400, "so bad"), "400 Bad Request: so bad", False, 0),
    (status(408), "408", False, 0),
    (status(429, wait="7"), "429", False, 7),
    (status(429, wait="Wed, 21 Oct 2015 07:28:00 GMT"), "429", False, 0),
    (status(500, "x" * 999), "^500.{197}$", False, 0),
    (cut, "RemoteProtocolError", True, 0),
    (part(b" ", 0.6), "no whole answer within 0.3 seconds", True, 0),
    (part(b" " * 99, 0.05), "no whole answer within 0.3 seconds", True, 0),
    (slow_head, "no whole answer within 0.3 seconds", True, 0),
    (endless, "an answer of more than 16,777,216 bytes", True, 0),
    (packed, "an answer packed by gzip", True, 0),
    (status(200, "<html>"), "no JSON: <html>", True, 0),
    (status(200, "[" * 9999), "no JSON", True, 0),
    (status(200, '{"choices": []}'), "no chat completion", True, 0),
    (says(5), "no chat completion", True, 0),
])  # fmt: skip
def test_what_is_no_answer(fault: Fault, said: str, charged: bool, after: float) -> None:
    with served(Chat(rated, faults=[fault])) as chat, pytest.raises(LostError, match=said) as lost:
        ChatJudge(Endpoint(chat.address, "m", 60 if fault is endless else 0.3)).ask(
            ChatPrompt(**PROMPT).questions("a", ["b"], None), {}
        )
    assert (lost.value.charged, lost.value.after) == (charged, after)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_connection_is_tried_again_by_the_client(retries: int) -> None:
    """The port answers after a fifth of a second; httpx2 tries at once, and again after half a
    second."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))

        def late() -> None:
            time.sleep(0.2)
            port.listen()
            with port.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        endpoint = Endpoint(f"http://127.0.0.1:{port.getsockname()[1]}", "m", 5, retries)
        if not retries:
            with pytest.raises(LostError, match="cannot be reached"):
                endpoint.post({})
            return
        thread = threading.Thread(target=late)
        thread.start()
        assert endpoint.post({}) == {}
        thread.join()


@pytest.mark.parametrize("code", [302, 401, 403, 404, 405])
def test_who_is_refused_asks_nothing_more(code: int) -> None:
    with (
        served(Chat(rated, faults=[status(code)])) as chat,
        pytest.raises(InputError, match=f"answers {code}"),
    ):
        Endpoint(f"{chat.address}/chat/completions/", "m", 1).post({})


def test_captions_cannot_write_the_prompt() -> None:
    prompt = ChatPrompt(**PROMPTS["captions"])
    said = prompt.questions("{captions} {caption}", ["{caption}"], None)[0].text
    assert "describe that image?\n{captions} {caption}\n" in said and "- {caption}\n" in said
