"""Judges at an address: an OpenAI-compatible chat endpoint, and one that reranks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Thread
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

from capgrade.apps.judging.question import ChatPrompt, Question
from capgrade.apps.judging.reply import LostError, Reply
from capgrade.pictures.lookup import data_uri
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.hosts import is_loopback

with needs("judge"):
    import httpx2

TOKEN = "CAPGRADE_JUDGE_TOKEN"  # the environment variable that holds the endpoint's token
RERANK = "/rerank"  # how an address ends that reranks
_CHAT = "/chat/completions"
MOST_ANSWERED = 2**24  # bytes of an answer: a hundred tokens with twenty others each have 200,000
_MOST_TOKENS = 10**9  # that one answer may say it took; more is no count
ANSWER_SHOWN = 200  # characters of an answer that are told
_REFUSED = {401, 403, 404, 405}
DOCUMENTS = 100  # of a request to rerank
# For the estimate: characters of a token, tokens of a picture of 512 x 512 pixels (width x height /
# 750, as Anthropic counts them; Qwen's models have one for each 28 x 28) and of an answer whose
# prompt sets no limit.
CHARACTERS, OF_PICTURE, OF_ANSWER = 4, 350, 16


class Endpoint:
    """An address, with the token of the environment. Threads may ask at the same time.

    A connection that fails is tried `retries` times again by httpx2. InputError for what is no
    address, for one that names a user or a key, and for a token that no header can carry, or that
    would be sent unencrypted.
    """

    def __init__(self, endpoint: str, model: str, timeout: float, retries: int = 0) -> None:
        address, token = endpoint.rstrip("/"), os.environ.get(TOKEN)
        try:
            parts, url = urlsplit(endpoint), httpx2.URL(endpoint)
            known_host = url.host and url.raw_host.decode().encode("idna").decode("idna")
            is_address = parts.scheme in ("http", "https") and parts.port != 0 and bool(known_host)
        # For lone brackets, a port that is no number, and a name that no host can have.
        except (ValueError, httpx2.InvalidURL):
            is_address = False
        if not is_address:
            raise InputError(
                "not an address", file=endpoint, remedy="give --endpoint like https://HOST/v1"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            remedy = f"give the address alone, and the token in {TOKEN}"
            raise InputError("the endpoint's address carries more than a place", remedy=remedy)
        if not model.isprintable():
            raise InputError(
                "the model's name is no text", remedy="give --judge-model as the endpoint lists it"
            )
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise InputError(
                f"{TOKEN} holds a space or another character that no token has",
                remedy="set it anew",
            )
        if token and parts.scheme == "http" and not is_loopback(str(parts.hostname)):
            remedy = f"give an https address, or unset {TOKEN}"
            raise InputError("the token would be sent unencrypted", file=address, remedy=remedy)
        self.model, self._token, self._timeout = model, token or None, timeout
        self.address = (
            address if address.endswith(RERANK) else f"{address.removesuffix(_CHAT)}{_CHAT}"
        )
        self._loop = _event_loop(os.getpid())
        # Answers are short, and a packed one could unpack to anything.
        headers = {"Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        limits = httpx2.Limits(max_connections=None)
        # Given as `mounts`: with `transport` httpx2 ignores a proxy of the environment.
        transports = {"all://": httpx2.AsyncHTTPTransport(retries=retries, limits=limits)}
        # httpx2's own timeout is of each read, so that one byte now and then would never end.
        self.client = httpx2.AsyncClient(
            headers=headers, timeout=None, limits=limits, mounts=transports
        )

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"

    def post(self, body: dict[str, Any]) -> Any:
        """The JSON that one request brings, whole, within the timeout. Raises LostError, and
        InputError where the endpoint refuses whoever asks."""
        asked = asyncio.run_coroutine_threadsafe(self._post(body), self._loop)
        try:
            response, content = asked.result()
        except LostError:
            raise
        except httpx2.ConnectError as error:
            raise LostError(f"cannot be reached ({self.clean(str(error))})") from None
        except TimeoutError:
            problem = f"no whole answer within {self._timeout:g} seconds"
            raise LostError(problem, charged=True) from None
        except Exception as error:
            raise LostError(
                f"{type(error).__name__}: {self.clean(str(error))}", charged=True
            ) from None
        text = content.decode(errors="replace")
        if response.status_code != 200:
            self._raise_refusal(response, text)
        try:
            return json.loads(content)
        except Exception:  # of other bytes, brackets without end, a number of thousands of digits
            self.raise_unusable("no JSON", text)

    async def _post(self, body: dict[str, Any]) -> tuple[httpx2.Response, bytes]:
        """A response and its bytes. LostError for more than MOST_ANSWERED, and for packed ones."""
        content = bytearray()
        asked = {"model": self.model, **body}
        async with (
            asyncio.timeout(self._timeout),
            self.client.stream("POST", self.address, json=asked) as response,
        ):
            if (packed := response.headers.get("Content-Encoding", "identity")) != "identity":
                raise LostError(f"an answer packed by {self.clean(packed)}", charged=True)
            async for part in response.aiter_raw():
                content += part
                if len(content) > MOST_ANSWERED:
                    problem = f"an answer of more than {MOST_ANSWERED:,} bytes"
                    raise LostError(problem, charged=True)
        return response, bytes(content)

    def clean(self, text: str) -> str:
        """An endpoint's text as it may be shown and kept: short, on one line, without the token."""
        # A surrogate without its other half cannot be written, and must not stop a run.
        readable = text[:2000].encode(errors="replace").decode()
        hidden = readable.replace(self._token, "***") if self._token else readable
        return " ".join(hidden.split())[:ANSWER_SHOWN]

    def raise_unusable(self, what: str, answer: Any) -> NoReturn:
        """LostError for an answer, paid for, that cannot be read."""
        raise LostError(f"{what}: {self.clean(str(answer))}", charged=True) from None

    def _raise_refusal(self, response: httpx2.Response, text: str) -> NoReturn:
        code = response.status_code
        answer = self.clean(f"{code} {response.reason_phrase}: {text}")
        if code in _REFUSED or code < 400:
            remedy = f"give the right --endpoint and --judge-model, and the token in {TOKEN}"
            raise InputError(f"the endpoint answers {answer}", file=self.address, remedy=remedy)
        after = response.headers.get("Retry-After", "").strip()
        raise LostError(answer, after=float(after) if after.isdecimal() else 0.0)


