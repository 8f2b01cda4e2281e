"""VSE-infinity (Chen et al. 2021, "Learning the Best Pooling Strategy"): VSE++ with generalised
pooling."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel, upcast
from capgrade.trainer.models.encoders import GruConfig, PartNorm, WordGru, linear, run_gru
from capgrade.trainer.models.text_encoder import TextEncoder, word_starts

_PLACE = 32  # numbers of a place's encoding
_SHARPNESS = 10.0  # the authors divide by 0.1 before the softmax


class GeneralPooling(nn.Module):
    """Sets [B, L, D] as vectors [B, D]: sum_k theta_k (k-th largest value of each feature), 0 of an
    empty set.

    theta [L] depends on the size of the set alone: a GRU of both directions reads the places'
    encodings, and a linear layer and a softmax make weights of its states. So it runs once for each
    size. Source: gpo.py of vse_infty.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(_PLACE, 32, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(32, 1, bias=False)

    def forward(self, parts: Tensor, mask: Tensor) -> Tensor:
        parts, lengths = upcast(parts), mask.sum(1)
        sizes, which = lengths.unique(return_inverse=True)
        low = torch.finfo(parts.dtype).min
        values = parts.masked_fill(~mask.unsqueeze(2), low).mT.contiguous()  # (B, D, L)
        values = values.sort(2, descending=True)[0]
        present = torch.arange(mask.shape[1], device=mask.device) < lengths.unsqueeze(1)
        values = values.masked_fill(~present.unsqueeze(1), 0)
        weights = self.weights(sizes, mask.shape[1]).to(parts.dtype)[which]
        return (values @ weights.unsqueeze(2)).squeeze(2)

    def weights(self, sizes: Tensor, longest: int) -> Tensor:
        """theta [U, longest] of sets of these sizes [U]; 0 beyond a size."""
        encodings = _encode_places(longest).to(self.linear.weight).expand(len(sizes), -1, -1)
        states = run_gru(self.gru, encodings, sizes)[0]
        logits = upcast(self.linear(states.unflatten(2, (2, -1)).mean(2)).squeeze(2))
        beyond = torch.arange(longest, device=sizes.device) >= sizes.clamp(min=1).unsqueeze(1)
        return (_SHARPNESS * logits).masked_fill(beyond, torch.finfo(logits.dtype).min).softmax(1)


def _encode_places(length: int) -> Tensor:
    """Encodings [length, _PLACE] of the places 0, 1, ... of a set by sines and cosines; eq. 4."""
    rates = torch.exp(torch.arange(0, _PLACE, 2) * (-math.log(10000.0) / _PLACE))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


# Of the drawn words, half are masked, a tenth become another word, and the rest are left out.
MASKED, CHANGED = 0.5, 0.6


@dataclass(frozen=True)
class VseInfinityConfig(GruConfig):
    text_model: str | None = None  # None: a GRU of both directions; else a pretrained BERT
    text_layers: int | None = None
    freeze_text: bool = False
    drop: Annotated[float, Field(ge=0, lt=1)] = 0.2  # share of regions and words drawn in training
    padding: Literal["ignored", "authors"] = "ignored"  # authors: in the batch norm it counts too


class VseInfinity(RetrievalModel):
    """Image: l2norm(pool(W v + MLP(v))) of its regions v; caption: l2norm(pool(its words)); score:
    their cosine.

    Size augmentation in training: a region is left out with probability `drop`; a word is drawn
    with the same, and then masked (half), changed (a tenth) or left out. A set of which nothing
    would be left is kept whole. Source: encoders.py and datasets/image_caption.py of vse_infty,
    branches master (BERT) and bigru (GRU).
    """

    starts: Tensor

    def __init__(self, config: VseInfinityConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.words = config, vocabulary_size
        self.project = linear(feature_dim, config.embed)
        half = config.embed // 2
        norm = nn.BatchNorm1d(half) if config.padding == "authors" else PartNorm(half)
        self.inner = nn.Linear(feature_dim, half)
        self.norm = norm
        self.outer = nn.Linear(half, config.embed)
        self.pool_regions, self.pool_words = GeneralPooling(), GeneralPooling()
        if config.text_model is None:
            sizes = vocabulary_size + 1, config.word, config.embed  # one more word for the mask
            self.read: nn.Module = WordGru(*sizes, both_ways=True)
            self.masking, starts = vocabulary_size, torch.zeros(0, dtype=torch.bool)
        else:
            self.read = TextEncoder(config.text_model, config.text_layers, config.freeze_text)
            self.word_projection = nn.Linear(self.read.width, config.embed)
            self.masking, starts = word_starts(config.text_model)
        self.register_buffer("starts", starts, persistent=False)

    def encode_images(self, images: Images) -> Encoded:
        mask = images.mask
        if self.training and self.config.drop:
            kept = mask & (draw_uniform(mask) >= self.config.drop)
            mask = torch.where(kept.any(1, keepdim=True), kept, mask)
        regions = self.project_regions(images.features, mask)
        return Encoded(normalize(self.pool_regions(regions, mask), dim=-1))

    def project_regions(self, features: Tensor, mask: Tensor) -> Tensor:
        """float [B, R, embed], before pooling."""
        features = features.masked_fill(~mask.unsqueeze(2), 0)
        hidden = self.inner(features)
        if isinstance(self.norm, PartNorm):
            hidden = self.norm(hidden, mask)
        else:
            hidden = self.norm(hidden.flatten(0, 1)).view_as(hidden)
        return self.outer(hidden.relu()) + self.project(features)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        if self.training and self.config.drop:
            captions = self.augment(captions)
        if isinstance(self.read, TextEncoder):
            states = self.word_projection(self.read(captions))
        else:
            states = self.read(captions)[0]
        return Encoded(normalize(self.pool_words(states, captions.mask), dim=-1))

    def augment(self, captions: CaptionTokens) -> CaptionTokens:
        """The captions with drawn words masked, changed or left out."""
        tokens, mask = captions.tokens, captions.mask
        draw = draw_uniform(mask)
        other = torch.randint(1, self.words, tokens.shape).to(tokens.device)
        if self.config.text_model is not None:
            # All pieces of a word share its number, and [CLS] and [SEP] are never drawn.
            word = self.starts[tokens].cumsum(1) - 1
            draw = draw.gather(1, word.clamp(min=0))
            place = torch.arange(mask.shape[1], device=mask.device)
            draw = draw.masked_fill((place == 0) | (place == mask.sum(1, keepdim=True) - 1), 1)
        share = draw / self.config.drop  # A word is drawn where this is below 1.
        tokens = torch.where(share < MASKED, self.masking, tokens)
        tokens = torch.where((share >= MASKED) & (share < CHANGED), other, tokens)
        kept = mask & ~((share >= CHANGED) & (share < 1))
        kept = torch.where(kept.any(1, keepdim=True), kept, mask)
        order = kept.byte().argsort(dim=1, descending=True, stable=True)
        kept = kept.gather(1, order)
        return CaptionTokens(tokens.gather(1, order) * kept, kept)


def draw_uniform(mask: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) by torch's generator of the CPU, the same on every device."""
    return torch.rand(mask.shape).to(mask.device)
