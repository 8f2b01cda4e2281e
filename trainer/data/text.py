"""Captions as numbers: a vocabulary of words fitted on the training captions, or a pretrained
model's word pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow.compute as pc

from capgrade.pretrained import require_here
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json
from capgrade.schemas.lines import read_json
from capgrade.text.tokens import tokenize
from capgrade.trainer.fit import MODEL, VOCABULARY
from capgrade.trainer.models.base import END_TOKEN, FIRST_WORD, START_TOKEN, UNKNOWN_WORD, Config
from capgrade.trainer.models.text_encoder import load_tokenizer, tokenize_texts, word_pieces


@dataclass(frozen=True)
class Vocabulary:
    """Words of the training captions, the most frequent first; each caption between `START_TOKEN`
    and `END_TOKEN`."""

    words: tuple[str, ...]
    tokenizer: str  # of the captions table; free text is cut by it too

    @staticmethod
    def fit(captions: Captions, min_count: int = 1, rows: np.ndarray | None = None) -> Vocabulary:
        """The words of the given caption rows (None: all) that come `min_count` times or more."""
        tokens = captions.table["tokens"] if rows is None else captions.table["tokens"].take(rows)
        counted = pc.value_counts(tokens.combine_chunks().flatten()).to_pylist()
        ranked = sorted(counted, key=lambda item: (-item["counts"], item["values"]))
        kept = tuple(item["values"] for item in ranked if item["counts"] >= min_count)
        if not kept:
            raise InputError(f"no word comes {min_count} times", remedy="lower train.min_count")
        return Vocabulary(kept, captions.tokenizer)

    @property
    def size(self) -> int:
        return FIRST_WORD + len(self.words)

    def encode(self, captions: Captions) -> list[np.ndarray]:
        """int64 [length] for every row of a captions table."""
        return self._numbers(captions.table["tokens"].to_pylist())

    def encode_texts(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self._numbers(tokenize(self.tokenizer, texts))

    def _numbers(self, rows: Sequence[Sequence[str]]) -> list[np.ndarray]:
        number = {word: FIRST_WORD + k for k, word in enumerate(self.words)}
        numbers = ([number.get(word, UNKNOWN_WORD) for word in row] for row in rows)
        return [np.array([START_TOKEN, *row, END_TOKEN], np.int64) for row in numbers]

    def save(self, path: Path) -> None:
        write_json(path, {"tokenizer": self.tokenizer, "words": list(self.words)})


Kind = Literal["model", "checkpoint"]


@dataclass(frozen=True)
class ModelTokens:
    """What the tokenizer of a pretrained model makes of captions, its special tokens included."""

    model: str
    kind: Kind = "model"  # a text encoder, read as word pieces, or a dual encoder

    @property
    def size(self) -> int:
        return len(load_tokenizer(self.model)[0])

    def encode(self, captions: Captions) -> list[np.ndarray]:
        return self.encode_texts(captions.texts)

    def encode_texts(self, texts: Sequence[str]) -> list[np.ndarray]:
        pieces = self.kind == "model"
        rows = (
            [row.ids for row in word_pieces(texts, self.model)]
            if pieces
            else tokenize_texts(texts, self.model)["input_ids"]
        )
        return [np.array(row, np.int64) for row in rows]

    def save(self, path: Path) -> None:
        write_json(path, {self.kind: self.model})


# how captions become numbers, 0 being padding; `size` is one more than the largest
Tokens = Vocabulary | ModelTokens


def make_tokens(
    config: Config, captions: Captions, min_count: int, rows: np.ndarray, init: Path | None
) -> Tokens:
    """How a model of this configuration reads captions: the tokens of its checkpoint, the pieces of
    its text encoder, or words: those of the run to start from, since its numbers mean them, or
    fitted on the given rows. InputError where there is no such run."""
    if init is not None and not (init / MODEL).is_file():
        raise InputError(
            "no model to start from", file=init / MODEL, remedy="give train.init a finished run"
        )
    if (checkpoint := getattr(config, "pretrained", None)) is not None:
        return ModelTokens(checkpoint, "checkpoint")
    if (encoder := getattr(config, "text_model", None)) is not None:
        return ModelTokens(encoder)
    known = None if init is None else load_tokens(init / VOCABULARY)
    return known if isinstance(known, Vocabulary) else Vocabulary.fit(captions, min_count, rows)


def load_tokens(path: Path) -> Tokens:
    """What `save` wrote. InputError when it is something else, and for a model that is not here."""
    content = read_json(path)
    if isinstance(content, dict):
        for kind in get_args(Kind):
            if isinstance(model := content.get(kind), str):
                require_here(model, path)
                return ModelTokens(model, kind)
        tokenizer, words = content.get("tokenizer"), content.get("words")
        if (
            isinstance(tokenizer, str)
            and isinstance(words, list)
            and all(isinstance(word, str) for word in words)
        ):
            return Vocabulary(tuple(words), tokenizer)
    raise InputError("not a vocabulary", file=path, remedy="restore it, or train again")
