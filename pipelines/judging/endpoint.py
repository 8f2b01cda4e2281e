"""One request to an OpenAI-compatible chat endpoint, and what comes back."""

import json
import os
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.hosts import is_loopback

with needs("judge"):
    import httpx2

TOKEN = "CAPGRADE_JUDGE_TOKEN"  # the environment variable that holds the endpoint's token
_PATH = "/chat/completions"
LARGEST_ANSWER, ANSWER_SHOWN = 2**22, 200  # of an answer, and of one that is told
MOST_TOKENS = 2**53
FATAL = {401, 403, 404, 405}


class LostError(Exception):
    """A request brought no answer, and why. `again`: another try may, after so many seconds where the endpoint says so;
    `charged` if it may cost."""

    def __init__(self, reason: str, *, again: bool = True, after: float | None = None, charged: bool = False) -> None:
        super().__init__(reason)
        self.again, self.after, self.charged = again, after, charged


class Reply(NamedTuple):
    """What an endpoint answered, and how many tokens were sent and answered."""

    text: str
    sent: int
    answered: int


class Endpoint:
    """A judge at an address, with the token of the environment. Threads may ask at the same time.

    InputError for what is no address, for one that names a user or a key, and for a token that no header can carry, or
    that would be sent unencrypted.
    """

    def __init__(self, endpoint: str, model: str, timeout: float) -> None:
        place, found = endpoint.rstrip("/"), os.environ.get(TOKEN)
        try:
            parts, url = urlsplit(endpoint), httpx2.URL(endpoint)
            looked_up = url.host and url.raw_host.decode().encode("idna").decode("idna")
            there = parts.scheme in ("http", "https") and parts.port != 0 and bool(looked_up)
        except (ValueError, httpx2.InvalidURL):  # of brackets, a port that is none, a name that no host has
            there = False
        if not there:
            raise InputError("not an address", file=endpoint, remedy="give --endpoint like https://HOST/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            remedy = f"give the address alone, and the token in {TOKEN}"
            raise InputError("the endpoint's address carries more than a place", remedy=remedy)
        if not model.isprintable():
            raise InputError("the model's name is no text", remedy="give --model as the endpoint lists it")
        if found and not (found.isascii() and found.isprintable() and " " not in found):
            raise InputError(f"{TOKEN} holds a space or another character that no token has", remedy="set it anew")
        if found and parts.scheme == "http" and not is_loopback(str(parts.hostname)):
            remedy = f"give an https address, or unset {TOKEN}"
            raise InputError("the token would be sent unencrypted", file=place, remedy=remedy)
        self.address, self.model, self.seconds = f"{place.removesuffix(_PATH)}{_PATH}", model, timeout
        self._token = found or None
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        limits = httpx2.Limits(max_connections=None)
        self.client = httpx2.Client(headers=headers, timeout=httpx2.Timeout(self.seconds), limits=limits)

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"

    def ask(self, messages: list[dict[str, Any]], request: dict[str, Any]) -> Reply:
        """One request; `request` is what else its body says. Raises LostError, and InputError where the endpoint
        refuses whoever asks."""
        until = time.monotonic() + self.seconds
        data = b""
        body = {"model": self.model, "messages": messages, **request}
        try:
            with self.client.stream("POST", self.address, json=body) as response:
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > LARGEST_ANSWER or time.monotonic() > until:
                        raise LostError("an answer without end", charged=True)
        except httpx2.ConnectError as error:
            raise LostError(f"cannot be reached ({self.clean(str(error))})") from None
        except httpx2.HTTPError as error:
            raise LostError(f"{type(error).__name__}: {self.clean(str(error))}", charged=True) from None
        return self._read(data) if response.status_code == 200 else self._refused(response, data)

    def clean(self, text: str) -> str:
        """What may be shown and kept of what an endpoint says: short, on one line, without the token."""
        hidden = text.replace(self._token, "***") if self._token else text
        return " ".join(hidden.split())[:ANSWER_SHOWN]

    def _refused(self, response: httpx2.Response, data: bytes) -> NoReturn:
        code = response.status_code
        said = self.clean(f"{code} {response.reason_phrase}: {data[:2000].decode('utf-8', 'replace')}")
        if code == 429 or code >= 500 or code == 408:
            raise LostError(said, after=seconds_of(response.headers.get("Retry-After", "")))
        if code in FATAL or code < 400:
            remedy = f"give the right --endpoint and --model, and the token in {TOKEN}"
            raise InputError(f"the endpoint answers {said}", file=self.address, remedy=remedy)
        raise LostError(said, again=False)

    def _read(self, data: bytes) -> Reply:
        """0 tokens where the endpoint does not count them."""
        try:
            found = json.loads(data)
            text = found["choices"][0]["message"]["content"]
            usage = found.get("usage") or {}
            sent, answered = (usage.get(key, 0) for key in ("prompt_tokens", "completion_tokens"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            shown = self.clean(data[:2000].decode("utf-8", "replace"))
            raise LostError(f"no chat completion: {shown}", charged=True) from None
        if not isinstance(text, str) or not all(type(n) is int and 0 <= n < MOST_TOKENS for n in (sent, answered)):
            raise LostError("no chat completion: content or usage of another kind", charged=True)
        return Reply(text.encode(errors="replace").decode(), sent, answered)  # half a character stops no run


def seconds_of(value: str) -> float | None:
    """Retry-After: seconds, or a date (RFC 9110, 10.2.3); None for neither."""
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
