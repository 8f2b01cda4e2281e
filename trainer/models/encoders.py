"""What several models share: projected regions, a GRU that reads captions, pooling of a set by
attention to its mean, and scoring of captions of one length at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.schemas.block import Positive
from capgrade.trainer.models.base import CaptionTokens, Images, upcast

RegionNorm = Literal["features", "authors"]
AUTHORS_REGIONS = 36
TILE_NODES = {"cpu": 2**14, "cuda": 2**20}  # image-word pairs that are compared at once
EVAL_IMAGES = 128  # rows of the score matrix that are computed at once in evaluation


def linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with the initial weights of VSE++, SCAN and SGRAF: uniform Xavier, bias 0."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def masked_mean(parts: Tensor, mask: Tensor) -> Tensor:
    """Mean of the parts inside the mask, [B, D]; 0 where there is none."""
    present = upcast(parts).masked_fill(~mask.unsqueeze(2), 0)
    return present.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def unit_regions(project: nn.Linear, images: Images) -> Tensor:
    """Projected regions at unit length, float [B, R, D]; 0 outside of the mask."""
    regions = normalize(upcast(project(images.features)), dim=-1)
    return regions.masked_fill(~images.mask.unsqueeze(2), 0)


def score_by_length(
    score: Callable[[Tensor, int], Tensor], lengths: Sequence[int], images: Tensor
) -> Tensor:
    """Scores [..., captions] of `images` [n, ...], joined from `score(captions int64 [c], their
    length)` [..., c]. Captions of one length are scored together, so that no padding is computed,
    in tiles of a bounded number of image-word pairs."""
    pairs = TILE_NODES.get(images.device.type, TILE_NODES["cpu"])
    tiles, columns = [], []
    for length in sorted(set(lengths)):
        numbers = [k for k, n_words in enumerate(lengths) if n_words == length]
        captions = torch.tensor(numbers, device=images.device)
        for tile in captions.split(max(1, pairs // (len(images) * (length + 1)))):
            tiles.append(tile)
            columns.append(score(tile, length))
    return torch.cat(columns, -1)[..., torch.cat(tiles).argsort()]


def run_gru(gru: nn.GRU, sets: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States [B, L, directions D] of padded sets [B, L, *] of these lengths, and the last states
    [directions, B, D]. An empty set is read as one element of padding."""
    packed = pack_padded_sequence(
        sets, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
    )
    states, last = gru(packed)
    return pad_packed_sequence(states, batch_first=True, total_length=sets.shape[1])[0], last


@dataclass(frozen=True)
class GruConfig:
    """Sizes of a model whose captions a GRU may read."""

    embed: Positive = 1024
    word: Positive = 300  # numbers of a word's vector


class WordGru(nn.Module):
    """A GRU of one layer over word vectors: a state for each word [B, W, D], 0 for padding, and the
    last state [B, D]. Two directions are averaged, as in SCAN and SGRAF."""

    def __init__(
        self, vocabulary: int, word: int, embed: int, *, both_ways: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, word)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(word, embed, batch_first=True, bidirectional=both_ways)

    def forward(self, captions: CaptionTokens) -> tuple[Tensor, Tensor]:
        states, last = run_gru(
            self.gru, self.dropout(self.embed(captions.tokens)), captions.mask.sum(1)
        )
        directions = upcast(states).unflatten(2, (-1, self.gru.hidden_size)).mean(2)
        return directions.masked_fill(~captions.mask.unsqueeze(2), 0), upcast(last).mean(0)


class PartNorm(nn.BatchNorm1d):
    """BatchNorm of the features of all parts inside the mask: padding is neither counted nor
    changed.

    SGRAF's code has `nn.BatchNorm1d(36)` of [B, 36, D] instead: its channels are the 36 boxes in
    order of confidence, so that it takes no other number of regions.
    """

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return super().forward(input)
        return input.masked_scatter(mask.unsqueeze(2), super().forward(input[mask]))


class SelfPooling(nn.Module):
    """A set as one unit vector: sum_l a_l x_l, a = softmax_l of w . (tanh(P x_l) * tanh(Q mean x))
    (SGRAF, eq. 1-2).

    `norm` puts a BatchNorm before each tanh, as SGRAF does for regions only. `unit_mean` scales the
    mean to unit length, as CVSE does for words. `start` makes the layers: CVSE's have PyTorch's
    initial weights.
    """

    def __init__(
        self,
        embed: int,
        dropout: float,
        norm: RegionNorm | None = None,
        *,
        unit_mean: bool = False,
        start: Callable[[int, int], nn.Linear] = linear,
    ) -> None:
        super().__init__()
        self.parts, self.mean = start(embed, embed), start(embed, embed)
        self.common = start(embed, 1)
        norms = {
            "features": PartNorm(embed),
            "authors": nn.BatchNorm1d(AUTHORS_REGIONS),
            None: nn.Identity(),
        }
        self.part_norm = norms[norm]
        self.mean_norm = nn.BatchNorm1d(embed) if norm else nn.Identity()
        self.dropout, self.unit_mean = nn.Dropout(dropout), unit_mean

    def forward(self, parts: Tensor, mask: Tensor) -> Tensor:
        projected = self.parts(parts)
        has_mask = isinstance(self.part_norm, PartNorm)
        projected = self.part_norm(projected, mask) if has_mask else self.part_norm(projected)
        local = self.dropout(projected.tanh())
        mean = masked_mean(parts, mask)
        mean = normalize(mean, dim=-1) if self.unit_mean else mean
        context = self.dropout(self.mean_norm(self.mean(mean)).tanh())
        logits = upcast(self.common(local * context.unsqueeze(1)).squeeze(2))
        weights = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(1)
        return normalize(upcast((weights.unsqueeze(1) @ parts).squeeze(1)), dim=-1)
