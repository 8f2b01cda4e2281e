"""A round of questions to a judge. Those without a kept answer are asked, within the limits of
speed and cost, and each answer is kept as it comes.

Each thread takes one request to its end. What they share, when the next request may go and what was
spent, changes under one lock.
"""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from threading import Condition

import numpy as np

from capgrade.apps.judging.question import Prompt, Question
from capgrade.apps.judging.reply import Judge, LostError, Reply
from capgrade.pictures.lookup import PictureLookup, encode_image
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, cache_folder, canonical
from capgrade.schemas.lines import append_lines, appended_lines
from capgrade.schemas.params import JudgeParams
from capgrade.schemas.progress import progress
from capgrade.schemas.reading import reading

_SIDE = 512  # pixels of a picture's longer side
UNANSWERED_REQUESTS = 20  # in a row, after which nothing more is asked
_PATIENCE = 600.0  # seconds that an endpoint may ask to wait
Batch = list[Question]


class JudgingRound:
    """Pairs to ask a judge about: image and caption int64 [n]; with `pictures`, each image's goes
    along.

    `questions` has a list for each pair and prompt, in that order; equal ones are the same. A
    judge's answers are `kept` by the digest of the question, in a file to which several runs may
    add. `stopped` says why questions are left, None where there are none. `requests`, `sent` and
    `answered` (tokens), `expected` (scores from probabilities) and `spent` are what it took, at
    prices of a million tokens. InputError for a damaged file.
    """

    def __init__(
        self,
        judge: Judge,
        prompts: Sequence[Prompt],
        captions: Captions,
        pictures: PictureLookup | None,
        image: np.ndarray,
        caption: np.ndarray,
        params: JudgeParams,
    ) -> None:
        self.judge, self.captions, self.pictures, self.params = judge, captions, pictures, params
        self.stopped: str | None = None
        self.requests = self.sent = self.answered = self.expected = 0
        self.spent = 0.0
        # Whoever reads or changes the counts above and below holds this; it also wakes waiters.
        self._changed = Condition()
        self._under_way = 0  # requests that have not come back
        self._in_vain = 0  # the last requests in a row without an answer
        self._next_at = 0.0  # the time from which the next request may go
        self._dearest, self._limit = 0.0, np.inf
        name = hashlib.sha256(judge.name.encode()).hexdigest()[:32]
        self.kept = cache_folder() / "judge" / f"{name}.jsonl"
        known = self._read_answers()
        self._by_key: dict[str, Question] = {}
        digest = cache(self._digest)
        self.questions = [
            self._make_questions(prompt, i, c, digest(i), known)
            for i, c in zip(image.tolist(), caption.tolist(), strict=True)
            for prompt in prompts
        ]

    def _read_answers(self) -> dict[str, float]:
        """The answers of runs before, by the digest of the question."""
        known: dict[str, float] = {}
        for row, text in appended_lines(self.kept, "key") if self.kept.is_file() else ():
            with reading(self.kept, row=row, remedy="remove the line"):
                line = json.loads(text)
                known[str(line["key"])] = float(line["score"])
        return known

    def _make_questions(
        self,
        prompt: Prompt,
        image: int,
        caption: int,
        picture: str | None,
        known: Mapping[str, float],
    ) -> Batch:
        """The questions of one pair and prompt; where nothing can be asked, one without a key."""
        rows = self.captions.rows_of(image) if prompt.reads_captions else ()
        others = [self.captions.texts[row] for row in rows if row != caption]
        reason = None
        if self.pictures is not None and picture is None:
            reason = "no picture of the image"
        elif prompt.reads_captions and not others:
            reason = "the image has no other caption"
        if reason is not None:
            return [Question(prompt, "", reason=reason)]
        shown = None if self.pictures is None else self.captions.image_ids[image]
        questions = []
        for question in prompt.questions(self.captions.texts[caption], others, shown):
            picture_read = None if shown is None else [_SIDE, picture]
            content = canonical(
                [self.judge.name, prompt.digest, question.text, question.document, picture_read]
            )
            question.key = hashlib.sha256(content.encode()).hexdigest()
            question.score = known.get(question.key)
            questions.append(self._by_key.setdefault(question.key, question))
        return questions

    def _digest(self, image: int) -> str | None:
        """SHA-256 of its picture."""
        data = None if self.pictures is None else self.pictures.read(self.captions.image_ids[image])
        return None if data is None else hashlib.sha256(data).hexdigest()

    def batches(self) -> list[Batch]:
        """The unanswered questions, equal ones once, in batches that the judge takes together."""
        groups: dict[object, Batch] = {}
        for question in self._by_key.values():
            if question.score is None:
                groups.setdefault(self.judge.group_key(question), []).append(question)
        size = self.judge.batch_size
        return [
            group[at : at + size] for group in groups.values() for at in range(0, len(group), size)
        ]

    def estimate_cost(self, batches: Sequence[Batch]) -> tuple[int, int, float]:
        """About how many tokens these batches send, at most how many the answers have, and the
        cost."""
        sent, answered = np.sum(
            [self.judge.estimate_tokens(batch) for batch in batches] or [(0, 0)], axis=0
        ).tolist()
        return sent, answered, self._price(sent, answered)

    def _price(self, sent: int, answered: int) -> float:
        return (sent * self.params.price_in + answered * self.params.price_out) / 1e6

    def run(self, batches: Sequence[Batch], max_cost: float | None = None) -> None:
        """Ask these. With `max_cost` a request goes only if it fits beside those under way, each
        taken to cost as much as expected, or as the dearest so far; the first goes alone, since
        little is known. Raises what ended it, once all requests have come back: they are paid for,
        and their answers are kept."""
        self._limit = np.inf if max_cost is None else max_cost
        threads = 1 if self.judge.one_thread else self.params.parallel
        with (
            progress("asking", sum(map(len, batches))) as advance,
            ThreadPoolExecutor(threads) as pool,
        ):
            try:
                for ended in as_completed(
                    [pool.submit(self._ask_batch, batch) for batch in batches]
                ):
                    advance(ended.result())
            except BaseException:
                self._stop("interrupted")
                raise

    def _stop(self, why: str) -> None:
        with self._changed:
            self.stopped = self.stopped or why
            self._changed.notify_all()

    def _ask_batch(self, batch: Batch) -> int:
        """Ask once, keep what counts, and return how many questions were settled: none where the
        run was stopped before."""
        if self.stopped:
            return 0
        pictures = {
            question.image: self._picture(question.image)
            for question in batch
            if question.image is not None
        }
        for question in batch:
            if question.image is not None and pictures[question.image] is None:
                question.reason = f"no readable picture of image {question.image}"
        shown = {image: data for image, data in pictures.items() if data is not None}
        asked = [question for question in batch if question.reason is None]
        reply = self._send(asked, shown) if asked else Reply([], [])
        if reply is None:
            return 0
        if isinstance(reply, LostError):
            for question in asked:
                question.reason = str(reply)
        with self._changed:
            answered = any(question.score is not None for question in batch)
            self._in_vain = 0 if answered else self._in_vain + bool(asked)
            if self._in_vain >= UNANSWERED_REQUESTS:
                last = batch[-1].reason
                self._stop(
                    f"{UNANSWERED_REQUESTS} requests in a row had no answer, the last: {last}"
                )
        return len(batch)

    def _keep(self, batch: Batch, reply: Reply) -> None:
        """Give questions their scores, or the reason why there is none; scores are on the disk on
        return."""
        answers = []
        for question, score, text in zip(batch, reply.scores, reply.texts, strict=True):
            if score is None or not math.isfinite(score):
                question.reason = f"answered {text or score!r}"
            else:
                question.score = score
                answers.append({"key": question.key, "score": score, "text": text})
        append_lines(self.kept, answers, CACHE)

    def _picture(self, image_id: str) -> bytes | None:
        """As JPEG, at most _SIDE pixels wide and high."""
        image = None if self.pictures is None else self.pictures.image(image_id)
        return None if image is None else encode_image(image, _SIDE, "JPEG", 90)

    def _send(self, batch: Batch, pictures: Mapping[str, bytes]) -> Reply | LostError | None:
        """One request, as soon as it may go; None if the run was stopped before."""
        expected = self._price(*self.judge.estimate_tokens(batch))
        with self._changed:
            while not self.stopped:
                fits = (
                    self.spent + (self._under_way + 1) * max(self._dearest, expected) <= self._limit
                )
                fits &= self._limit == np.inf or self._dearest > 0 or not self._under_way
                pause = self._next_at - time.monotonic() if fits else None
                if pause is not None and pause <= 0:
                    self._next_at = time.monotonic() + 60 / (self.params.per_minute or np.inf)
                    self._under_way += 1
                    break
                if not fits and not self._under_way:
                    self._stop(
                        f"the limit of cost ({self._limit:g}) leaves no room for another request"
                    )
                else:
                    self._changed.wait(pause)
            else:
                return None
        reply: Reply | LostError
        try:
            reply = self.judge.ask(batch, pictures)
            self._keep(batch, reply)  # before anything is computed of it: it is paid for
            if self._limit < np.inf and self.judge.counts_tokens and not reply.sent:
                remedy = "leave --max-cost out, or ask an endpoint that counts tokens"
                raise InputError("answers do not say how many tokens they cost", remedy=remedy)
        except LostError as error:
            reply = error
        except BaseException:
            self._stop("refused")  # before this thread goes on to another question
            raise
        with self._changed:
            self._under_way, self.requests = self._under_way - 1, self.requests + 1
            if isinstance(reply, Reply):
                cost = self._price(reply.sent, reply.answered)
                self._dearest = max(cost, self._dearest)
                self.sent, self.answered = self.sent + reply.sent, self.answered + reply.answered
                self.expected += reply.expected
            else:  # one that may be charged counts as the dearest so far
                cost = max(self._dearest, expected) if reply.charged else 0.0
                self._next_at = max(self._next_at, time.monotonic() + reply.after)
            self.spent += cost
            self._changed.notify_all()
        if isinstance(reply, LostError) and reply.after > _PATIENCE:
            self._stop(f"the endpoint asks to wait {reply.after:,.0f} seconds")
        return reply
