"""A round of questions: what is not answered yet, asked by several threads; each answer is kept as it comes."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

import numpy as np

from capgrade.measures.embeddings import cache_folder
from capgrade.pipelines.judging.endpoint import Endpoint, StoppedError
from capgrade.pipelines.judging.question import NoAnswerError, Shown
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE
from capgrade.schemas.lines import append_line, appended_lines
from capgrade.schemas.progress import progress

IN_A_ROW = 20  # questions without an answer, after which nothing more is asked


@dataclass
class JudgingRound:
    """Pairs to ask about: image and caption int64 [n]. `stopped` says why questions are left, None where there are
    none. `keys` has the digest of each pair's question, or `lacking` why there is none. A model's answers to a prompt
    are `known` by digest, and `kept` in a file to which several runs may add. InputError for a damaged one."""

    shown: Shown
    image: np.ndarray
    caption: np.ndarray
    judge: Endpoint
    stopped: str | None = None
    failed: dict[str, str] = field(default_factory=dict)  # key -> why there is no answer
    in_vain: int = 0  # how many of the last questions had no answer

    def __post_init__(self) -> None:
        name = hashlib.sha256(f"{self.shown.model}\0{self.shown.prompt.digest}".encode()).hexdigest()[:32]
        self.kept, self.known = cache_folder().parent / "judge" / f"{name}.jsonl", dict[str, float]()
        for row, text in appended_lines(self.kept, "key") if self.kept.is_file() else ():
            try:
                line = json.loads(text)
            except ValueError as error:
                problem = f"not an answer ({error})"
                raise InputError(problem, file=self.kept, row=row, remedy="remove the line") from error
            self.known[str(line["key"])] = float(line["score"])
        pairs = list(zip(self.image.tolist(), self.caption.tolist(), strict=True))
        why = {k: self.shown.lacks(*pair) for k, pair in enumerate(pairs)}
        self.lacking = {k: reason for k, reason in why.items() if reason is not None}
        self.keys = {k: self.shown.key(*pair) for k, pair in enumerate(pairs) if k not in self.lacking}

    def run(self, parallel: int) -> None:
        """Ask what is not answered, equal questions once. Raises what ended one, once all have come back."""
        todo: dict[str, int] = {}
        for k, key in self.keys.items():
            if key not in self.known:
                todo.setdefault(key, k)
        with progress("asking", len(todo)) as advance, ThreadPoolExecutor(parallel) as pool:
            try:
                for asked in as_completed([pool.submit(self._ask, key, k) for key, k in todo.items()]):
                    if asked.result():
                        advance()
            except BaseException:
                self.judge.stop.set()  # what is under way is paid for, so it is waited for and kept
                raise

    def _ask(self, key: str, k: int) -> bool:
        """Whether it was asked: nothing is, once the judge has stopped."""
        if self.judge.stop.is_set():
            return False
        try:
            messages = self.shown.messages(int(self.image[k]), int(self.caption[k]))
            score, text = self.judge.ask(messages)
            append_line(self.kept, {"key": key, "score": score, "text": text}, CACHE)  # on the disk on return
            self.known[key], self.in_vain = score, 0
        except NoAnswerError as error:
            self.failed[key] = str(error)
            self.in_vain += 1
            if self.in_vain >= IN_A_ROW:
                self._stop(f"{IN_A_ROW} questions in a row had no answer, the last: {error}")
        except StoppedError as error:
            self._stop(str(error))
        except BaseException:
            self.judge.stop.set()
            raise
        return True

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self.judge.stop.set()
