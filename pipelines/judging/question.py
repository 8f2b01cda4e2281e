"""What a judge is asked: the pairs, the prompt, and which answers count.

A prompt is YAML of `answer`, `user` and, if wanted, `system` and `request`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator

from capgrade.agreement.judgement_files import read_judgements
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical
from capgrade.schemas.lines import parse_json, read_lines
from capgrade.schemas.params import ParamsBlock, read_yaml, validated
from capgrade.schemas.reviews import LINES

_FOLDER = Path(__file__).parent
# The prompts that come with capgrade.
CAPTIONS_PROMPT, PICTURES_PROMPT = _FOLDER / "captions.yaml", _FOLDER / "pictures.yaml"
YES_NO = "yes or no"
_OURS = {"model", "messages", "stream", "n"}  # of a request, not for the file to say
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
ALL = "all"


class Prompt(ParamsBlock):
    """What is asked, as a file says it: `answer` is a range such as `0 to 5`, or YES_NO."""

    answer: str
    user: str
    system: str = ""
    request: dict[str, Any] = {}  # what else the body of a request says

    @model_validator(mode="after")
    def _asks_for_an_answer(self) -> Prompt:
        if "{caption}" not in self.user:
            raise ValueError("no {caption} in user")
        if taken := sorted(_OURS & self.request.keys()):
            raise ValueError(f"request: {taken[0]} is not for a prompt to say, but such as temperature: 0")
        try:
            json.dumps([self.user, self.system, self.request], ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:  # a date, not a number, half a character, in itself
            raise ValueError(f"what JSON cannot say ({error})") from error
        if not self.yes_no and not (_RANGE.fullmatch(self.answer) and self.scale[0] < self.scale[1]):
            raise ValueError(f"answer: {self.answer}, where `0 to 5` or `{YES_NO}` could be")
        return self

    @property
    def yes_no(self) -> bool:
        return self.answer == YES_NO

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest number that counts; 0 and 1 of yes or no."""
        low, high = ("0", "1") if self.yes_no else self.answer.split(" to ")
        return float(low), float(high)

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it: another prompt is another judge."""
        said = [self.user, self.system, *self.scale, self.yes_no, self.request]
        return hashlib.sha256(canonical(said).encode()).hexdigest()

    @property
    def reads_captions(self) -> bool:
        return "{captions}" in self.user

    def messages(
        self, caption: str, others: Sequence[str], picture: str | None, wrong: str | None = None
    ) -> list[dict[str, Any]]:
        """As a chat endpoint takes them; `picture` is a data URL, `wrong` an answer that did not count."""
        values = {"caption": caption, "captions": "\n".join(f"- {text}" for text in others)}
        text = re.sub(r"\{(caption|captions)\}", lambda m: values[m[1]], self.user)
        said: Any = text
        if picture is not None:
            said = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": picture}}]
        first = [{"role": "system", "content": self.system}] if self.system else []
        wanted = YES_NO if self.yes_no else "one number from {:g} to {:g}".format(*self.scale)
        again = ("assistant", wrong), ("user", f"Answer with {wanted} and nothing else.")
        reminded = [{"role": role, "content": text} for role, text in again] if wrong is not None else []
        return [*first, {"role": "user", "content": said}, *reminded]

    def score(self, answer: str) -> float | None:
        """A number in range, alone or as {"score": number}; yes or no as 1 or 0. None for anything else."""
        text = answer.strip()
        fenced = _FENCE.fullmatch(text)
        value = _inside(fenced[1] if fenced else text)
        if self.yes_no:
            return {"yes": 1.0, "no": 0.0}.get(value.rstrip(".").lower())
        low, high = self.scale
        return float(value) if _NUMBER.fullmatch(value) and low <= float(value) <= high else None


def _inside(text: str) -> str:
    """The value of an object of one entry, else the text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(found, dict) and len(found) == 1:
        return str(next(iter(found.values()))).strip()
    return text


def load_prompt(path: Path, pictures: bool) -> Prompt:
    """InputError for a file that does not say what is asked or answered, or that shows neither captions nor picture."""
    prompt = validated(Prompt, read_yaml(path), file=path)
    if not prompt.reads_captions and not pictures:
        remedy = "put {captions} into user, or give --images"
        raise InputError("it shows nothing of the image", file=path, remedy=remedy)
    return prompt


def read_pairs(given: str, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """image and caption, int64 [n], each pair once: of a review's folder, of JSON lines with image_id and caption_id,
    of judgements, or with `all` every pair. InputError for ids that the captions do not have."""
    if given == ALL:
        image, caption = np.divmod(np.arange(captions.n_images * captions.n_captions), captions.n_captions)
        return image, caption
    path = Path(given)
    path = path / LINES if path.is_dir() else path
    if path.suffix == ".jsonl":
        image, caption = _lines(path, captions)
    else:
        judged = read_judgements(path, captions)
        image, caption = judged.image, judged.caption
    first = np.unique(image * captions.n_captions + caption, return_index=True)[1]
    return image[np.sort(first)], caption[np.sort(first)]


def _lines(path: Path, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for row, line in read_lines(path):
        if not line.strip():
            continue
        try:
            pair = parse_json(line, path, first_row=row)
            ids = (pair["image_id"], pair["caption_id"])
            image, caption = (str(one) if type(one) is int else one for one in ids)  # as the captions have them
            found.append((captions.image_numbers[image], captions.caption_numbers[caption]))
        except (ValueError, TypeError, KeyError) as error:
            remedy = "give image_id and caption_id of these captions in each line"
            raise InputError(f"not a pair of these captions ({error})", file=path, row=row, remedy=remedy) from error
    if not found:
        raise InputError("no pairs", file=path)
    image, caption = np.array(found, np.int64).T
    return image, caption
