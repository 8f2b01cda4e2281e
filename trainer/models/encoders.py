"""What several models share: regions projected, captions read by a GRU, a set pooled by attention to its own mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.trainer.models.base import Texts

RegionNorm = Literal["features", "authors"]
AUTHORS_REGIONS = 36


def upcast(x: Tensor) -> Tensor:
    """Norms, softmax and sums are done in float32 under autocast; float64 stays what it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Products of unit vectors [n, D] and [m, D] in float32 under autocast too: bfloat16 has 58 values for 16,384 of
    them, and ties the hardest negatives."""
    with torch.autocast(rows.device.type, enabled=False):
        return upcast(rows) @ upcast(columns).T


def linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer as VSE++, SCAN and SGRAF start one: uniform Xavier, bias 0."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def masked_mean(parts: Tensor, mask: Tensor) -> Tensor:
    """Mean of the parts that are there, [B, D]; 0 of none."""
    present = upcast(parts).masked_fill(~mask.unsqueeze(2), 0)
    return present.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class WordGru(nn.Module):
    """Word vectors read by a GRU of one layer: a state a word, [B, W, D], 0 where no word is, and the last, [B, D].

    Two directions are averaged (SCAN, SGRAF), so D is the same with one and two. Words come first in `tokens`.
    """

    def __init__(self, vocabulary: int, word: int, embed: int, *, both_ways: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, word)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(word, embed, batch_first=True, bidirectional=both_ways)

    def forward(self, captions: Texts) -> tuple[Tensor, Tensor]:
        lengths = captions.mask.sum(1).clamp(min=1).cpu()  # an empty caption is read as one padding word
        words = self.dropout(self.embed(captions.tokens))
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.gru(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=captions.tokens.shape[1])
        directions = upcast(padded).unflatten(2, (-1, self.gru.hidden_size)).mean(2)
        return directions.masked_fill(~captions.mask.unsqueeze(2), 0), upcast(last).mean(0)


class PartNorm(nn.BatchNorm1d):
    """BatchNorm of the features of all parts that are there: padding is neither counted nor changed.

    SGRAF's code normalises [B, 36, D] over a region's place instead (BatchNorm1d(36)): its channels are the 36 boxes
    in order of confidence, so it cannot take another number of regions. That form is `nn.BatchNorm1d(36)`.
    """

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return super().forward(input)
        return input.masked_scatter(mask.unsqueeze(2), super().forward(input[mask]))


class SelfPooling(nn.Module):
    """A set as one unit vector: sum_l a_l x_l, a = softmax_l of w . (tanh(P x_l) * tanh(Q mean x)) (SGRAF, eq. 1-2).

    `norm` puts a BatchNorm before each tanh, as SGRAF does for regions and not for words. `unit_mean`: the mean has
    unit length, as CVSE's of words. `start` makes the layers: CVSE's have PyTorch's initial weights.
    """

    def __init__(
        self, embed: int, dropout: float, norm: RegionNorm | None = None, *, unit_mean: bool = False,
        start: Callable[[int, int], nn.Linear] = linear,
    ) -> None:  # fmt: skip
        super().__init__()
        self.parts, self.mean, self.common = start(embed, embed), start(embed, embed), start(embed, 1)
        self.part_norm = {"features": PartNorm(embed), "authors": nn.BatchNorm1d(AUTHORS_REGIONS), None: nn.Identity()}[
            norm
        ]
        self.mean_norm = nn.BatchNorm1d(embed) if norm else nn.Identity()
        self.dropout, self.unit_mean = nn.Dropout(dropout), unit_mean

    def forward(self, parts: Tensor, mask: Tensor) -> Tensor:
        projected = self.parts(parts)
        by_mask = isinstance(self.part_norm, PartNorm)
        projected = self.part_norm(projected, mask) if by_mask else self.part_norm(projected)
        local = self.dropout(projected.tanh())
        mean = masked_mean(parts, mask)
        mean = normalize(mean, dim=-1) if self.unit_mean else mean
        whole = self.dropout(self.mean_norm(self.mean(mean)).tanh())
        logits = upcast(self.common(local * whole.unsqueeze(1)).squeeze(2))
        weights = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(1)
        return normalize(upcast((weights.unsqueeze(1) @ parts).squeeze(1)), dim=-1)
