"""A round of questions: what a judge is shown of each pair; what is not answered yet, asked as fast and for as much as
it may be; each answer is kept as it comes.

Threads carry one request each. All else, when the next one may go, what was spent, what is asked again, is done by the
thread that started them.
"""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np

from capgrade.measures.embeddings import cache_folder
from capgrade.pipelines.judging.endpoint import SHOWN, Endpoint, LostError, Reply
from capgrade.pipelines.judging.question import Prompt
from capgrade.pipelines.pictures.lookup import PictureLookup, data_uri, encoded
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, canonical
from capgrade.schemas.lines import append_line, appended_lines
from capgrade.schemas.params import JudgeParams
from capgrade.schemas.progress import progress

SIDE = 512  # pixels of a picture's longer side
IN_A_ROW = 20  # questions without an answer, after which nothing more is asked
FIRST_WAIT, LONGEST_WAIT, PATIENCE = 1.0, 30.0, 600.0  # seconds: between tries, and that an endpoint may ask for


class UnreadableError(Exception):
    """There is no picture to show."""


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

    def fits(self, flying: int) -> bool:
        """Whether another request may go beside so many."""
        if self.limit is None:
            return True
        if self.dearest is None:
            return flying == 0
        return self.spent + (flying + 1) * self.dearest <= self.limit

    def pay(self, sent: int, answered: int) -> None:
        """A request brought an answer."""
        cost = (sent * self.price_in + answered * self.price_out) / 1e6
        self.sent, self.answered, self.spent = self.sent + sent, self.answered + answered, self.spent + cost
        self.dearest = max(cost, self.dearest or 0.0)
        self.requests += 1

    def lose(self, charged: bool) -> None:
        """A request brought no answer; one that may be charged counts as the dearest so far."""
        self.spent += (self.dearest or 0.0) if charged else 0.0
        self.requests += 1


@dataclass(eq=False)
class Question:
    """What a judge is asked, by the numbers of the first pair that it is about; then its score, or the reason why there
    is none; how often it was asked, when it may be next, and the last answer that did not count."""

    image: int
    caption: int
    key: str = ""
    score: float | None = None
    reason: str | None = None
    tries: int = 0
    due: float = 0.0
    wrong: str | None = None


