"""A round of questions: what a judge is shown of each pair; what is not answered yet, asked by several threads; each
answer is kept as it comes."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from capgrade.measures.embeddings import cache_folder
from capgrade.pipelines.judging.endpoint import Endpoint, StoppedError
from capgrade.pipelines.judging.question import NoAnswerError
from capgrade.pipelines.pictures.lookup import PictureLookup, data_uri, encoded
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, canonical
from capgrade.schemas.lines import append_line, appended_lines
from capgrade.schemas.progress import progress

SIDE = 512  # pixels of a picture's longer side
IN_A_ROW = 20  # questions without an answer, after which nothing more is asked


@dataclass
class JudgingRound:
    """Pairs to ask a judge about: image and caption int64 [n]; with `pictures`, each image's goes along. `keys` has the
    digest of each pair's question, or `lacking` why there is none. A model's answers to a prompt are `known` by digest,
    and `kept` in a file to which several runs may add. `stopped` says why questions are left, None where there are
    none. InputError for a damaged file."""

    judge: Endpoint
    captions: Captions
    pictures: PictureLookup | None
    image: np.ndarray
    caption: np.ndarray
    stopped: str | None = None
    failed: dict[str, str] = field(default_factory=dict)  # key -> why there is no answer
    in_vain: int = 0  # how many of the last questions had no answer

    def __post_init__(self) -> None:
        model, prompt = self.judge.model, self.judge.prompt.digest
        name = hashlib.sha256(f"{model}\0{prompt}".encode()).hexdigest()[:32]
        self.kept, self.known = cache_folder().parent / "judge" / f"{name}.jsonl", dict[str, float]()
        for row, text in appended_lines(self.kept, "key") if self.kept.is_file() else ():
            try:
                line = json.loads(text)
            except ValueError as error:
                problem = f"not an answer ({error})"
                raise InputError(problem, file=self.kept, row=row, remedy="remove the line") from error
            self.known[str(line["key"])] = float(line["score"])
        self.keys, self.lacking, digest = dict[int, str](), dict[int, str](), cache(self._digest)
        for k, (image, caption) in enumerate(zip(self.image.tolist(), self.caption.tolist(), strict=True)):
            others, picture = self._others(image, caption), digest(image)
            if self.pictures is not None and picture is None:
                self.lacking[k] = "no picture of the image"
            elif self.judge.prompt.reads_captions and not others:
                self.lacking[k] = "the image has no other caption"
            else:
                seen = None if self.pictures is None else [SIDE, picture]
                asked = [model, prompt, self.captions.texts[caption], others, seen]
                self.keys[k] = hashlib.sha256(canonical(asked).encode()).hexdigest()

    def _others(self, image: int, caption: int) -> list[str]:
        """The image's captions without this one; none where the prompt does not show them."""
        rows = self.captions.rows_of(image) if self.judge.prompt.reads_captions else ()
        return [self.captions.texts[row] for row in rows if row != caption]

    def _digest(self, image: int) -> str | None:
        """SHA-256 of its picture."""
        data = None if self.pictures is None else self.pictures.read(self.captions.image_ids[image])
        return None if data is None else hashlib.sha256(data).hexdigest()

    def _messages(self, image: int, caption: int) -> list[dict[str, Any]]:
        """NoAnswerError for a picture that is no picture."""
        picture = None
        if self.pictures is not None:
            shown = self.pictures.image(image_id := self.captions.image_ids[image])
            if shown is None:
                raise NoAnswerError(f"no readable picture of image {image_id}")
            picture = data_uri(encoded(shown, SIDE, "JPEG", 90), "jpeg")
        return self.judge.prompt.messages(self.captions.texts[caption], self._others(image, caption), picture)

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
            messages = self._messages(int(self.image[k]), int(self.caption[k]))
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
