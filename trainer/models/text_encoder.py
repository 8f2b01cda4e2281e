"""A pretrained BERT-like text encoder, captions as its tokenizer cuts them, and what word pieces
say of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capgrade.pretrained import EMBEDDED, from_pretrained, load_weights
from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import CaptionTokens, Pretrained, upcast

ENGLISH = "english"  # names our list of stop words
STOP_WORDS = Path(__file__).with_name("stop_words.txt")


@lru_cache(maxsize=4)
def load_tokenizer(model: str) -> tuple[Any, int]:
    """The tokenizer, and how many tokens its model takes."""
    tokenizer = from_pretrained("AutoTokenizer", "tokenizer of", model)
    config = from_pretrained("AutoConfig", "tokenizer of", model)
    longest = getattr(config, "text_config", config).max_position_embeddings
    return tokenizer, min(longest, tokenizer.model_max_length)


def cut(texts: Sequence[str], model: str, **options: Any) -> dict[str, list]:
    """What the model's tokenizer makes of captions, their special tokens included. Nothing is cut
    off: InputError, naming it, for a caption of more tokens than the model takes (512 of all
    BERTs)."""
    tokenizer, longest = load_tokenizer(model)
    encoding = tokenizer(list(texts), verbose=False, **options) if len(texts) else {"input_ids": []}
    for k, ids in enumerate(encoding["input_ids"]):
        if len(ids) > longest:
            problem = (
                f"caption of {len(ids)} tokens, '{model}' takes {longest}: '{texts[k][:60]}...'"
            )
            raise InputError(problem, row=f"captions[{k}]", remedy="shorten or drop it")
    return encoding


@dataclass(frozen=True)
class Pieces:
    """A caption as word pieces, the special first and last one included."""

    ids: list[int]
    words: list[int]  # the word of caption.split() each piece belongs to, -1 for special ones


def word_pieces(texts: Sequence[str], model: str = EMBEDDED) -> list[Pieces]:
    """Captions as the tokenizer of a BERT-like model cuts them. InputError as `cut`, and for a
    tokenizer that tells no words."""
    tokenizer, _ = load_tokenizer(model)
    if not tokenizer.is_fast or len(tokenizer("")["input_ids"]) != 2:
        problem = (
            f"the tokenizer of '{model}' gives no offsets, or not one special piece at each end"
        )
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


class TextEncoder(Pretrained):
    """Hidden states of the last of the first `layers` layers of `model` (None: all), float [B, W,
    width].

    Frozen, it stays in evaluation mode and gives no gradient. The model is embedded, a folder, or
    one of the hub.
    """

    def __init__(
        self, model: str = EMBEDDED, layers: int | None = None, frozen: bool = False
    ) -> None:
        super().__init__()
        config = from_pretrained("AutoConfig", "text encoder", model)
        if layers is not None and not 1 <= layers <= config.num_hidden_layers:
            raise InputError(
                f"text_layers {layers}: '{model}' has {config.num_hidden_layers} layers"
            )
        config.num_hidden_layers = layers or config.num_hidden_layers
        self.encoder, self.frozen = load_weights("text encoder", model, config=config), frozen
        self.encoder.pooler = None  # unused weights
        self.width: int = config.hidden_size
        self.requires_grad_(not frozen)

    def forward(self, captions: CaptionTokens) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.encoder(input_ids=captions.tokens, attention_mask=captions.mask.long())[0]

    def train(self, mode: bool = True) -> TextEncoder:
        super().train(mode and not self.frozen)
        return self


class TextWords(nn.Module):
    """Word pieces read by a pretrained encoder and projected: float [B, W, D], 0 where none is, in
    place of a GRU's states; and None in place of its last state."""

    def __init__(
        self, model: str, embed: int, layers: int | None = None, frozen: bool = False
    ) -> None:
        super().__init__()
        self.encoder = TextEncoder(model, layers, frozen)
        self.project = nn.Linear(self.encoder.width, embed)

    def forward(self, captions: CaptionTokens) -> tuple[Tensor, None]:
        states = upcast(self.project(self.encoder(captions)))
        return states.masked_fill(~captions.mask.unsqueeze(2), 0), None


def stop_pieces(words: str, model: str) -> tuple[Tensor, Tensor]:
    """bool [vocabulary] twice: the piece is a stop word; the piece goes on with the word before.

    `words` is "english" (our list) or a file of one word per line; words of several pieces stop
    nothing. InputError for a tokenizer whose pieces do not tell where a word begins.
    """
    path = STOP_WORDS if words == ENGLISH else Path(words)
    if not path.is_file():
        raise InputError(
            "no such list of stop words",
            file=path,
            remedy="'english', or a file of one word per line",
        )
    tokenizer, _ = load_tokenizer(model)
    inner = _going_on(tokenizer, model)
    stop = torch.zeros_like(inner)
    for word in path.read_text(encoding="utf-8").split():
        ids = tokenizer(word, add_special_tokens=False)["input_ids"]
        stop[ids] |= len(ids) == 1 and ids[0] != tokenizer.unk_token_id
    return stop, inner


def word_starts(model: str) -> tuple[int, Tensor]:
    """The number of [MASK], and bool [vocabulary]: the piece begins a word. InputError as
    `stop_pieces`."""
    tokenizer, _ = load_tokenizer(model)
    if tokenizer.mask_token_id is None:
        raise InputError(
            f"the tokenizer of '{model}' has no mask token", remedy="use a BERT-like model"
        )
    return tokenizer.mask_token_id, ~_going_on(tokenizer, model)


def _going_on(tokenizer: Any, model: str) -> Tensor:
    """bool [vocabulary]: the piece goes on with the word before. Byte-level vocabularies do not
    say: they mark a space, and what follows none may be a word, a part of one or a full stop."""
    prefix = getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None)
    if not prefix:
        problem = f"the pieces of '{model}' do not tell where a word begins"
        remedy = (
            "use a BERT-like model (WordPiece, ##), or a model and options that need no whole words"
        )
        raise InputError(problem, remedy=remedy)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return torch.tensor([piece.startswith(prefix) for piece in pieces])
