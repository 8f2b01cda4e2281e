"""A chat endpoint on loopback that answers as it is told, with faults, and remembers what it was asked."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.tools.served import serving

Fault = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Chat:
    """`score` gives the answer to a body; `faults` are taken first, one per request; None is none."""

    score: Callable[[dict[str, Any]], str]
    faults: list[Fault | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    usage: dict[str, int] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10})
    address: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.asked.append(body)
            self.at.append(time.monotonic())
            self.tokens.add(handler.headers.get("Authorization"))
            fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            fault(handler)
            return
        message = {"role": "assistant", "content": self.score(body)}
        found: dict[str, Any] = {"choices": [{"message": message}]}
        send(handler, 200, json.dumps({**found, "usage": self.usage} if self.usage else found).encode())


def send(handler: BaseHTTPRequestHandler, code: int, data: bytes, **headers: str) -> None:
    handler.send_response(code)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def status(code: int, text: str = "no", **headers: str) -> Fault:
    return lambda handler: send(handler, code, text.encode(), **headers)


def says(content: str) -> Fault:
    """A completion with this answer."""
    return lambda handler: send(handler, 200, json.dumps({"choices": [{"message": {"content": content}}]}).encode())


def part(data: bytes, pause: float = 0.0) -> Fault:
    """A body that ends before its length, letter by letter."""

    def fault(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for letter in data:
            handler.wfile.write(bytes([letter]))
            time.sleep(pause)
        handler.close_connection = True

    return fault


cut = part(b'{"choices": [')


@contextmanager
def served(chat: Chat) -> Iterator[Chat]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # noqa: N802  # its name
            if self.path == "/v1/chat/completions":
                chat.answer(self)
            else:
                send(self, 404, b"no such path")

    with serving(Handler) as address:
        chat.address = f"{address}/v1"
        yield chat
