"""A pretrained BERT-like text encoder, the tokens that its tokenizer makes of captions, and the
words that word pieces belong to."""

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

ENGLISH = "english"  # the name of our list of stop words
STOP_WORDS = Path(__file__).with_name("stop_words.txt")


@lru_cache(maxsize=4)
def load_tokenizer(model: str) -> tuple[Any, int]:
    """The tokenizer, and the largest number of tokens of its model."""
    tokenizer = from_pretrained("AutoTokenizer", "tokenizer of", model)
    config = from_pretrained("AutoConfig", "tokenizer of", model)
    longest = getattr(config, "text_config", config).max_position_embeddings
    return tokenizer, min(longest, tokenizer.model_max_length)


def tokenize_texts(texts: Sequence[str], model: str, **options: Any) -> dict[str, list]:
    """The encoding of captions by a model's tokenizer, with special tokens. InputError for a
    caption of more tokens than the model takes (512 for a BERT), which is not truncated."""
    tokenizer, longest = load_tokenizer(model)
    encoding = tokenizer(list(texts), verbose=False, **options) if len(texts) else {"input_ids": []}
    for k, ids in enumerate(encoding["input_ids"]):
        if len(ids) > longest:
            text = f"{texts[k][:60]}..."
            problem = f"caption of {len(ids)} tokens, '{model}' takes {longest}: '{text}'"
            raise InputError(problem, row=f"captions[{k}]", remedy="shorten or drop it")
    return encoding


@dataclass(frozen=True)
class Pieces:
    """A caption as word pieces, with the special ones at both ends."""

    ids: list[int]
    words: list[int]  # index in caption.split() of the word of each piece, -1 for special ones


def pieces_of(texts: Sequence[str], model: str = EMBEDDED) -> list[Pieces]:
    """The word pieces of captions by a BERT-like model's tokenizer. InputError as
    `tokenize_texts`, and for a tokenizer that does not tell the words of its pieces."""
    tokenizer, _ = load_tokenizer(model)
    if not tokenizer.is_fast or len(tokenizer("")["input_ids"]) != 2:
        problem = f"the tokenizer of '{model}' gives no offsets"
        problem += ", or not one special piece at each end"
        raise InputError(problem, remedy="use a BERT-like model with a tokenizer.json")
    encoding = tokenize_texts(texts, model, return_offsets_mapping=True)
    rows = zip(texts, encoding["input_ids"], encoding.get("offset_mapping", ()), strict=True)
    return [Pieces(ids, _words_of(text, offsets)) for text, ids, offsets in rows]


def _words_of(text: str, offsets: list[tuple[int, int]]) -> list[int]:
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    words, word = [], 0
    for k, (start, end) in enumerate(offsets):
        # Some tokenizers count the space before a word as part of its piece.
        while word < len(ends) and ends[word] <= start + (text[start:end][:1].isspace()):
            word += 1
        words.append(-1 if k in (0, len(offsets) - 1) else word)
    return words


class TextEncoder(Pretrained):
    """Hidden states float [B, W, width] after the first `layers` layers of `model` (None: all).

    With `frozen` it stays in evaluation mode and has no gradient. The model is the embedded one, a
    folder or a hub id.
    """

    def __init__(
        self, model: str = EMBEDDED, layers: int | None = None, frozen: bool = False
    ) -> None:
        super().__init__()
        config = from_pretrained("AutoConfig", "text encoder", model)
        if layers is not None and not 1 <= layers <= config.num_hidden_layers:
            problem = f"text_layers {layers}: '{model}' has {config.num_hidden_layers} layers"
            raise InputError(problem)
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
    """Projected states of a pretrained encoder, float [B, W, D], 0 for padding, in place of a GRU's
    states; and None in place of its last state."""

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
    """bool [vocabulary] twice: the piece is a stop word; the piece continues the word before.

    `words` is "english" (our list) or a file of one word per line; a stop word of several pieces is
    ignored. InputError for a tokenizer whose pieces do not tell where a word begins.
    """
    path = STOP_WORDS if words == ENGLISH else Path(words)
    if not path.is_file():
        remedy = "'english', or a file of one word per line"
        raise InputError("no such list of stop words", file=path, remedy=remedy)
    tokenizer, _ = load_tokenizer(model)
    inner = _continuations(tokenizer, model)
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
        problem = f"the tokenizer of '{model}' has no mask token"
        raise InputError(problem, remedy="use a BERT-like model")
    return tokenizer.mask_token_id, ~_continuations(tokenizer, model)


def _continuations(tokenizer: Any, model: str) -> Tensor:
    """bool [vocabulary]: the piece continues the word before. InputError for a byte-level
    vocabulary, which marks spaces: a piece without one may be a word, a part or a full stop."""
    prefix = getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None)
    if not prefix:
        problem = f"the pieces of '{model}' do not tell where a word begins"
        remedy = (
            "use a BERT-like model (WordPiece, ##), or a model and options that need no whole words"
        )
        raise InputError(problem, remedy=remedy)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return torch.tensor([piece.startswith(prefix) for piece in pieces])