@dataclass
class JudgingRound:
    """Pairs to ask a judge about: image and caption int64 [n]; with `pictures`, each image's goes along. `questions`
    has one for each pair, the same for equal ones. A model's answers to a prompt are `kept` by the digest of the
    question, in a file to which several runs may add. `stopped` says why questions are left, None where there are none.
    InputError for a damaged file."""

    judge: Endpoint
    prompt: Prompt
    captions: Captions
    pictures: PictureLookup | None
    image: np.ndarray
    caption: np.ndarray
    params: JudgeParams
    max_cost: float | None
    stopped: str | None = None
    in_vain: int = 0  # how many of the last questions had no answer
    free: float = 0.0  # when the next request may go

    def __post_init__(self) -> None:
        self.budget = Budget(self.params.price_in, self.params.price_out, self.max_cost)
        model, prompt = self.judge.model, self.prompt.digest
        name = hashlib.sha256(f"{model}\0{prompt}".encode()).hexdigest()[:32]
        self.kept, known = cache_folder().parent / "judge" / f"{name}.jsonl", dict[str, float]()
        for row, text in appended_lines(self.kept, "key") if self.kept.is_file() else ():
            try:
                line = json.loads(text)
            except ValueError as error:
                problem = f"not an answer ({error})"
                raise InputError(problem, file=self.kept, row=row, remedy="remove the line") from error
            known[str(line["key"])] = float(line["score"])
        self.questions, asked, digest = list[Question](), dict[str, Question](), cache(self._digest)
        for image, caption in zip(self.image.tolist(), self.caption.tolist(), strict=True):
            question, others, picture = Question(image, caption), self._others(image, caption), digest(image)
            if self.pictures is not None and picture is None:
                question.reason = "no picture of the image"
            elif self.prompt.reads_captions and not others:
                question.reason = "the image has no other caption"
            else:
                seen = None if self.pictures is None else [SIDE, picture]
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

    def _ask(self, question: Question) -> Reply:
        """UnreadableError for a picture that is no picture."""
        picture = None
        if self.pictures is not None:
            shown = self.pictures.image(image_id := self.captions.image_ids[question.image])
            if shown is None:
                raise UnreadableError(f"no readable picture of image {image_id}")
            picture = data_uri(encoded(shown, SIDE, "JPEG", 90), "jpeg")
        others = self._others(question.image, question.caption)
        messages = self.prompt.messages(self.captions.texts[question.caption], others, picture, question.wrong)
        return self.judge.ask(messages, self.prompt.request)

    def run(self) -> None:
        """Ask what is not answered, equal questions once. Raises what ended it, once all requests have come back: they
        are paid for, and their answers are kept."""
        todo = [one for one in dict.fromkeys(self.questions) if one.score is None and one.reason is None]
        fresh, parallel, flying = iter(todo), self.params.parallel, dict[Future[Reply], Question]()
        with progress("asking", len(todo)) as advance, ThreadPoolExecutor(parallel) as pool:
            try:
                waiting = list(islice(fresh, parallel))  # with those under way as many, so that old ones end first
                while flying or (waiting and not self.stopped):
                    pause = self._start(pool, waiting, flying)
                    if not flying:
                        time.sleep(pause or 0.0)
                    for reply in wait(flying, pause, FIRST_COMPLETED).done:
                        question = flying.pop(reply)
                        if self._ended(question, reply):
                            advance()
                            waiting += islice(fresh, 1)
                        else:
                            waiting.append(question)
            except BaseException:
                for reply, question in flying.items():
                    with suppress(Exception):
                        self._ended(question, reply)
                raise

    def _start(
        self, pool: ThreadPoolExecutor, waiting: list[Question], flying: dict[Future[Reply], Question]
    ) -> float | None:
        """Ask whatever may be asked now; in how many seconds the next may be, None if not before a reply."""
        while waiting and not self.stopped:
            if not self.budget.fits(len(flying)):
                if not flying:
                    self.stopped = f"the limit of cost ({self.max_cost:g}) leaves no room for another request"
                return None
            question, now = min(waiting, key=lambda one: one.due), time.monotonic()
            if (pause := max(question.due, self.free) - now) > 0:
                return pause
            self.free = now + 60 / (self.params.per_minute or np.inf)
            waiting.remove(question)
            flying[pool.submit(self._ask, question)] = question
        return None

    def _ended(self, question: Question, reply: Future[Reply]) -> bool:
        """Keep what came back. Whether nothing more is to be asked about the pair."""
        again, question.tries = False, question.tries + 1
        try:
            text, sent, answered = reply.result()
        except UnreadableError as error:
            reason = str(error)
        except LostError as error:
            self.budget.lose(error.charged)
            reason, again = str(error), error.again
            if error.after is None:
                question.due = time.monotonic() + min(FIRST_WAIT * 2 ** (question.tries - 1), LONGEST_WAIT)
            elif error.after > PATIENCE:
                self.stopped = self.stopped or f"the endpoint asks to wait {error.after:,.0f} seconds"
                return False
            else:
                self.free = max(self.free, time.monotonic() + error.after)
        else:
            self.budget.pay(sent, answered)
            if self.max_cost is not None and not sent:
                remedy = "leave --max-cost out, or ask an endpoint that counts tokens"
                raise InputError("answers do not say how many tokens they cost", file=self.judge.address, remedy=remedy)
            score, shown = self.prompt.score(text), self.judge.clean(text)
            if score is not None:
                line = {"key": question.key, "score": score, "text": shown}
                append_line(self.kept, line, CACHE)  # on the disk on return
                question.score, self.in_vain = score, 0
                return True
            question.wrong, reason, again = text[:SHOWN], f"answered {shown!r}", True
        if again and question.tries < self.params.tries:
            return False
        question.reason = reason
        self.in_vain += 1
        if self.in_vain >= IN_A_ROW:
            self.stopped = self.stopped or f"{IN_A_ROW} questions in a row had no answer, the last: {reason}"
        return True
