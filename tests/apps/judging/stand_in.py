"""An endpoint on loopback that chats and reranks as it is told, with faults, and remembers what it
was asked."""

import gzip
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.tools.served import Handler, serving

Fault = Callable[[Handler], None]


@dataclass
class Chat:
    """`score` gives the answer to a body, `chances` what its first token could have been, and
    `relevance` that of a document to a query; `faults` are taken first, one per request; None is
    none."""

    score: Callable[[dict[str, Any]], str]
    chances: Callable[[dict[str, Any]], dict[str, float]] | None = None
    relevance: Callable[[Any, str], float] = lambda query, document: float(query == document)
    faults: list[Fault | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    usage: dict[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10}
    )
    address: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, handler: Handler) -> None:
        body = json.loads(handler.body())
        if handler.path not in ("/v1/chat/completions", "/v1/rerank"):
            handler.reply(404, b"no such path")
            return
        with self.lock:
            self.asked.append(body)
            self.at.append(time.monotonic())
            self.tokens.add(handler.headers.get("Authorization"))
            fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            fault(handler)
        elif handler.path == "/v1/rerank":
            found = [self.relevance(body["query"], one) for one in body["documents"]]
            ranks(found, **self.usage)(handler)
        else:
            chances = self.chances(body) if self.chances and body.get("logprobs") else None
            says(self.score(body), chances, **self.usage)(handler)


def status(code: int, text: str = "no", wait: str = "") -> Fault:
    """With a header Retry-After, if it asks to wait."""
    return lambda handler: handler.reply(code, text.encode(), {"Retry-After": wait} if wait else {})


def says(content: object, chances: dict[str, float] | None = None, **usage: object) -> Fault:
    """A completion with this answer; of each of its words the probabilities of what else could have
    stood there. What it does not count it does not tell."""
    choice: dict[str, Any] = {"message": {"role": "assistant", "content": content}}
    if chances:
        top = [{"token": token, "logprob": math.log(p)} for token, p in chances.items()]
        tokens = [
            {"token": one, "logprob": 0.0, "top_logprobs": top}
            for one in re.findall(r"\w+|\W", str(content))
        ]
        choice["logprobs"] = {"content": tokens}
    found: dict[str, Any] = {"choices": [choice]}
    return status(200, json.dumps(found | {"usage": usage} if usage else found))


def ranks(scores: list[float], **usage: object) -> Fault:
    """What a reranker answers, the best first."""
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    results = [{"index": k, "relevance_score": scores[k]} for k in order]
    return status(200, json.dumps({"results": results, "usage": usage}))


def part(data: bytes, pause: float = 0.0) -> Fault:
    """A body that ends before its length, letter by letter."""

    def fault(handler: Handler) -> None:
        handler.reply(200, headers={"Content-Length": "1000"})
        with suppress(OSError):  # whoever asked has gone
            for letter in data:
                handler.wfile.write(bytes([letter]))
                time.sleep(pause)

    return fault


cut = part(b'{"choices": [')


def slow_head(handler: Handler) -> None:
    """Headers that come letter by letter, for ever."""
    with suppress(OSError):
        for letter in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200:
            handler.wfile.write(bytes([letter]))
            time.sleep(0.05)


def endless(handler: Handler) -> None:
    """A body of 700 MB."""
    handler.reply(200, headers={"Content-Length": str(700 * 2**20)})
    with suppress(OSError):  # whoever asked has gone
        for _ in range(700):
            handler.wfile.write(bytes(2**20))


def packed(handler: Handler) -> None:
    """A few bytes that unpack to many, though nothing packed was asked for."""
    handler.reply(200, gzip.compress(bytes(2**20)), {"Content-Encoding": "gzip"})


@contextmanager
def served(chat: Chat) -> Iterator[Chat]:
    with serving(chat.answer) as address:
        chat.address = f"{address}/v1"
        yield chat
