"""Captions as tokens: numbers of a vocabulary that is fitted on the training captions, or of a
pretrained model's tokenizer; or vectors of a sentence encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.measures.embeddings import embed
from capgrade.pretrained import require_here
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json
from capgrade.schemas.lines import read_json
from capgrade.text.tokens import tokenize
from capgrade.trainer.fit import MODEL, VOCABULARY
from capgrade.trainer.models.base import END_TOKEN, FIRST_WORD, START_TOKEN, UNKNOWN_WORD, Config
from capgrade.trainer.models.text_encoder import load_tokenizer, pieces_of, tokenize_texts


@dataclass(frozen=True)
class Vocabulary:
    """Words of the training captions, the most frequent first; each caption between `START_TOKEN`
    and `END_TOKEN`."""

    words: tuple[str, ...]
    tokenizer: str  # that of the captions table, which is used for free text too

    @staticmethod
    def fit(captions: Captions, min_count: int = 1, rows: np.ndarray | None = None) -> Vocabulary:
        """The words of these caption rows (None: all) that occur at least `min_count` times."""
        tokens = captions.table["tokens"] if rows is None else captions.table["tokens"].take(rows)
        counted = pa.Table.from_struct_array(pc.value_counts(tokens.combine_chunks().flatten()))
        ranked = counted.sort_by([("counts", "descending"), ("values", "ascending")])
        kept = tuple(ranked.filter(pc.field("counts") >= min_count)["values"].to_pylist())
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
        numbers, found = {word: FIRST_WORD + k for k, word in enumerate(self.words)}, []
        for row in rows:
            words = [numbers.get(word, UNKNOWN_WORD) for word in row]
            found.append(np.array([START_TOKEN, *words, END_TOKEN], np.int64))
        return found

    def save(self, path: Path) -> None:
        write_json(path, {"tokenizer": self.tokenizer, "words": list(self.words)})


Kind = Literal["model", "checkpoint"]


@dataclass(frozen=True)
class ModelTokens:
    """Tokens of a pretrained model's tokenizer, special ones included."""

    model: str
    kind: Kind = "model"  # model: a text encoder, with word pieces; checkpoint: a dual encoder

    @property
    def size(self) -> int:
        return len(load_tokenizer(self.model)[0])

    def encode(self, captions: Captions) -> list[np.ndarray]:
        return self.encode_texts(captions.texts)

    def encode_texts(self, texts: Sequence[str]) -> list[np.ndarray]:
        if self.kind == "model":
            rows = [pieces.ids for pieces in pieces_of(texts, self.model)]
        else:
            rows = tokenize_texts(texts, self.model)["input_ids"]
        return [np.array(row, np.int64) for row in rows]

    def save(self, path: Path) -> None:
        write_json(path, {self.kind: self.model})


@dataclass(frozen=True)
class SentenceVectors:
    """A caption as one token, which is its vector by a sentence encoder. Vectors are kept, as those
    of the measure `sbert` are."""

    model: str

    @property
    def size(self) -> int:
        """Numbers of a vector."""
        return self.encode_texts(["a"])[0].shape[1]

    def encode(self, captions: Captions) -> list[np.ndarray]:
        """float32 [1, size] for every row of a captions table."""
        return self.encode_texts(captions.texts)

    def encode_texts(self, texts: Sequence[str]) -> list[np.ndarray]:
        return list(embed(texts, self.model)[:, None])

    def save(self, path: Path) -> None:
        write_json(path, {"sentences": self.model})


# What makes tokens of captions: numbers, of which 0 is padding and `size` is one more than the
# largest, or vectors of `size` numbers.
Tokens = Vocabulary | ModelTokens | SentenceVectors


def make_tokens(
    config: Config, captions: Captions, min_count: int, rows: np.ndarray, init: Path | None
) -> Tokens:
    """The tokens of a model's checkpoint or of its text encoder, else words: those of the run
    `init`, because its weights belong to them, or words that are fitted on these rows. InputError
    where there is no such run."""
    if init is not None and not (init / MODEL).is_file():
        remedy = "give train.init a finished run"
        raise InputError("no model to start from", file=init / MODEL, remedy=remedy)
    if (checkpoint := getattr(config, "pretrained", None)) is not None:
        return ModelTokens(checkpoint, "checkpoint")
    if (encoder := getattr(config, "text_model", None)) is not None:
        return ModelTokens(encoder)
    if (encoder := getattr(config, "sentence_model", None)) is not None:
        return SentenceVectors(encoder)
    tokens = None if init is None else load_tokens(init / VOCABULARY)
    return tokens if isinstance(tokens, Vocabulary) else Vocabulary.fit(captions, min_count, rows)


def load_tokens(path: Path) -> Tokens:
    """The tokens that `save` wrote. InputError for another file, and for a pretrained model that is
    not on this machine."""
    content = read_json(path)
    if isinstance(content, dict):
        for kind in get_args(Kind):
            if isinstance(model := content.get(kind), str):
                require_here(model, path)
                return ModelTokens(model, kind)
        if isinstance(model := content.get("sentences"), str):
            require_here(model, path)
            return SentenceVectors(model)
        tokenizer, words = content.get("tokenizer"), content.get("words")
        is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if isinstance(tokenizer, str) and is_list:
            return Vocabulary(tuple(content["words"]), tokenizer)
    raise InputError("not a vocabulary", file=path, remedy="restore it, or train again")
