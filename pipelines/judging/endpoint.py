"""One question to an OpenAI-compatible chat endpoint: how fast and for how much it may be asked, what comes back."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import urlsplit

from capgrade.pipelines.judging.question import NoAnswerError, Prompt
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.hosts import is_loopback
from capgrade.schemas.params import JudgeParams

with needs("judge"):
    import httpx

TOKEN = "CAPGRADE_JUDGE_TOKEN"  # the environment variable that holds the endpoint's token
PATH = "/chat/completions"
MOST_BYTES, SHOWN = 2**22, 200  # of an answer, and of one that is told
FIRST_WAIT, LONGEST_WAIT, PATIENCE = 1.0, 30.0, 600.0  # seconds: between tries, and that an endpoint may ask for
FATAL = {401, 403, 404, 405}


class Pace:
    """Requests of all threads, `per_minute` apart at most; None for as many as they like."""

    def __init__(self, per_minute: float | None, stop: threading.Event) -> None:
        self.gap, self.stop = (60 / per_minute if per_minute else 0.0), stop
        self.free, self.held, self.lock = 0.0, 0.0, threading.Lock()  # when the next may go, and any

    def wait(self) -> None:
        """Until it is this request's turn, or all have to stop."""
        with self.lock:
            at = max(time.monotonic(), self.free)
            self.free = at + self.gap
        while not self.stop.is_set() and (left := max(at, self.held) - time.monotonic()) > 0:
            self.stop.wait(left)

    def hold(self, seconds: float) -> None:
        """No request goes in the next so many seconds, as Retry-After asks."""
        with self.lock:
            self.held = max(self.held, time.monotonic() + seconds)
            self.free = max(self.free, self.held)


@dataclass
class Budget:
    """What was spent, at prices of a million tokens, sent and answered, in the currency of the limit. With a limit, a
    request goes only if it fits beside those under way, each taken to cost as much as the dearest so far; the very
    first goes alone, since nothing is known."""

    price_in: float = 0.0
    price_out: float = 0.0
    limit: float | None = None
    sent: int = 0
    answered: int = 0
    spent: float = 0.0
    requests: int = 0
    dearest: float | None = None
    flying: int = 0
    free: threading.Condition = field(default_factory=threading.Condition)

    def take(self) -> bool:
        """Whether another request may go; waits for those under way where that decides it."""
        with self.free:
            while not self._fits():
                if not self.flying:
                    return False
                self.free.wait()
            self.flying += 1
            self.requests += 1
            return True

    def pay(self, sent: int, answered: int) -> None:
        with self.free:
            cost = (sent * self.price_in + answered * self.price_out) / 1e6
            self.sent, self.answered, self.spent = self.sent + sent, self.answered + answered, self.spent + cost
            self.dearest = max(cost, self.dearest or 0.0)
            self._back()

    def lose(self, charged: bool) -> None:
        """A request brought no answer; one that may be charged counts as the dearest so far."""
        with self.free:
            self.spent += (self.dearest or 0.0) if charged else 0.0
            self._back()

    def _back(self) -> None:
        self.flying -= 1
        self.free.notify_all()

    def _fits(self) -> bool:
        if self.limit is None:
            return True
        if self.dearest is None:
            return self.flying == 0
        return self.spent + (self.flying + 1) * self.dearest <= self.limit


class StoppedError(Exception):
    """Nothing more is asked, and why."""


class _AgainError(Exception):
    """Worth another try, after so many seconds where the endpoint says so; `charged` if it may cost."""

    def __init__(self, reason: str, after: float | None = None, charged: bool = False) -> None:
        super().__init__(reason)
        self.after, self.charged = after, charged


