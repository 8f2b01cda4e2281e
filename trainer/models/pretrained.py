"""Captions as the tokenizer of a pretrained model cuts them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from capgrade.pretrained import EMBEDDED, from_pretrained
from capgrade.schemas.errors import InputError


@lru_cache(maxsize=4)
def load_tokenizer(model: str) -> tuple[Any, int]:
    """The tokenizer, and how many tokens its model takes."""
    tokenizer = from_pretrained("AutoTokenizer", "tokenizer of", model)
    config = from_pretrained("AutoConfig", "tokenizer of", model)
    longest = getattr(config, "text_config", config).max_position_embeddings
    return tokenizer, min(longest, tokenizer.model_max_length)


def cut(texts: Sequence[str], model: str, **options: Any) -> dict[str, list]:
    """What the model's tokenizer makes of captions, their special tokens included. Nothing is cut off: InputError,
    naming it, for a caption of more tokens than the model takes (512 of all BERTs)."""
    tokenizer, longest = load_tokenizer(model)
    encoding = tokenizer(list(texts), verbose=False, **options) if len(texts) else {"input_ids": []}
    for k, ids in enumerate(encoding["input_ids"]):
        if len(ids) > longest:
            problem = f"caption of {len(ids)} tokens, '{model}' takes {longest}: '{texts[k][:60]}...'"
            raise InputError(problem, row=f"captions[{k}]", remedy="shorten or drop it")
    return encoding


@dataclass(frozen=True)
class Pieces:
    """A caption as word pieces, the special first and last one included."""

    ids: list[int]
    words: list[int]  # the word of caption.split() each piece belongs to, -1 for special ones


def word_pieces(texts: Sequence[str], model: str = EMBEDDED) -> list[Pieces]:
    """Captions as the tokenizer of a BERT-like model cuts them. InputError as `cut`, and for a tokenizer that tells no
    words."""
    tokenizer, _ = load_tokenizer(model)
    if not tokenizer.is_fast or len(tokenizer("")["input_ids"]) != 2:
        problem = f"the tokenizer of '{model}' gives no offsets, or not one special piece at each end"
        raise InputError(problem, remedy="use a BERT-like model with a tokenizer.json")
    encoding = cut(texts, model, return_offsets_mapping=True)
    rows = zip(texts, encoding["input_ids"], encoding.get("offset_mapping", ()), strict=True)
    return [Pieces(ids, _words(text, offsets)) for text, ids, offsets in rows]


def _words(text: str, offsets: list[tuple[int, int]]) -> list[int]:
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    words, at = [], 0
    for k, (start, end) in enumerate(offsets):
        while at < len(ends) and ends[at] <= start + (text[start:end][:1].isspace()):
            at += 1
        words.append(-1 if k in (0, len(offsets) - 1) else at)
    return words
