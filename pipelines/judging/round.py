"""A round of questions: what a judge is shown of each pair; what is not answered yet, asked as fast and for as much as
it may be; each answer is kept as it comes.

Each thread takes one question to its end. What they share, when the next request may go and what was spent, changes
under one lock.
"""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from threading import Condition
from typing import Any

import numpy as np

from capgrade.measures.embeddings import cache_folder
from capgrade.pictures.lookup import PictureLookup, data_uri, encoded
from capgrade.pipelines.judging.endpoint import ANSWER_SHOWN, Endpoint, LostError, Reply
from capgrade.pipelines.judging.question import Prompt
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, canonical
from capgrade.schemas.lines import append_line, appended_lines
from capgrade.schemas.params import JudgeParams
from capgrade.schemas.progress import progress

_SIDE = 512  # pixels of a picture's longer side
UNANSWERED_QUESTIONS = 20  # questions without an answer, after which nothing more is asked
FIRST_WAIT, LONGEST_WAIT, _PATIENCE = 1.0, 30.0, 600.0  # seconds: between tries, and that an endpoint may ask for


@dataclass(eq=False)
class Question:
    """What a judge is asked, by the numbers of the first pair that it is about; then its score, or the reason why there
    is none."""

    image: int
    caption: int
    key: str = ""
    score: float | None = None
    reason: str | None = None