class Endpoint:
    """A judge at an address, with the token of the environment. Threads may ask at the same time.

    InputError for what is no address, for one that names a user or a key, and for a token that no header can carry, or
    that would be sent unencrypted.
    """

    def __init__(
        self, endpoint: str, model: str, prompt: Prompt, params: JudgeParams, max_cost: float | None = None
    ) -> None:
        place, found = endpoint.rstrip("/"), os.environ.get(TOKEN)
        try:
            parts = urlsplit(endpoint)
            there = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # of brackets, or a port that is none
            there = False
        if not there:
            raise InputError("not an address", file=endpoint, remedy="give --endpoint like https://HOST/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            remedy = f"give the address alone, and the token in {TOKEN}"
            raise InputError("the endpoint's address carries more than a place", remedy=remedy)
        if found and not (found.isascii() and found.isprintable() and " " not in found):
            raise InputError(f"{TOKEN} holds a space or another character that no token has", remedy="set it anew")
        if found and parts.scheme == "http" and not is_loopback(str(parts.hostname)):
            remedy = f"give an https address, or unset {TOKEN}"
            raise InputError("the token would be sent unencrypted", file=place, remedy=remedy)
        self.address, self.model, self.prompt = f"{place.removesuffix(PATH)}{PATH}", model, prompt
        self.tries, self.seconds, self.stop = params.tries, params.timeout, threading.Event()
        self.pace, self.budget = Pace(params.per_minute, self.stop), Budget(params.price_in, params.price_out, max_cost)
        self._token = found or None
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.Client(headers=headers, timeout=httpx.Timeout(self.seconds), limits=limits)

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"

    def ask(self, messages: list[dict[str, Any]]) -> tuple[float, str]:
        """A score that counts, and the text that it was read from. Raises NoAnswerError after so many tries,
        StoppedError where nothing more is to be asked, and InputError where the endpoint refuses whoever asks."""
        reason, said = "", messages
        for attempt in range(self.tries):
            try:
                text = self._text(said)
            except _AgainError as error:
                reason = str(error)
                self._wait(error.after, attempt)
                continue
            score = self.prompt.score(text)
            if score is not None:
                return score, self.clean(text)
            reason = f"answered {self.clean(text)!r}"
            bad = {"role": "assistant", "content": text[:SHOWN]}
            said = [*messages, bad, {"role": "user", "content": self.prompt.reminder()}]
        raise NoAnswerError(reason)

    def clean(self, text: str) -> str:
        """What may be shown and kept of what an endpoint says: short, on one line, without the token."""
        hidden = text.replace(self._token, "***") if self._token else text
        return " ".join(hidden.split())[:SHOWN]

    def _text(self, messages: list[dict[str, Any]]) -> str:
        self.pace.wait()
        if self.stop.is_set():
            raise StoppedError("stopped")
        if not self.budget.take():
            raise StoppedError(f"the limit of cost ({self.budget.limit:g}) leaves no room for another request")
        body = {"model": self.model, "messages": messages, **self.prompt.request}
        try:
            text, sent, answered = self._post(body)
        except BaseException as error:
            self.budget.lose(isinstance(error, _AgainError) and error.charged)
            raise
        self.budget.pay(sent, answered)
        return text

    def _post(self, body: dict[str, Any]) -> tuple[str, int, int]:
        until = time.monotonic() + self.seconds
        data = b""
        try:
            with self.client.stream("POST", self.address, json=body) as response:
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > MOST_BYTES or time.monotonic() > until:
                        raise _AgainError("an answer without end", charged=True)
        except httpx.ConnectError as error:
            raise _AgainError(f"cannot be reached ({self.clean(str(error))})") from None
        except httpx.HTTPError as error:
            raise _AgainError(f"{type(error).__name__}: {self.clean(str(error))}", charged=True) from None
        return self._read(data) if response.status_code == 200 else self._refused(response, data)

    def _refused(self, response: httpx.Response, data: bytes) -> NoReturn:
        code = response.status_code
        said = self.clean(f"{code} {response.reason_phrase}: {data[:2000].decode('utf-8', 'replace')}")
        if code == 429 or code >= 500 or code == 408:
            raise _AgainError(said, seconds_of(response.headers.get("Retry-After", "")))
        if code in FATAL or code < 400:
            remedy = f"give the right --endpoint and --model, and the token in {TOKEN}"
            raise InputError(f"the endpoint answers {said}", file=self.address, remedy=remedy)
        raise NoAnswerError(said)

    def _read(self, data: bytes) -> tuple[str, int, int]:
        """Text, and tokens sent and answered. A missing usage is an error only where it is paid for."""
        try:
            found = json.loads(data)
            text = found["choices"][0]["message"]["content"]
            usage = found.get("usage") or {}
            sent, answered = (usage.get(key, 0) for key in ("prompt_tokens", "completion_tokens"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            shown = self.clean(data[:2000].decode("utf-8", "replace"))
            raise _AgainError(f"no chat completion: {shown}", charged=True) from None
        if not isinstance(text, str) or not all(type(n) is int and n >= 0 for n in (sent, answered)):
            raise _AgainError("no chat completion: content or usage of another kind", charged=True)
        if self.budget.limit is not None and not sent:
            remedy = "leave --max-cost out, or ask an endpoint that counts tokens"
            raise InputError("answers do not say how many tokens they cost", file=self.address, remedy=remedy)
        return text, sent, answered

    def _wait(self, after: float | None, attempt: int) -> None:
        """What the endpoint asks for, for all threads; else longer after each try, for this one."""
        if after is None:
            if attempt + 1 < self.tries:
                self.stop.wait(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT))
            return
        if after > PATIENCE:
            raise StoppedError(f"the endpoint asks to wait {after:,.0f} seconds")
        self.pace.hold(after)


def seconds_of(value: str) -> float | None:
    """Retry-After: seconds, or a date (RFC 9110, 10.2.3); None for neither."""
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
