"""A chat endpoint on loopback that answers as it is told, with faults, and remembers what it was asked."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.tools.served import Handler, serving

Fault = Callable[[Handler], None]


@dataclass
class Chat:
    """`score` gives the answer to a body; `faults` are taken first, one per request; None is none."""

    score: Callable[[dict[str, Any]], str]
    faults: list[Fault | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    usage: dict[str, int] = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10})
    address: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, handler: Handler) -> None:
        body = json.loads(handler.body())
        if handler.path != "/v1/chat/completions":
            handler.reply(404, b"no such path")
            return
        with self.lock:
            self.asked.append(body)
            self.at.append(time.monotonic())
            self.tokens.add(handler.headers.get("Authorization"))
            fault = self.faults.pop(0) if self.faults else None
        (fault or says(self.score(body), **self.usage))(handler)


def status(code: int, text: str = "no", wait: str = "") -> Fault:
    """With a header Retry-After, if it asks to wait."""
    return lambda handler: handler.reply(code, text.encode(), {"Retry-After": wait} if wait else {})


def says(content: object, **usage: object) -> Fault:
    """A completion with this answer; what it does not count it does not tell."""
    found: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": content}}]}
    return status(200, json.dumps(found | {"usage": usage} if usage else found))


def part(data: bytes, pause: float = 0.0) -> Fault:
    """A body that ends before its length, letter by letter."""

    def fault(handler: Handler) -> None:
        handler.reply(200, headers={"Content-Length": "1000"})
        for letter in data:
            handler.wfile.write(bytes([letter]))
            time.sleep(pause)

    return fault


cut = part(b'{"choices": [')


@contextmanager
def served(chat: Chat) -> Iterator[Chat]:
    with serving(chat.answer) as address:
        chat.address = f"{address}/v1"
        yield chat