@dataclass
class JudgingRound:
    """Pairs to ask a judge about: image and caption int64 [n]; with `pictures`, each image's goes along. `questions`
    has one for each pair, the same for equal ones. A model's answers to a prompt are `kept` by the digest of the
    question, in a file to which several runs may add. `stopped` says why questions are left, None where there are none.
    `requests`, `sent` and `answered` (tokens) and `spent` are what it took, at prices of a million tokens in the
    currency of `max_cost`. With that limit, a request goes only if it fits beside those under way, each taken to cost
    as much as the dearest so far; the very first goes alone, since nothing is known. InputError for a damaged file."""

    judge: Endpoint
    prompt: Prompt
    captions: Captions
    pictures: PictureLookup | None
    image: np.ndarray
    caption: np.ndarray
    params: JudgeParams
    max_cost: float | None
    stopped: str | None = None
    requests: int = 0
    sent: int = 0
    answered: int = 0
    spent: float = 0.0

    def __post_init__(self) -> None:
        self._changed = Condition()  # held to look at or change any of these, and what it tells of
        self._flying, self._in_vain, self._free = 0, 0, 0.0  # requests; last questions in vain; when one may go
        self._dearest: float | None = None
        model, prompt = self.judge.model, self.prompt.digest
        name = hashlib.sha256(f"{model}\0{prompt}".encode()).hexdigest()[:32]
        self.kept, known = cache_folder().parent / "judge" / f"{name}.jsonl", dict[str, float]()
        for row, text in appended_lines(self.kept, "key") if self.kept.is_file() else ():
            try:
                line = json.loads(text)
                known[str(line["key"])] = float(line["score"])
            except (ValueError, KeyError, TypeError) as error:
                problem = f"not an answer ({error})"
                raise InputError(problem, file=self.kept, row=row, remedy="remove the line") from error
        self.questions, asked, digest = list[Question](), dict[str, Question](), cache(self._digest)
        for image, caption in zip(self.image.tolist(), self.caption.tolist(), strict=True):
            question, others, picture = Question(image, caption), self._others(image, caption), digest(image)
            if self.pictures is not None and picture is None:
                question.reason = "no picture of the image"
            elif self.prompt.reads_captions and not others:
                question.reason = "the image has no other caption"
            else:
                seen = None if self.pictures is None else [_SIDE, picture]
                said = canonical([model, prompt, self.captions.texts[caption], others, seen])
                question.key = hashlib.sha256(said.encode()).hexdigest()
                question.score = known.get(question.key)
                question = asked.setdefault(question.key, question)
            self.questions.append(question)

    def _others(self, image: int, caption: int) -> list[str]:
        """The image's captions without this one; none where the prompt does not show them."""
        rows = self.captions.rows_of(image) if self.prompt.reads_captions else ()
        return [self.captions.texts[row] for row in rows if row != caption]

    def _digest(self, image: int) -> str | None:
        """SHA-256 of its picture."""
        data = None if self.pictures is None else self.pictures.read(self.captions.image_ids[image])
        return None if data is None else hashlib.sha256(data).hexdigest()

    def run(self) -> None:
        """Ask what is not answered, equal questions once. Raises what ended it, once all requests have come back: they
        are paid for, and their answers are kept."""
        todo = [one for one in dict.fromkeys(self.questions) if one.score is None and one.reason is None]
        with progress("asking", len(todo)) as advance, ThreadPoolExecutor(self.params.parallel) as pool:
            try:
                for ended in as_completed([pool.submit(self._settle, question) for question in todo]):
                    advance(ended.result())
            except BaseException:
                self._stop("interrupted")
                raise

    def _stop(self, why: str) -> None:
        with self._changed:
            self.stopped = self.stopped or why
            self._changed.notify_all()

    def _settle(self, question: Question) -> int:
        """Ask until an answer counts, or no other try may bring one; 0 if the run was stopped before, else 1."""
        if self.stopped:
            return 0
        picture, wrong, due, reason = None, None, 0.0, ""
        others, tries = self._others(question.image, question.caption), self.params.tries
        if self.pictures is not None:
            shown = self.pictures.image(image_id := self.captions.image_ids[question.image])
            if shown is None:
                tries, reason = 0, f"no readable picture of image {image_id}"
            else:
                picture = data_uri(encoded(shown, _SIDE, "JPEG", 90), "jpeg")
        for tried in range(tries):
            reply = self._ask(self.prompt.messages(self.captions.texts[question.caption], others, picture, wrong), due)
            if reply is None:
                return 0
            if isinstance(reply, Reply):
                score, text = self.prompt.score(reply.text), self.judge.clean(reply.text)
                if score is not None:
                    line = {"key": question.key, "score": score, "text": text}
                    append_line(self.kept, line, CACHE)  # on the disk on return
                    question.score = score
                    with self._changed:
                        self._in_vain = 0
                    return 1
                wrong, reason = reply.text[:ANSWER_SHOWN], f"answered {text!r}"
                continue
            reason = str(reply)
            if not reply.again:
                break
            if reply.after is None:
                due = time.monotonic() + min(FIRST_WAIT * 2**tried, LONGEST_WAIT)
        question.reason = reason
        with self._changed:
            self._in_vain += 1
            if self._in_vain >= UNANSWERED_QUESTIONS:
                self._stop(f"{UNANSWERED_QUESTIONS} questions in a row had no answer, the last: {reason}")
        return 1

    def _ask(self, messages: list[dict[str, Any]], due: float) -> Reply | LostError | None:
        """One request, at `due` or later, as soon as it may go; None if the run was stopped before."""
        with self._changed:
            while not self.stopped:
                now, fits = time.monotonic(), self.max_cost is None or not self._flying
                if self.max_cost is not None and self._dearest is not None:
                    fits = self.spent + (self._flying + 1) * self._dearest <= self.max_cost
                pause = max(due, self._free) - now if fits else None
                if pause is not None and pause <= 0:
                    self._free = now + 60 / (self.params.per_minute or np.inf)
                    self._flying += 1
                    break
                if not fits and not self._flying:
                    self._stop(f"the limit of cost ({self.max_cost:g}) leaves no room for another request")
                else:
                    self._changed.wait(pause)
            else:
                return None
        reply: Reply | LostError
        try:
            reply = self.judge.ask(messages, self.prompt.request)
            if self.max_cost is not None and not reply.sent:
                remedy = "leave --max-cost out, or ask an endpoint that counts tokens"
                raise InputError("answers do not say how many tokens they cost", file=self.judge.address, remedy=remedy)
        except LostError as error:
            reply = error
        except BaseException:
            self._stop("refused")  # before this thread goes on to another question
            raise
        with self._changed:
            self._flying, self.requests = self._flying - 1, self.requests + 1
            if isinstance(reply, Reply):
                cost = (reply.sent * self.params.price_in + reply.answered * self.params.price_out) / 1e6
                self._dearest = max(cost, self._dearest or 0.0)
                self.sent, self.answered = self.sent + reply.sent, self.answered + reply.answered
            else:  # one that may be charged counts as the dearest so far
                cost = (self._dearest or 0.0) if reply.charged else 0.0
                self._free = max(self._free, time.monotonic() + (reply.after or 0.0))
            self.spent += cost
            self._changed.notify_all()
        if isinstance(reply, LostError) and (reply.after or 0.0) > _PATIENCE:
            self._stop(f"the endpoint asks to wait {reply.after:,.0f} seconds")
            return None
        return reply
