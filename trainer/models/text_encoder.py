"""A pretrained BERT-like text encoder, and what its word pieces say of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capgrade.pretrained import EMBEDDED, from_pretrained, load_weights
from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import CaptionTokens, Pretrained, upcast
from capgrade.trainer.models.pretrained import load_tokenizer

ENGLISH = "english"  # names our list of stop words
STOP_WORDS = Path(__file__).with_name("stop_words.txt")


class TextEncoder(Pretrained):
    """Hidden states of the last of the first `layers` layers of `model` (None: all), float [B, W, width].

    Frozen, it stays in evaluation mode and gives no gradient. The model is embedded, a folder, or one of the hub.
    """

    def __init__(self, model: str = EMBEDDED, layers: int | None = None, frozen: bool = False) -> None:
        super().__init__()
        config = from_pretrained("AutoConfig", "text encoder", model)
        if layers is not None and not 1 <= layers <= config.num_hidden_layers:
            raise InputError(f"text_layers {layers}: '{model}' has {config.num_hidden_layers} layers")
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
    """Word pieces read by a pretrained encoder and projected: float [B, W, D], 0 where none is, in place of a GRU's
    states; and None in place of its last state."""

    def __init__(self, model: str, embed: int, layers: int | None = None, frozen: bool = False) -> None:
        super().__init__()
        self.encoder = TextEncoder(model, layers, frozen)
        self.project = nn.Linear(self.encoder.width, embed)

    def forward(self, captions: CaptionTokens) -> tuple[Tensor, None]:
        states = upcast(self.project(self.encoder(captions)))
        return states.masked_fill(~captions.mask.unsqueeze(2), 0), None


def stop_pieces(words: str, model: str) -> tuple[Tensor, Tensor]:
    """bool [vocabulary] twice: the piece is a stop word; the piece goes on with the word before.

    `words` is "english" (our list) or a file of one word per line; words of several pieces stop nothing. InputError for
    a tokenizer whose pieces do not tell where a word begins.
    """
    path = STOP_WORDS if words == ENGLISH else Path(words)
    if not path.is_file():
        raise InputError("no such list of stop words", file=path, remedy="'english', or a file of one word per line")
    tokenizer, _ = load_tokenizer(model)
    inner = _going_on(tokenizer, model)
    stop = torch.zeros_like(inner)
    for word in path.read_text(encoding="utf-8").split():
        ids = tokenizer(word, add_special_tokens=False)["input_ids"]
        stop[ids] |= len(ids) == 1 and ids[0] != tokenizer.unk_token_id
    return stop, inner


def word_starts(model: str) -> tuple[int, Tensor]:
    """The number of [MASK], and bool [vocabulary]: the piece begins a word. InputError as `stop_pieces`."""
    tokenizer, _ = load_tokenizer(model)
    if tokenizer.mask_token_id is None:
        raise InputError(f"the tokenizer of '{model}' has no mask token", remedy="use a BERT-like model")
    return tokenizer.mask_token_id, ~_going_on(tokenizer, model)


def _going_on(tokenizer: Any, model: str) -> Tensor:
    """bool [vocabulary]: the piece goes on with the word before. Byte-level vocabularies do not say: they mark a space,
    and what follows none may be a word, a part of one or a full stop."""
    prefix = getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None)
    if not prefix:
        problem = f"the pieces of '{model}' do not tell where a word begins"
        remedy = "use a BERT-like model (WordPiece, ##), or a model and options that need no whole words"
        raise InputError(problem, remedy=remedy)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return torch.tensor([piece.startswith(prefix) for piece in pieces])
