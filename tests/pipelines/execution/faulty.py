"""A proxy before a store that fails as networks do, after a seed."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from random import Random

from tests.tools.served import serving

MOST = 2  # times in a row that one request fails
ERROR = "<Error><Code>{}</Code><Message>{}</Message></Error>"
ANSWERS = {"503": (503, "SlowDown", "Please reduce your request rate."), "403": (403, "AccessDenied", "Access Denied")}
KINDS = ("503", "stalled", "lost", "cut", "short")


class Faults:
    """What to do with each request. `always`: one fault for every request; else drawn, with probability `share`.

    A kind that has not come yet comes at the first request that can have it: threads change the order of requests.
    """

    def __init__(self, seed: int = 0, share: float = 0.0, always: str | None = None, stall: float = 0.5) -> None:
        self.draw, self.share, self.always, self.stall = Random(seed), share, always, stall
        self.counted, self.row, self.lock = Counter[str](), Counter[str](), threading.Lock()

    def of(self, method: str, path: str) -> str | None:
        """The fault of this request; None: it goes through."""
        with self.lock:
            fault = self.always
            if fault is None and self.share and self.row[method + path] < MOST:
                kinds = KINDS if method == "GET" and "?" not in path else KINDS[:3]  # bodies of objects
                missing = [kind for kind in kinds if not self.counted[kind]]
                if missing or self.draw.random() < self.share:
                    fault = self.draw.choice(missing or kinds)
            self.row[method + path] = self.row[method + path] + 1 if fault else 0
            self.counted[fault or "none"] += 1
            return fault


@contextmanager
def faulty(port: int, faults: Faults) -> Iterator[int]:
    """The port of a proxy before this port of the same machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = faults.of(self.command, self.path)
            if fault in ANSWERS:
                status, *texts = ANSWERS[fault]
                return self.reply(status, {"Content-Type": "application/xml"}, ERROR.format(*texts).encode())
            if fault == "stalled":
                time.sleep(faults.stall)
                return self.hang_up()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(self.command, self.path, body, dict(self.headers))
            found = connection.getresponse()
            content, headers = found.read(), {k: v for k, v in found.getheaders() if k not in OWN}
            connection.close()
            if fault == "lost":  # done, but nobody hears of it
                return self.hang_up()
            half = content[: len(content) // 2]
            if fault == "short":  # as if it were whole; whoever cuts it has no checksum to go with it
                return self.reply(found.status, {k: v for k, v in headers.items() if "checksum" not in k}, half)
            length = found.getheader("Content-Length") if self.command == "HEAD" else len(content)
            self.reply(found.status, headers, half if fault == "cut" else content, int(length or 0))
            return self.hang_up() if fault == "cut" else None

        def reply(self, status: int, headers: dict[str, str], body: bytes, length: int | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def hang_up(self) -> None:
            self.close_connection = True

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

    with serving(Handler) as address:
        yield int(address.rsplit(":", 1)[1])


OWN = {"Content-Length", "Transfer-Encoding", "Connection", "Date", "Server"}
