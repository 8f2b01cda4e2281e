"""A proxy before a store that fails as networks do, after a seed."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.tools.served import Handler, serving

STALL = 0.5  # seconds
MOST = 2  # times in a row that one request fails
ERROR = "<Error><Code>{}</Code><Message>{}</Message></Error>"
ANSWERS = {
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "403": (403, "AccessDenied", "Access Denied"),
}
KINDS = ("503", "stalled", "lost", "cut")


class Faults:
    """What to do with each request. `always`: one fault for every request `after` some; else drawn,
    with probability `share`.

    A kind that has not come yet comes at the first request that can have it: threads change the
    order of requests.
    """

    def __init__(
        self, seed: int = 0, share: float = 0.0, always: str | None = None, after: int = 0
    ) -> None:
        self.draw, self.share, self.always, self.after = Random(seed), share, always, after
        self.counted, self.row, self.lock = Counter[str](), Counter[str](), threading.Lock()

    def of(self, method: str, path: str) -> str | None:
        """The fault of this request; None: it goes through."""
        with self.lock:
            fault = self.always if self.counted.total() >= self.after else None
            if fault is None and self.share and self.row[method + path] < MOST:
                # bodies of objects
                kinds = KINDS if method == "GET" and "?" not in path else KINDS[:3]
                missing = [kind for kind in kinds if not self.counted[kind]]
                if missing or self.draw.random() < self.share:
                    fault = self.draw.choice(missing or kinds)
            self.row[method + path] = self.row[method + path] + 1 if fault else 0
            self.counted[fault or "none"] += 1
            return fault


@contextmanager
def faulty(port: int, faults: Faults) -> Iterator[int]:
    """The port of a proxy before this port of the same machine."""

    def answer(handler: Handler) -> None:
        body, fault = handler.body(), faults.of(handler.command, handler.path)
        if fault in ANSWERS:
            status, *texts = ANSWERS[fault]
            return handler.reply(
                status, ERROR.format(*texts).encode(), {"Content-Type": "application/xml"}
            )
        if fault == "stalled":
            time.sleep(STALL)
            return None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(handler.command, handler.path, body, dict(handler.headers))
        found = connection.getresponse()
        content, headers = found.read(), {k: v for k, v in found.getheaders() if k not in OWN}
        connection.close()
        if fault == "lost":  # done, but nobody hears of it
            return None
        if fault == "cut" or handler.command == "HEAD":
            headers["Content-Length"] = found.getheader("Content-Length") or str(len(content))
        return handler.reply(
            found.status, content[: len(content) // 2] if fault == "cut" else content, headers
        )

    with serving(answer) as address:
        yield int(address.rsplit(":", 1)[1])


OWN = {"Content-Length", "Transfer-Encoding", "Connection", "Date", "Server"}
