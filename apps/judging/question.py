"""What a judge is asked: the prompts, the questions that they make of a pair, and which answers
count.

A prompt is a YAML file. One for a chat endpoint has `answer`, `user` and, if wanted, `system` and
`request`; one for a reranker has `query` and `document`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from capgrade.agreement.judgement_files import read_judgements
from capgrade.schemas.block import ParamsBlock, validated
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical
from capgrade.schemas.judges import YES_OR_NO
from capgrade.schemas.lines import parse_json, read_lines
from capgrade.schemas.params import read_yaml
from capgrade.schemas.reviews import LINES

PROMPTS_FOLDER = Path(__file__).parent  # of the prompts that come with capgrade
YES_NO = "yes or no"
PICTURE = "{picture}"
# Keys of a request that capgrade sets itself, so that a prompt's `request` may not.
_RESERVED = {"model", "messages", "query", "documents", "stream", "n"}
_PLACES = re.compile(r"\{(caption|captions|reference)\}")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
ALL = "all"
_ROUNDED = 1e-3  # the logarithm of a probability of 1, as endpoints round it


@dataclass(eq=False)
class Question:
    """A question about one pair: `text` for a chat model, or a query (`text`) and a `document` for
    a reranker. `image` is the id of the image whose picture goes along. Once it was asked it has a
    score, or the reason why there is none."""

    prompt: Prompt
    text: str
    document: str = ""
    image: str | None = None
    key: str = ""
    score: float | None = None
    reason: str | None = None


class Prompt(ParamsBlock):
    """What every prompt has."""

    request: dict[str, Any] = {}  # what else the body of a request says

    @model_validator(mode="after")
    def _can_be_sent(self) -> Prompt:
        if taken := sorted(_RESERVED & self.request.keys()):
            raise ValueError(
                f"request: {taken[0]} is not for a prompt to say, but such as temperature: 0"
            )
        try:
            json.dumps(self.model_dump(), ensure_ascii=False, allow_nan=False).encode()
        # For a date, for NaN, for half a surrogate pair, and for a value that contains itself.
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"what JSON cannot say ({error})") from error
        return self

    @property
    def templates(self) -> str:
        """All texts with places for captions."""
        raise NotImplementedError

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest score."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it: another prompt is another judge."""
        return hashlib.sha256(canonical(self.model_dump()).encode()).hexdigest()

    @property
    def reads_captions(self) -> bool:
        return "{captions}" in self.templates or "{reference}" in self.templates

    def questions(self, caption: str, others: Sequence[str], image: str | None) -> list[Question]:
        """Questions about a caption and an image, given the image's `others` and, unless `image` is
        None, its picture. The mean of their scores is the pair's score."""
        raise NotImplementedError


class ChatPrompt(Prompt):
    """A question to a chat model: `answer` is a range such as `0 to 5`, or YES_NO."""

    answer: str
    user: str
    system: str = ""

    @model_validator(mode="after")
    def _asks_for_an_answer(self) -> ChatPrompt:
        if "{caption}" not in self.user:
            raise ValueError("no {caption} in user")
        if not self.yes_no and not (
            _RANGE.fullmatch(self.answer) and self.scale[0] < self.scale[1]
        ):
            raise ValueError(f"answer: {self.answer}, where `0 to 5` or `{YES_NO}` could be")
        return self

    @property
    def templates(self) -> str:
        return self.user

    @property
    def yes_no(self) -> bool:
        return self.answer == YES_NO

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest number that counts; 0 and 1 of yes or no."""
        low, high = ("0", "1") if self.yes_no else self.answer.split(" to ")
        return float(low), float(high)

    def questions(self, caption: str, others: Sequence[str], image: str | None) -> list[Question]:
        values = {"caption": caption, "captions": "\n".join(f"- {text}" for text in others)}
        return [Question(self, _fill(self.user, values), image=image)]

    def messages(self, question: Question, picture: str | None) -> list[dict[str, Any]]:
        """As a chat endpoint takes them; `picture` is a data URL."""
        content: Any = question.text
        if picture is not None:
            content = [
                {"type": "text", "text": content},
                {"type": "image_url", "image_url": {"url": picture}},
            ]
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": content}]

    def score(self, answer: str) -> float | None:
        """A number in range, alone or as {"score": number}; yes or no as 1 or 0. None for anything
        else."""
        text = answer.strip()
        fenced = _FENCE.fullmatch(text)
        value = _unwrap(fenced[1] if fenced else text)
        if self.yes_no:
            return {"yes": 1.0, "no": 0.0}.get(value.rstrip(".").lower())
        low, high = self.scale
        return float(value) if _NUMBER.fullmatch(value) and low <= float(value) <= high else None

    @property
    def grades(self) -> dict[str, float]:
        """The grade of each token that says one: yes and no, else the whole numbers of the scale.
        Empty for a scale beyond one digit, where the token 1 may begin a 10."""
        if self.yes_no:
            return {"yes": 1.0, "no": 0.0}
        low, high = self.scale
        inside = range(math.ceil(low), math.floor(high) + 1)
        return {str(grade): float(grade) for grade in inside} if low >= 0 and high < 10 else {}

    def expected_grade(self, tokens: Sequence[Mapping[str, Any]], answered: float) -> float | None:
        """The expected grade: sum over grades g of p(g) g / sum of p(g), p the probabilities of
        tokens where the answer has its grade (Liu et al. 2023, G-Eval, section 2). `tokens` are the
        answer's, as `logprobs.content` of a chat completion. None where `answered` is no token of
        it. ValueError for a logarithm that is of no probability."""
        for token in tokens:
            if self.grades.get(_as_word(token["token"])) != answered:
                continue
            chance = defaultdict[float, float](float)
            for other in token.get("top_logprobs") or ():
                if (grade := self.grades.get(_as_word(other["token"]))) is not None:
                    chance[grade] += _chance_of(other["logprob"])
            total = sum(chance.values())
            return sum(grade * p for grade, p in chance.items()) / total if total > 0 else None
        return None


class RankPrompt(Prompt):
    """What a reranker compares: `query` and `document` have {caption}, the caption to judge, and
    {picture} alone, or {reference} or {captions}. With {reference} it is asked once for each other
    caption of the image."""

    query: str
    document: str = "{caption}"
    instruction: str = ""  # of a model in this process that takes one

    @model_validator(mode="after")
    def _compares(self) -> RankPrompt:
        if self.templates.count("{caption}") != 1:
            raise ValueError("{caption} has to stand once, in query or document")
        if any(PICTURE in side and side != PICTURE for side in (self.query, self.document)):
            raise ValueError(
                f"{PICTURE} with other words, where it stands for a whole query or document"
            )
        if self.reads_captions == self.shows_picture:
            raise ValueError(f"neither or both of {{reference}} and {PICTURE}")
        return self

    @property
    def templates(self) -> str:
        return f"{self.query}\n{self.document}"

    @property
    def shows_picture(self) -> bool:
        return PICTURE in (self.query, self.document)

    @property
    def scale(self) -> tuple[float, float]:
        return YES_OR_NO

    def questions(self, caption: str, others: Sequence[str], image: str | None) -> list[Question]:
        questions = []
        for reference in others if "{reference}" in self.templates else [""]:
            values = {"caption": caption, "captions": "\n".join(others), "reference": reference}
            query, document = _fill(self.query, values), _fill(self.document, values)
            questions.append(Question(self, query, document, image))
        return questions


def _fill(template: str, values: Mapping[str, str]) -> str:
    return _PLACES.sub(lambda m: values.get(m[1], m[0]), template)


def _chance_of(logarithm: float) -> float:
    if not logarithm <= _ROUNDED:
        raise ValueError(f"{logarithm} is no logarithm of a probability")
    return math.exp(logarithm)


def _as_word(token: str) -> str:
    return token.strip().lower()


def _unwrap(text: str) -> str:
    """The value of an object of one entry, else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict) and len(value) == 1:
        return str(next(iter(value.values()))).strip()
    return text


