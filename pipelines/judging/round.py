"""A round of questions: what is not answered yet, asked by several threads; each answer is kept as it comes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from capgrade.pipelines.judging.endpoint import Endpoint, NoAnswerError, StoppedError
from capgrade.pipelines.judging.question import Shown
from capgrade.pipelines.measures.embeddings import cache_folder
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, writing
from capgrade.schemas.progress import Advance, progress

IN_A_ROW = 20  # questions without an answer, after which nothing more is asked


@dataclass
class Answers:
    """Scores by the digest of what was asked. Several runs may add at the same time."""

    path: Path
    scores: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(model: str, prompt: str) -> Answers:
        """Those of this model to this prompt, in `$CAPGRADE_CACHE/judge`. InputError for a damaged file."""
        name = hashlib.sha256(f"{model}\0{prompt}".encode()).hexdigest()[:32]
        path = cache_folder().parent / "judge" / f"{name}.jsonl"
        return Answers(path, _read(path) if path.is_file() else {})

    def add(self, key: str, score: float, text: str) -> None:
        """Keep an answer; it is on the disk on return."""
        line = json.dumps({"key": key, "score": score, "text": text}, ensure_ascii=False).encode()
        with self.lock, writing(self.path, CACHE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)  # until it is closed
                end = file.seek(0, os.SEEK_END)
                if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                    file.write(b"\n")  # after a line that a crash cut short
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self.scores[key] = score


def _read(path: Path) -> dict[str, float]:
    """A line that does not end as one was cut short by a crash."""
    found = {}
    for row, text in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line = json.loads(text) if text else None
        except ValueError as error:
            if text.startswith(b'{"key"'[: len(text)]) and not text.endswith(b"}"):
                continue
            raise InputError(f"not an answer ({error})", file=path, row=row, remedy="remove the line") from error
        if line is not None:
            found[str(line["key"])] = float(line["score"])
    return found


@dataclass
class Round:
    """`stopped` says why questions are left, None where there are none."""

    shown: Shown
    image: np.ndarray
    caption: np.ndarray
    answers: Answers
    judge: Endpoint
    stopped: str | None = None
    keys: list[str | None] = field(default_factory=list)  # of each pair; None where nothing can be asked
    failed: dict[str, str] = field(default_factory=dict)  # key -> why there is no answer
    lacking: dict[int, str] = field(default_factory=dict)
    row: int = 0  # how many of the last questions had no answer
    error: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, parallel: int) -> None:
        """Ask what is not answered. Raises what ended a thread, once all have come back."""
        open_ = self._open()
        todo = iter(list(open_.items()))
        with progress("asking", len(open_)) as advance:
            threads = [threading.Thread(target=self._thread, args=(todo, advance)) for _ in range(parallel)]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except BaseException:
                self.judge.stop.set()
                for thread in threads:
                    thread.join()  # what is under way is paid for, so it is kept
                raise
        if self.error is not None:
            raise self.error

    def scores(self) -> dict[int, float]:
        """Pair number -> score, of all answered ones."""
        known = self.answers.scores
        return {k: known[key] for k, key in enumerate(self.keys) if key is not None and key in known}

    def reasons(self) -> dict[int, str]:
        """Pair number -> why it has no answer, of those that were asked in vain."""
        found = {k: self.failed[key] for k, key in enumerate(self.keys) if key is not None and key in self.failed}
        return {**found, **self.lacking}

    def _open(self) -> dict[str, int]:
        """Key -> a pair that asks it: equal questions are asked once."""
        found: dict[str, int] = {}
        for k, (image, caption) in enumerate(zip(self.image.tolist(), self.caption.tolist(), strict=True)):
            why = self.shown.lacks(image, caption)
            if why is not None:
                self.lacking[k] = why
                self.keys.append(None)
                continue
            key = self.shown.key(image, caption)
            self.keys.append(key)
            if key not in self.answers.scores:
                found.setdefault(key, k)
        return found

    def _thread(self, todo: Iterator[tuple[str, int]], advance: Advance) -> None:
        while not self.judge.stop.is_set():
            with self.lock:
                key, k = next(todo, ("", -1))
            if k < 0:
                return
            try:
                self._one(key, k)
            except StoppedError as error:
                self._stop(str(error))
            except BaseException as error:
                self.error = self.error or error
                self.judge.stop.set()
            advance()

    def _one(self, key: str, k: int) -> None:
        try:
            answer = self.judge.ask(self._messages(k))
        except NoAnswerError as error:
            with self.lock:
                self.failed[key] = str(error)
                self.row += 1
            if self.row >= IN_A_ROW:
                self._stop(f"{IN_A_ROW} questions in a row had no answer, the last: {error}")
            return
        self.answers.add(key, answer.score, answer.text)
        self.row = 0

    def _messages(self, k: int) -> list[dict]:
        try:
            return self.shown.messages(int(self.image[k]), int(self.caption[k]))
        except InputError as error:  # a picture that is none
            raise NoAnswerError(error.problem) from None

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self.judge.stop.set()
