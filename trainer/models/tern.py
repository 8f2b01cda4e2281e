"""TERN and TERAN: separate transformer encoders of regions and of word pieces.

TERN: Messina et al. 2020, arXiv:2004.09144. TERAN: Messina et al. 2021, arXiv:2008.05231;
github.com/mesnico/TERAN.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from capgrade.pretrained import EMBEDDED
from capgrade.schemas.block import Positive
from capgrade.schemas.errors import InputError
from capgrade.trainer.models.alignment import Padding, Pooling, align
from capgrade.trainer.models.base import CaptionTokens, Encoded, Fraction, Images, RetrievalModel
from capgrade.trainer.models.text_encoder import TextEncoder, stop_pieces


@dataclass(frozen=True)
class TernConfig:
    """The paper's sizes, except its text encoder, bert-base-uncased with `text_layers` 6."""

    feature_dim: Positive = 2048
    embed_dim: Positive = 1024
    image_layers: int = 4  # over regions, of width feature_dim
    joint_layers: int = 2  # over regions, and over words, of width embed_dim
    shared_joint: bool = False  # whether both have the same joint layers
    heads: Positive = 4
    feedforward: Positive = 2048
    dropout: Fraction = 0.1
    text_model: str = EMBEDDED  # the embedded model, a folder, or a hub id
    text_layers: int | None = None  # how many layers are kept, from the first; None: all
    freeze_text: bool = False


@dataclass(frozen=True)
class TeranConfig(TernConfig):
    pooling: Pooling = "MrSw"
    padding: Padding = "ignored"
    stop_words: str | None = None  # words left out of pooling: "english", or a file


class _EncoderLayers(nn.Module):
    """Transformer encoder layers as of 2017, with ReLU and a norm after each residual: [B, L, d] ->
    [B, L, d]."""

    def __init__(self, count: int, width: int, config: TernConfig) -> None:
        super().__init__()
        if width % config.heads:
            raise InputError(f"{config.heads} heads do not divide a width of {width}")
        sizes = (width, config.heads, config.feedforward, config.dropout)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(*sizes, batch_first=True) for _ in range(count)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        return x


class TERN(RetrievalModel):
    """Scores are cosines of the outputs at I-CLS, an empty region before the others, and at
    [CLS]."""

    def __init__(self, config: TernConfig, feature_dim: int = 0, vocabulary_size: int = 0) -> None:
        super().__init__()
        self.config, width, joint = config, config.feature_dim, config.embed_dim
        first, second = nn.Linear(width + 5, width), nn.Linear(width, width)
        self.geometry = nn.Sequential(first, nn.ReLU(), second)
        self.image_layers = _EncoderLayers(config.image_layers, width, config)
        self.image_projection = nn.Linear(width, joint)
        self.image_joint = _EncoderLayers(config.joint_layers, joint, config)
        self.text_encoder = TextEncoder(config.text_model, config.text_layers, config.freeze_text)
        self.text_projection = nn.Linear(self.text_encoder.width, joint)
        self.text_joint: _EncoderLayers | None = None
        if not config.shared_joint:
            self.text_joint = _EncoderLayers(config.joint_layers, joint, config)

    def encode_images(self, images: Images) -> Encoded:
        return Encoded(_unit(self._regions(images)[:, 0]))

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        return Encoded(_unit(self._words(captions)[:, 0]))

    def _regions(self, images: Images) -> Tensor:
        """float [B, 1 + R, embed_dim], I-CLS first."""
        conditioned = torch.cat([images.features, images.boxes], dim=2)
        x = self.geometry(nn.functional.pad(conditioned, (0, 0, 1, 0)))
        mask = nn.functional.pad(images.mask, (1, 0), value=True)
        return self.image_joint(self.image_projection(self.image_layers(x, mask)), mask)

    def _words(self, captions: CaptionTokens) -> Tensor:
        """float [B, W, embed_dim], [CLS] first."""
        joint = self.text_joint or self.image_joint
        return joint(self.text_projection(self.text_encoder(captions)), captions.mask)


class TERAN(TERN):
    """Scores are pooled from the cosines of all regions and words (alignment.py), without I-CLS and
    [CLS].

    `mask` excludes [CLS], [SEP] and stop words, unless a caption has no other words; with padding
    "authors" also the last piece before [SEP], usually the full stop, which the authors' slice
    drops. TERN and TERAN have the same names of parameters, so that each loads the other's.
    """

    stop: Tensor
    inner: Tensor

    def __init__(self, config: TeranConfig, feature_dim: int = 0, vocabulary_size: int = 0) -> None:
        super().__init__(config)
        self.pooling, self.padding = config.pooling, config.padding
        self.filtered = config.stop_words is not None
        stop = inner = torch.zeros(0)
        if config.stop_words:
            stop, inner = stop_pieces(config.stop_words, config.text_model)
        self.register_buffer("stop", stop, persistent=False)
        self.register_buffer("inner", inner, persistent=False)

    def encode_images(self, images: Images) -> Encoded:
        return Encoded(None, _unit(self._regions(images)[:, 1:]), images.mask)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        place = torch.arange(captions.mask.shape[1], device=captions.mask.device)
        n_last = 2 if self.padding == "authors" else 1
        words = (place > 0) & (place < captions.mask.sum(1, keepdim=True) - n_last)
        if self.filtered:
            # A piece is no stop word if the next continues it: "on" of "on ##ions".
            continued = nn.functional.pad(self.inner[captions.tokens[:, 1:]], (0, 1))
            kept = words & ~(self.stop[captions.tokens] & ~continued)
            words = torch.where(kept.any(1, keepdim=True), kept, words)
        return Encoded(None, _unit(self._words(captions)), words)

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        return align(images, captions, self.pooling, self.padding, evaluation=not self.training)


def _unit(x: Tensor) -> Tensor:
    return normalize(x.float(), dim=-1)