class ChatJudge:
    """A chat model, which is asked one question at a time."""

    reads: Literal["chat", "rank"] = "chat"
    batch_size, counts_tokens, one_thread = 1, True, False

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.name = endpoint, f"chat {endpoint.model}"

    def group_key(self, question: Question) -> object:
        return question

    def ask(self, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> Reply:
        """The expected grade where the endpoint gives log-probabilities, else the answer."""
        (question,) = questions
        prompt = question.prompt
        assert isinstance(prompt, ChatPrompt)
        picture = None if question.image is None else data_uri(pictures[question.image], "jpeg")
        messages = prompt.messages(question, picture)
        completion = self.endpoint.post({"messages": messages, **prompt.request})
        try:
            choice = completion["choices"][0]
            text = choice["message"]["content"]
            score = prompt.score(text)
        except Exception:
            self.endpoint.raise_unusable("no chat completion", completion)
        expected = None if score is None else _expected_grade(prompt, choice, score)
        grade = score if expected is None else expected
        return Reply(
            [grade], [self.endpoint.clean(text)], int(expected is not None), *_tokens(completion)
        )

    def estimate_tokens(self, questions: Sequence[Question]) -> tuple[int, int]:
        (question,) = questions
        prompt = question.prompt
        assert isinstance(prompt, ChatPrompt)
        most = prompt.request.get(
            "max_tokens", prompt.request.get("max_completion_tokens", OF_ANSWER)
        )
        sent = (len(prompt.system) + len(question.text)) // CHARACTERS + OF_PICTURE * (
            question.image is not None
        )
        return sent, int(most)


class RerankJudge:
    """A reranker at an address that takes {model, query, documents} and answers {results: [{index,
    relevance_score}]}, as those of Cohere, Jina and vLLM do. A picture is a query as vLLM takes it:
    {content: [{type: image_url, ...}]}."""

    reads: Literal["chat", "rank"] = "rank"
    batch_size, counts_tokens, one_thread = DOCUMENTS, True, False

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.name = endpoint, f"rerank {endpoint.model}"

    def group_key(self, question: Question) -> object:
        return question.prompt.digest, question.text, question.image

    def ask(self, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> Reply:
        prompt, image = questions[0].prompt, questions[0].image
        query: Any = questions[0].text
        if image is not None:
            url = data_uri(pictures[image], "jpeg")
            query = {"content": [{"type": "image_url", "image_url": {"url": url}}]}
        documents = [question.document for question in questions]
        completion = self.endpoint.post({"query": query, "documents": documents, **prompt.request})
        try:
            scores = {
                int(result["index"]): float(result["relevance_score"])
                for result in completion["results"]
            }
        except Exception:
            self.endpoint.raise_unusable("no results of a reranker", completion)
        if scores.keys() != set(range(len(documents))):
            self.endpoint.raise_unusable(
                f"not one result for each of {len(documents)} documents", completion
            )
        if off := [score for score in scores.values() if not 0 <= score <= 1]:
            remedy = "serve the model with a sigmoid over its scores"
            raise InputError(
                f"relevance_score {off[0]:g}, not 0 to 1", file=self.endpoint.address, remedy=remedy
            )
        return Reply(
            [scores[k] for k in range(len(documents))],
            [""] * len(documents),
            0,
            *_tokens(completion),
        )

    def estimate_tokens(self, questions: Sequence[Question]) -> tuple[int, int]:
        characters = sum(len(question.text) + len(question.document) for question in questions)
        return characters // CHARACTERS + OF_PICTURE * (questions[0].image is not None), 0


def _expected_grade(prompt: ChatPrompt, choice: Any, score: float) -> float | None:
    """The expected grade by a choice's log-probabilities. None where it has none or odd ones: the
    answer itself counts then."""
    try:
        return prompt.expected_grade(choice["logprobs"]["content"], score)
    except Exception:
        return None


def _tokens(completion: dict[str, Any]) -> tuple[int, int]:
    """Sent and answered, 0 where the endpoint does not count them; a reranker may count both
    together."""
    usage = completion.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    counts = usage.get("prompt_tokens", usage.get("total_tokens")), usage.get("completion_tokens")
    sent, answered = (
        count if type(count) is int and 0 <= count <= _MOST_TOKENS else 0 for count in counts
    )
    return sent, answered


@lru_cache(maxsize=1)
def _event_loop(process: int) -> asyncio.AbstractEventLoop:
    """The loop that all requests of this process run in, in a thread of its own."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="judge", daemon=True).start()
    return loop
