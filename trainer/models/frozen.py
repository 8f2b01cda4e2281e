"""Two small networks over frozen encoders of pictures and captions, as LiT (Zhai et al. 2022, "LiT:
Zero-Shot Transfer with Locked-image text Tuning") locks one of them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from capgrade.pretrained import EMBEDDED
from capgrade.schemas.block import Positive
from capgrade.trainer.models.base import (
    CaptionTokens,
    Encoded,
    Fraction,
    Images,
    RetrievalModel,
    upcast,
)
from capgrade.trainer.models.encoders import masked_mean


@dataclass(frozen=True)
class FrozenConfig:
    """Sizes of the two networks, and the encoder of the captions."""

    sentence_model: str = (
        EMBEDDED  # the embedded one, or a folder or hub id of sentence-transformers
    )
    embed: Positive = 1024
    hidden: Positive = 1024
    dropout: Fraction = 0.3  # in the network of pictures
    text_dropout: Fraction = 0.2
    square_root: bool = True  # of pooled features, with their signs; else they have unit length


class Frozen(RetrievalModel):
    """Image: l2norm(f(mean and maximum of its regions)); caption: l2norm(g(its sentence vector));
    score: their cosine.

    f and g are perceptrons with one hidden layer and a linear shortcut: W x + V relu(U x). Captions
    are encoded once, before training, and their vectors are kept for all runs. Square roots make
    the few large features of a pooled vector count less (Perronnin et al. 2010, "Improving the
    Fisher Kernel for Large-Scale Image Classification", section 3.2).
    """

    def __init__(self, config: FrozenConfig, feature_dim: int, vocabulary_size: int) -> None:
        """`vocabulary_size` is the length of a sentence vector."""
        super().__init__()
        self.square_root = config.square_root
        self.images = _Perceptron(2 * feature_dim, config, config.dropout)
        self.captions = _Perceptron(vocabulary_size, config, config.text_dropout)

    def encode_images(self, images: Images) -> Encoded:
        features, mask = upcast(images.features), images.mask
        low = torch.finfo(features.dtype).min
        largest = features.masked_fill(~mask.unsqueeze(2), low).amax(1)
        pooled = torch.stack([masked_mean(features, mask), largest], 1)
        if self.square_root:
            pooled = pooled.sign() * pooled.abs().sqrt()
        else:
            pooled = normalize(pooled, dim=-1)
        return Encoded(self.images(pooled.flatten(1)))

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        return Encoded(self.captions(captions.tokens[:, 0]))


class _Perceptron(nn.Module):
    """Unit vectors [B, embed] of inputs [B, D], which are normalised over the batch first."""

    def __init__(self, inputs: int, config: FrozenConfig, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs, affine=False)
        self.shortcut = nn.Linear(inputs, config.embed)
        self.inner = nn.Linear(inputs, config.hidden)
        self.outer = nn.Linear(config.hidden, config.embed)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.norm(x))
        hidden = self.dropout(self.inner(x).relu())
        return normalize(upcast(self.shortcut(x) + self.outer(hidden)), dim=-1)