def load_prompts(
    names: Sequence[str], kind: Literal["chat", "rank"], pictures: bool
) -> dict[str, Prompt]:
    """Prompts by name: files, or names of prompts that come with capgrade; without any, the usual
    one. InputError for a file that does not say what is asked or answered, or that shows neither
    captions nor picture, for two files of one name, and for two scales."""
    usual = {"chat": ("captions", "pictures"), "rank": ("references", "picture")}[kind][pictures]
    prompts: dict[str, Prompt] = {}
    for name in names or (usual,):
        path = (
            PROMPTS_FOLDER / f"{name}.yaml"
            if (PROMPTS_FOLDER / f"{name}.yaml").is_file()
            else Path(name)
        )
        prompt: Prompt = validated(
            ChatPrompt if kind == "chat" else RankPrompt, read_yaml(path), file=path
        )
        if not prompt.reads_captions and not pictures:
            remedy = (
                f"put {{{'captions' if kind == 'chat' else 'reference'}}} into it, or give --images"
            )
            raise InputError("it shows nothing of the image", file=path, remedy=remedy)
        if isinstance(prompt, RankPrompt) and pictures and not prompt.shows_picture:
            remedy = f"write {PICTURE} as query, or leave --images out"
            raise InputError("it does not show the picture", file=path, remedy=remedy)
        if path.stem in prompts:
            raise InputError(
                f"two prompts are called {path.stem}", file=path, remedy="rename one of the files"
            )
        first = next(iter(prompts.values()), prompt)
        if prompt.scale != first.scale:
            raise InputError(
                "another scale than the prompt before", file=path, remedy="ask for the same answers"
            )
        prompts[path.stem] = prompt
    return prompts


def read_asked_pairs(source: str, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """image and caption, int64 [n], each pair once: of a review's folder, of JSON lines with
    image_id and caption_id, of judgements, or with `all` every pair. InputError for ids that the
    captions do not have."""
    if source == ALL:
        image, caption = np.divmod(
            np.arange(captions.n_images * captions.n_captions), captions.n_captions
        )
        return image, caption
    path = Path(source)
    path = path / LINES if path.is_dir() else path
    if path.suffix == ".jsonl":
        image, caption = _read_pair_lines(path, captions)
    else:
        judged = read_judgements(path, captions)
        image, caption = judged.image, judged.caption
    first = np.unique(image * captions.n_captions + caption, return_index=True)[1]
    return image[np.sort(first)], caption[np.sort(first)]


def _read_pair_lines(path: Path, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    pairs = []
    for row, line in read_lines(path):
        if not line.strip():
            continue
        try:
            pair = parse_json(line, path, first_row=row)
            ids = (pair["image_id"], pair["caption_id"])
            # Ids of a captions table are texts, also those that look like numbers.
            image, caption = (str(value) if type(value) is int else value for value in ids)
            pairs.append((captions.image_numbers[image], captions.caption_numbers[caption]))
        except (ValueError, TypeError, KeyError) as error:
            remedy = "give image_id and caption_id of these captions in each line"
            raise InputError(
                f"not a pair of these captions ({error})", file=path, row=row, remedy=remedy
            ) from error
    if not pairs:
        raise InputError("no pairs", file=path)
    image, caption = np.array(pairs, np.int64).T
    return image, caption
